#!/usr/bin/env python3
"""Damages whole files with models and states, and opens and runs them in Python and in the page's
code (Node): packages (manifest and plans changed together, with correct checksums), adapters,
safetensors, checkpoints of both languages, and ONNX Runtime's training artifacts.

    fuzz_files.py [--runs N] [--seconds T] [--seed S] [--jobs J] [--only CASE] [--of KIND] [--plain]

Every outcome must be a result or an EdgewiseError with what, where and remedy; both readers of
packages must agree. Cases run in child processes with the sanitized engine (`make sanitize`) unless
--plain is given. A crash, a hang or another exception is a finding. A case depends only on its
number and the seed, so `--only 1234 --seed S` repeats it.
"""
# long: one program, which is started by its path

import argparse
import io
import json
import os
import random
import resource
import struct
import subprocess
import sys
import traceback
from base64 import b64decode
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
SANITIZED = ROOT / ".build/sanitize/libedgewise.so"
SLOW = 2.0  # runs that take more seconds natively are not repeated in Node
CONFIG = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["q_proj"],
    "lora_dropout": 0.1,
    "bias": "none",
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "layers_to_transform": None,
    "layers_pattern": None,
    "init_lora_weights": True,
    "use_rslora": False,
    "fan_in_fan_out": False,
    "exclude_modules": None,
    "task_type": "CAUSAL_LM",
    "inference_mode": True,
}


def safetensors(header: dict, data: bytes) -> bytes:
    """A safetensors file with an arbitrary header."""
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + data


class Files:
    """The files to damage, and how each kind is opened."""

    # long: one file of each kind
    def __init__(self):
        from edgewise.compiler.compile import compile_inference
        from edgewise.compiler.training.package import compile_training_package
        from edgewise.host.session.decoder import open_package
        from edgewise.onnx import BytesSource, FileSource

        from hostile.packages import decoder, feeds, plan, slot, step, task
        from hostile.page.page_reader import CHECKPOINT, PageReader, framed
        from hostile.seeds import small

        self.page = PageReader()
        model = ROOT / "tests/zoo/models/q4_llama/model.onnx"
        made = {
            "q4": open_package(model, capacity=24),
            "inference": compile_inference(
                {"model.onnx": BytesSource(small()["attention"][0])},
                ({"b": 1, "s": 2}, {"b": 2, "s": 3}),
            ),
            "training": compile_training_package(
                {"model.onnx": FileSource(model)},
                [{"name": "lora", "batch": 1, "sequence": 4, "lora": {"r": 2, "lora_alpha": 4}}],
                capacity=8,
                chunks=(1, 4),
            ),
            "task": task(),
        }
        self.packages = {}
        for name, package in made.items():
            out = io.BytesIO()
            package.write(out)
            self.packages[name] = out.getvalue()
        # A decoder of two hand-written plans: the logits are a weight, whose copy is computed by an
        # init step and stored in a cache.
        logits, names = (
            (64, True),
            [
                slot("w", "weight", 64, "float32"),
                slot("c", "computed", 64, "float32"),
                slot("k", "cache", 64, "float32"),
            ],
        )

        def copied(a, b):
            return step(
                "copy",
                {
                    "size": 4,
                    "dims": [1, 1, 1, 1, 1, 16],
                    "xs": [0, 0, 0, 0, 0, 1],
                    "ys": [0, 0, 0, 0, 0, 1],
                },
                [(a, 0), (b, 0)],
            )

        plans = [
            (
                n,
                plan(
                    [(8 * n, False), logits, (64, False), (64, True), (64, True)],
                    [copied(5, 6), copied(6, 3)],
                    [copied(4, 5)],
                ),
                [*feeds(n), *names],
            )
            for n in (1, 2)
        ]
        self.packages["small"] = decoder(
            plans,
            caches=[{"name": "k", "bytes": 64}],
            weights={"w": struct.pack("<16f", *range(16))},
            capacity=8,
        )
        self.adapter = self.adapter_files()
        found = self.page.ask(CHECKPOINT, framed())
        self.side, self.kept = (b64decode(x) for x in found["ok"])
        self.run, self.odtc = self.checkpoint_files()
        self.made = None  # training artifacts and their feeds, created on first use

    def adapter_files(self) -> tuple:
        """Returns (config, header, data) of an adapter of the package `training`."""
        from edgewise.onnx import BytesSource
        from edgewise.package import Package

        manifest = Package.read(BytesSource(self.packages["training"])).manifest
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for s in manifest["training"][0]["states"]:
            if s["kind"] == "adapter" and ".lora_" in s["name"]:
                header["base_model.model." + s["name"]] = {
                    "dtype": "F32",
                    "shape": s["shape"],
                    "data_offsets": [len(data), len(data) + s["bytes"]],
                }
                data += struct.pack("<f", 0.01) * (s["bytes"] // 4)
        return CONFIG, header, data

    def checkpoint_files(self) -> tuple:
        import numpy as np
        from edgewise.extras.onnxruntime_training.artifact_files.odtc import (
            Checkpoint,
            OptimizerGroup,
            write_checkpoint,
        )
        from edgewise.host.training.trainer.checkpoint import save_checkpoint

        out = io.BytesIO()
        save_checkpoint(
            {"w": np.ones((3, 4), "f4"), "step": np.ones((), "i8")},
            {"step": 3, "runs": 4, "seed": 5, "lora": None},
            out,
        )
        odtc, ones = io.BytesIO(), np.ones((3, 4), "f4")
        write_checkpoint(
            Checkpoint(
                {"w": ones, "v": np.ones(2, "f4")},
                {"f": np.ones(2, "f4")},
                {"group0": OptimizerGroup(3, 1e-3, {"w": {"momentum0": ones, "momentum1": ones}})},
                {"a": 1, "b": 2.5, "c": "text"},
            ),
            odtc,
        )
        return out.getvalue(), odtc.getvalue()

    # ---- one case of each kind; each returns (outcome, what was done) ----
    def package(self, rng):
        """Both readers, and a run."""
        from hostile.damage import DamagedPackage, damage_bytes
        from hostile.page.page_reader import PLAY, READ

        name = rng.choice(("small", "small", "small", "q4", "training", "inference"))
        damaged = DamagedPackage(
            rng, self.packages[name], [self.packages[n] for n in ("small", "q4", "training")]
        )
        data = damaged.make()
        if rng.random() < 0.05:
            data = damage_bytes(rng, data)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        outcome = words(lambda: play(data))
        accepted = outcome[0] != "PackageError" or words(lambda: read(data))[0] == "ran"
        theirs = self.page.ask(READ, data)
        if (
            broken(theirs)
            or theirs.get("error") not in (None, "PackageError")
            or accepted != ("ok" in theirs)
        ):
            return (
                "FINDING",
                f"Python: {outcome}, accepted {accepted}; page: {str(theirs)[:500]}",
            ), f"{name}: {damaged.notes}"
        if (
            outcome[0] == "ran"
            and resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < SLOW
            and rng.random() < 0.2
        ):
            theirs = self.page.ask(PLAY, data)
            if broken(theirs):
                return ("FINDING", f"the page: {theirs}"), f"{name}: {damaged.notes}"
        return outcome, f"{name}: {damaged.notes}"

    def peft(self, rng):
        """The two files of an adapter, loaded into their package."""
        from hostile.damage import damage_bytes, damage_json
        from hostile.page.page_reader import ADAPTER, framed

        config, header, data = self.adapter
        which = rng.random()
        text = json.dumps(damage_json(rng, config) if which < 0.5 else config).encode()
        weights = safetensors(damage_json(rng, header) if 0.4 < which < 0.9 else header, data)
        if which > 0.85:
            text, weights = (
                damage_bytes(rng, text),
                (damage_bytes(rng, weights) if rng.random() < 0.8 else weights),
            )

        def use():
            from edgewise.onnx import BytesSource
            from edgewise.package import Package
            from edgewise.training.adapters import CausalLM
            from edgewise.training.peft import load_adapter, save_adapter

            adapter = load_adapter(
                {"adapter_config.json": text, "adapter_model.safetensors": weights}
            )
            save_adapter(adapter)
            lm = CausalLM(Package.read(BytesSource(self.packages["training"], "model.edge")))
            try:
                lm.load_adapter(adapter, "a")
                lm.set_adapter("a", 0.5)
                lm.forward(lm.open(), [1, 2])
            finally:
                lm.free()

        outcome = words(use)
        theirs = self.page.ask(ADAPTER, framed(self.packages["training"], text, weights))
        return ("FINDING", f"the page: {theirs}") if broken(theirs) else outcome, "an adapter"

    def tensors(self, rng):
        """A safetensors file alone."""
        from edgewise.training.safetensors import load_safetensors

        from hostile.damage import damage_bytes, damage_json
        from hostile.page.page_reader import SAFETENSORS

        _, header, data = self.adapter
        file = (
            safetensors(damage_json(rng, header), data)
            if rng.random() < 0.7
            else damage_bytes(rng, safetensors(header, data))
        )
        outcome = words(lambda: [t.bytes() for t in load_safetensors(file)[0].values()])
        theirs = self.page.ask(SAFETENSORS, file)
        differ = (outcome[0] == "ran") != ("ok" in theirs)
        return (
            ("FINDING", f"Python: {outcome}; page: {str(theirs)[:500]}")
            if broken(theirs) or differ
            else outcome
        ), "safetensors"

    def checkpoints(self, rng):
        """The page's checkpoints, with one damaged copy and one complete one, and a stored adapter.

        Reading never fails, and the result is complete.
        """
        from hostile.damage import damage_bytes
        from hostile.page.page_reader import CHECKPOINT, framed

        side, kept = self.rewritten(rng, self.side), damage_bytes(rng, self.kept)
        theirs = self.page.ask(CHECKPOINT, framed(side, self.side, kept))
        right = (
            "ok" in theirs
            and theirs["ok"]["step"] == 3
            and theirs["ok"]["files"] == (2 if kept == self.kept else 0)
        )
        return ("ran", "") if right else ("FINDING", str(theirs)), "checkpoints of a page"

    def trainer(self, rng):
        """Checkpoints of Python."""
        from edgewise.host.training.trainer.checkpoint import load_checkpoint

        file = self.rewritten(rng, self.run)
        return (
            words(lambda: [t.bytes() for t in load_checkpoint(file)[0].values()]),
            "a trainer's checkpoint",
        )

    def rewritten(self, rng, file: bytes) -> bytes:
        from hostile.damage import damage_bytes, damage_json

        (size,) = struct.unpack("<Q", file[:8])
        if rng.random() < 0.5:
            return damage_bytes(rng, file)
        header = json.loads(file[8 : 8 + size])
        if rng.random() < 0.5:
            header["__metadata__"]["edgewise"] = json.dumps(
                damage_json(rng, json.loads(header["__metadata__"]["edgewise"]))
            )
        else:
            header = damage_json(rng, header)
        return safetensors(header, file[8 + size :])

    def onnxruntime(self, rng):
        """Checkpoints of ONNX Runtime's training."""
        from edgewise.extras.onnxruntime_training.artifact_files.odtc import (
            read_checkpoint,
            write_checkpoint,
        )

        from hostile.damage import damage_bytes

        file = damage_bytes(rng, self.odtc)

        def use():
            found = read_checkpoint(file)
            for t in found.parameters.values():
                t.bytes()
            write_checkpoint(found, io.BytesIO())

        return words(use), "a checkpoint of ONNX Runtime"

    def artifacts(self, rng):
        """Training artifacts, in Python and with a page's TrainingSession."""
        from tempfile import TemporaryDirectory

        import numpy as np

        from hostile.artifacts import (
            ORT,
            damage_artifacts,
            feeds_for,
            own_artifacts,
            train,
            train_in_page,
            whole,
        )

        if self.made is None:
            with TemporaryDirectory() as folder:
                self.made = [
                    (files, feeds_for(files)) for files in (whole(ORT), own_artifacts(Path(folder)))
                ]
        files, feeds = rng.choice(self.made)
        damaged, what = damage_artifacts(rng, files)
        losses, outcomes = [], []
        for host in (train, train_in_page):

            def use(host=host):
                losses.append(host(damaged, feeds))

            outcomes.append(words(use))
            if outcomes[-1][0] == "FINDING":
                return outcomes[-1], f"artifacts in {host.__name__}: {what}"
        if (
            (outcomes[0][0] == "ran") != (outcomes[1][0] == "ran")
            or len(losses) == 2
            and not np.allclose(*losses, rtol=1e-3, atol=1e-4, equal_nan=True)
        ):
            return (
                "FINDING",
                f"Python: {outcomes[0]} {losses[:1]}; page: {outcomes[1]} {losses[1:]}",
            ), f"artifacts: {what}"
        return outcomes[0], f"artifacts: {what}"

    KINDS = ("package", "peft", "tensors", "checkpoints", "trainer", "onnxruntime", "artifacts")

    def case(self, number: int, seed: int, of: str | None = None) -> tuple[str, str]:
        """Runs a case; returns (outcome, text)."""
        rng = random.Random(f"{seed}/{number}")
        kind = of or rng.choice(("package",) * 6 + self.KINDS)
        (outcome, text), what = getattr(self, kind)(rng)
        return f"{kind} {outcome}" if outcome != "FINDING" else outcome, f"{what}\n    {text}"


def broken(answer: dict) -> bool:
    """Whether a response of the page is not acceptable."""
    return (
        answer.get("error") in ("ESCAPED", "DIED")
        or "the engine stopped" in answer.get("what", "")
        or "error" in answer
        and not (answer["what"] and answer["remedy"] and len(answer["what"]) < 1500)
    )


def words(call) -> tuple[str, str]:
    """Returns ("ran", ""), or the name and the text of an EdgewiseError; anything else is a
    finding.
    """
    from edgewise.errors import EdgewiseError

    try:
        call()
        return "ran", ""
    except EdgewiseError as e:
        if not e.what or not e.where or not e.remedy or len(str(e)) > 1500:
            return "FINDING", f"a poor message: {e!r}"[:600]
        return type(e).__name__, str(e)
    except Exception:  # noqa: BLE001 - other exceptions are findings
        return "FINDING", traceback.format_exc(limit=-6)


def read(data: bytes) -> None:
    """Reads a package in Python without running it."""
    from edgewise.onnx import BytesSource
    from edgewise.package import Package

    Package.read(BytesSource(data, "model.edge"))


def play(data: bytes) -> None:
    """Opens a package and runs a few steps."""
    from edgewise.onnx import BytesSource
    from edgewise.package import Package
    from edgewise.training.adapters import CausalLM

    package = Package.read(BytesSource(data, "model.edge"))
    if package.manifest["task"] == "inference":
        return
    lm = CausalLM(package)
    try:
        if lm.lora is not None:
            lm.set_adapter(None)
        a = lm.open()
        lm.forward(a, [0, 0, 0][: lm.max_length])
        lm.logits(lm.forward(a, [0])) if lm.max_length > 3 else None
        b = lm.open()
        lm.copy(a, b)
        lm.truncate(b, 1)
        lm.forward(b, [0]) if lm.max_length > 1 else None
        lm.close(a)
    finally:
        lm.free()


def worker(a) -> None:
    """Runs cases a.first, a.first + a.step, ... and prints JSON lines."""
    import edgewise.host.engine
    from edgewise.host.engine import native

    edgewise.host.engine._default = native.NativeEngine(threads=1)
    files = Files()
    for case in range(a.first, a.runs, a.step):
        print(json.dumps({"start": case}), flush=True)
        kind, text = files.case(case, a.seed, a.of)
        print(
            json.dumps({"end": case, "kind": kind, "text": text if kind == "FINDING" else ""}),
            flush=True,
        )
    files.page.close()


def environment(plain: bool) -> dict:
    """Environment variables of the child processes: they use the sanitized engine if it is
    built.
    """
    paths = {
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "python"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        )
    }
    if plain or not SANITIZED.exists():
        return paths
    asan = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        **paths,
        "EDGEWISE_LIBRARY": str(SANITIZED),
        "LD_PRELOAD": asan,
        "ASAN_OPTIONS": (
            "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096:handle_segv=1"
        ),
    }


def files_campaign(
    runs: int,
    seconds: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    of: str | None = None,
    plain: bool = False,
    say=lambda *_: None,
):
    """Runs the cases; returns (Counter of outcomes, [findings])."""
    from hostile.fuzz_onnx import campaign

    return campaign(
        runs,
        seconds,
        seed,
        jobs,
        say=say,
        script=HERE,
        extra=["--of", of] if of else [],
        env=environment(plain),
    )


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--runs", type=int, default=10000)
    p.add_argument("--seconds", type=float)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--of", choices=Files.KINDS, help="files of this kind only")
    p.add_argument("--plain", action="store_true", help="the ordinary engine")
    p.add_argument("--only", type=int, help="run this case, here, and say what it gave")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        worker(a)
        return 0
    if a.only is not None:
        files = Files()
        print(*files.case(a.only, a.seed, a.of))
        files.page.close()
        return 0
    counts, findings = files_campaign(
        a.runs, a.seconds, a.seed, a.jobs, a.of, a.plain, say=lambda text: print(text, flush=True)
    )
    print(
        f"{sum(counts.values())} damaged files:"
        f" {', '.join(f'{k} {v}' for k, v in counts.most_common())}"
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests"), str(HERE.parent)]
    sys.exit(main())
