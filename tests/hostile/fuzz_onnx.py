#!/usr/bin/env python3
"""Damages ONNX models and runs them: every outcome must be a correct result or an EdgewiseError
with what, where and remedy.

    fuzz_onnx.py [--runs N] [--seconds T] [--seed S] [--jobs J] [--onnxruntime] [--only CASE]
    [--save FOLDER]

A case depends only on its number and the seed, so `--only 1234 --seed S` repeats it. Cases run in a
child process with bounded memory. A finding is a crash, a hang, another exception, a message
without its parts, too much memory, or an earlier session that no longer works. With --onnxruntime,
results of models that both can run are compared (a difference is a finding).
"""

import argparse
import collections
import json
import os
import random
import re
import resource
import select
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve()
HANG = 300  # seconds without output from a child process, also on a busy machine
MEMORY = 1 << 30  # limit of the memory that a case adds to the process
LONGEST = 1500  # limit of a message in characters


# long: one branch for each kind of input
def feeds_for(inputs, rng):
    """Arrays of the declared types and shapes; dynamic dimensions are small."""
    import numpy as np

    kinds = {
        "float": "f4",
        "uint8": "u1",
        "int8": "i1",
        "uint16": "u2",
        "int16": "i2",
        "int32": "i4",
        "int64": "i8",
        "bool": "?",
        "float16": "f2",
        "double": "f8",
        "uint32": "u4",
        "uint64": "u8",
    }
    sizes, feeds = {}, {}
    numbers = np.random.default_rng(rng.getrandbits(32))
    for i in inputs:
        inner = re.search(r"tensor\((\w+)\)", i.type)
        kind = kinds.get(inner[1], "f4") if inner else "f4"
        if inner and inner[1] == "string":
            feeds[i.name] = np.array(
                [rng.choice(("", "a", "b c", "1.5", "ü")) for _ in range(rng.choice((0, 1, 3)))],
                object,
            )
            continue
        if not i.type.startswith("tensor("):
            some = [
                numbers.integers(0, 3, rng.choice(((), (2,), (2, 3)))).astype(kind)
                for _ in range(rng.choice((0, 1, 1, 2)))
            ]
            feeds[i.name] = (
                some
                if "seq(" in i.type
                else {"a": 1.0}
                if i.type.startswith("map(")
                else some[0]
                if some
                else None
            )
            continue
        shape, total = [], 1
        for d in i.shape if i.shape is not None else [2]:
            if not isinstance(d, int):
                d = sizes.setdefault(
                    d,
                    (
                        rng.choice((0, 1, 2, 3))
                        if "past" in str(d) or rng.random() < 0.05
                        else rng.choice((1, 2, 3))
                    ),
                )
            d = max(0, min(d, 300))
            d = d if total * d <= 1 << 16 else 1
            total *= max(1, d)
            shape.append(d)
        if kind == "?":
            feeds[i.name] = numbers.integers(0, 2, shape).astype("?")
        elif kind[0] == "f":
            feeds[i.name] = numbers.standard_normal(shape).astype(kind)
        elif "mask" in i.name:
            feeds[i.name] = np.ones(shape, kind)
        else:
            feeds[i.name] = numbers.integers(0, 8, shape).astype(kind)
            if rng.random() < 0.05 and feeds[i.name].size:
                feeds[i.name].reshape(-1)[0] = np.array(
                    rng.choice((-1, 127, 1 << 14)) if kind[1] != "1" else 127
                ).astype(kind)
    return feeds


# long: one branch for each outcome
def run_case(case, seeds, seed, compare=False, save=None):
    """Returns (kind of outcome, text)."""
    import edgewise
    from damage_onnx import Damage
    from edgewise.compiler.compile import compile_causal_lm
    from edgewise.errors import EdgewiseError, PlanError
    from edgewise.onnx import BytesSource

    rng = random.Random(f"{seed}/{case}")
    damage = Damage(rng, seeds)
    damage.make()
    if save:
        folder = Path(save)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{case}.onnx").write_bytes(damage.data)
        for name, data in damage.siblings.items():
            (folder / name).write_bytes(data)
    what = f"{damage.name}: {'; '.join(damage.notes)}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    session = got = feeds = None
    try:
        options = edgewise.SessionOptions()
        options.max_loop_trips = 1000
        session = edgewise.InferenceSession(
            BytesSource(damage.data, damage.name + ".onnx", damage.siblings), options
        )
        session.get_outputs()
        feeds = feeds_for(session.get_inputs(), rng)
        got = session.run(None, feeds)
        if any(i.name == "input_ids" for i in session.get_inputs()) and rng.random() < 0.3:
            compile_causal_lm(session.graph, {}, 32, (1, 4))
        outcome = "ran", ""
    except EdgewiseError as e:
        outcome = type(e).__name__, str(e)
        if not e.what or not e.where or not e.remedy:
            outcome = (
                "FINDING",
                (
                    "a message without its"
                    f" {'what' if not e.what else 'where' if not e.where else 'remedy'}: {e!r}"
                ),
            )
        elif isinstance(e, PlanError):
            outcome = "FINDING", f"the engine refused a plan that was made for it: {e}"
        elif len(str(e)) > LONGEST:
            outcome = "FINDING", f"a message of {len(str(e))} characters: {str(e)[:200]}"
    except Exception:  # noqa: BLE001 - other exceptions are findings
        outcome = "FINDING", traceback.format_exc(limit=-6)
    finally:
        if session is not None:
            session.free()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > MEMORY:
        outcome = "FINDING", f"took {grown >> 20} MiB"
    if (
        compare
        and outcome[0] == "ran"
        and not damage.siblings
        and b"\0\0\xc0\x7f" not in damage.data
    ):  # results of operators such as Clip with NaN bounds are not specified
        wrong = compare_with_onnxruntime(damage.data, feeds, got)
        if wrong:
            outcome = "FINDING", wrong
    return outcome[0], f"{what}\n    {outcome[1]}"


def compare_with_onnxruntime(data, feeds, got):
    import numpy as np
    import onnxruntime as ort
    from references import reference_of

    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        model = reference_of(data)
        want = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
    except Exception:  # noqa: BLE001 - a model that onnxruntime refuses proves nothing
        return ""
    for i, (g, w) in enumerate(zip(got, want)):
        g = np.asarray(g)
        if g.shape != w.shape or g.dtype != w.dtype:
            return f"output {i}: {g.dtype}{g.shape}, onnxruntime gives {w.dtype}{w.shape}"
        if w.dtype.kind == "f":
            g, w = (
                np.nan_to_num(g.astype("f8"), posinf=1e300, neginf=-1e300),
                np.nan_to_num(w.astype("f8"), posinf=1e300, neginf=-1e300),
            )
            if w.size and np.abs(g - w).max() > 2e-2 * max(1.0, np.abs(w).max()):
                return (
                    f"output {i}: onnxruntime differs by {np.abs(g - w).max():.3g} of"
                    f" {np.abs(w).max():.3g}"
                )
        elif not (g == w).all():
            return f"output {i}: {int((g != w).sum())} of {w.size} differ from onnxruntime's"
    return ""


def worker(a):
    """Runs cases a.first, a.first + a.step, ... and prints JSON lines."""
    sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]
    import edgewise
    import numpy as np
    from edgewise.host.engine import native
    from seeds import real, small, suite

    edgewise.host.engine._default = native.NativeEngine(threads=1)
    seeds = {**small(), **real(), **suite()}
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    steady = edgewise.InferenceSession(seeds["attention"][0])
    feeds = {
        "x": np.linspace(-1, 1, 2 * 5 * 8, dtype="f4").reshape(2, 5, 8),
        "mask": np.zeros((2, 1, 1, 5), "f4"),
    }
    want = steady.run(None, feeds)[0].tobytes()
    case, count = a.first, 0
    while case < a.runs:
        print(json.dumps({"start": case}), flush=True)
        kind, text = run_case(case, seeds, a.seed, a.onnxruntime, a.save)
        count += 1
        if count % 20 == 0 and steady.run(None, feeds)[0].tobytes() != want:
            kind, text = (
                "FINDING",
                "the session from before gives another answer\n    after " + text,
            )
        print(json.dumps({"end": case, "kind": kind, "text": text}), flush=True)
        case += a.step


class Child:
    def __init__(self, a, first):
        self.first, self.now, self.heard = first, None, time.monotonic()
        self.inside = ""  # the library that runs the case, if the program says so
        args = (
            [
                sys.executable,
                str(a.script),
                "--worker",
                "--first",
                str(first),
                "--step",
                str(a.jobs),
                "--runs",
                str(a.runs),
                "--seed",
                str(a.seed),
                *a.extra,
            ]
            + ["--onnxruntime"] * a.onnxruntime
            + (["--save", a.save] if a.save else [])
        )
        self.process = subprocess.Popen(
            args,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **a.env},
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = b""

    def lines(self):
        data = self.process.stdout.read() or b""
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(x) for x in lines if x]

    def end(self):
        self.process.kill()
        _, err = self.process.communicate()
        return err.decode(errors="replace")


# long: the loop that starts, watches and restarts the processes
def campaign(
    runs,
    seconds=None,
    seed=0,
    jobs=2,
    onnxruntime=False,
    save=None,
    say=lambda *_: None,
    script=HERE,
    extra=(),
    env=None,
    first=0,
    each=lambda line: None,
):
    """Runs the cases from `first` to `runs`; returns (Counter of outcomes, [findings]).

    script: the program that runs cases with `--worker`; `extra` are its arguments. each: is called
    with what it said of a case: {"end": case, "kind", "text", ..}. A process that dies inside of
    onnxruntime (`{"inside": "onnxruntime"}` was its last line) is no finding.
    """
    a = argparse.Namespace(
        runs=runs,
        seed=seed,
        jobs=jobs,
        onnxruntime=onnxruntime,
        save=save,
        script=script,
        extra=extra,
        env=env or {},
    )
    counts, findings, started = collections.Counter(), [], time.monotonic()
    children = [Child(a, first + i) for i in range(max(0, min(jobs, runs - first)))]

    def finding(case, text):
        counts["FINDING"] += 1
        findings.append(f"case {case} (seed {seed}): {text}")
        say(findings[-1])

    while children:
        ready, _, _ = select.select([c.process.stdout for c in children], [], [], 1)
        for child in list(children):
            ended = child.process.poll() is not None
            for line in child.lines():
                child.heard = time.monotonic()
                if "inside" in line:
                    child.inside = line["inside"]
                elif "start" in line:
                    child.now = line["start"]
                else:
                    case, child.now = child.now, None
                    child.first = case + jobs
                    each(line)
                    if line["kind"] == "FINDING":
                        finding(case, line["text"])
                    else:
                        counts[line["kind"]] += 1
            if seconds and time.monotonic() - started > seconds:
                child.end()
                children.remove(child)
                continue
            stuck = time.monotonic() - child.heard > HANG and child.now is not None
            if not ended and not stuck:
                continue
            children.remove(child)
            status = child.process.returncode
            said = child.end().strip().splitlines()
            if child.now is not None:
                text = (
                    f"no answer in {HANG} s"
                    if stuck
                    else f"the process ended with {status}: {' | '.join(said[-3:])}"
                )
                if child.inside == "onnxruntime":
                    counts["onnxruntime died"] += 1
                    each({"end": child.now, "kind": "onnxruntime died", "text": text})
                else:
                    finding(child.now, text)
                    each({"end": child.now, "kind": "FINDING", "text": text})
                if child.now + jobs < runs:
                    children.append(Child(a, child.now + jobs))
            elif status:
                raise RuntimeError("\n".join(said))
    return counts, findings


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--runs", type=int, default=10000)
    p.add_argument("--seconds", type=float)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--onnxruntime", action="store_true")
    p.add_argument("--only", type=int, help="run this case, here, and say what it gave")
    p.add_argument("--save", help="folder to write the damaged models to")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        return worker(a)
    if a.only is not None:
        sys.path.insert(0, str(HERE.parent))
        from seeds import real, small, suite

        print(*run_case(a.only, {**small(), **real(), **suite()}, a.seed, a.onnxruntime, a.save))
        return 0
    counts, findings = campaign(
        a.runs,
        a.seconds,
        a.seed,
        a.jobs,
        a.onnxruntime,
        a.save,
        say=lambda text: print(text, flush=True),
    )
    print(
        f"{sum(counts.values())} damaged models:"
        f" {', '.join(f'{k} {v}' for k, v in counts.most_common())}"
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
