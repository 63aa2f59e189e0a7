"""All that a machine with a GPU can tell in ten minutes: `python tests/gpu/report.py`.

It writes .build/gpu/report.md: adapter, results of all cases of ops, models and training, and how
long tokens and training steps take. VK_DRIVER_FILES chooses a driver; --minutes limits the cases,
and --software makes them fit a GPU in software.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
SOFTWARE = {"width": 192, "heads": 3, "kv_heads": 1, "inner": 512, "vocab": 4096}
SECONDS = 3  # of each time that is measured
ENVIRONMENT = dict(os.environ)  # without the driver that adapters.py chooses for this process


def tests(minutes, most):
    """(summary, failures) of tests/gpu with `most` cases of each op. What is not done when the time
    is over is counted up to there.
    """
    lines = []
    for name, cases, share in (("gpu -k 'not ops'", 1, 0.4), ("gpu/test_ops_on_gpu.py", most, 0.6)):
        environment = {**ENVIRONMENT, "EDGEWISE_GPU_CASES": str(cases), "PYTHONPATH": "python"}
        command = f"exec {sys.executable} -m pytest tests/{name} -v -rf -p no:cacheprovider"
        log = ROOT / ".build/gpu/report.log"
        late = ""
        with open(log, "w") as out:
            run = subprocess.Popen(
                f"{command} --tb=line", shell=True, cwd=ROOT, env=environment, stdout=out
            )
            try:
                run.wait(60 * minutes * share)
            except subprocess.TimeoutExpired:
                late = f", then the time was over ({minutes * share:.0f} minutes)"
                run.kill()
                run.wait()
        text = log.read_text()
        done = Counter(re.findall(r"^tests/\S+ (\w+) +\[", text, re.M))
        words = ", ".join(f"{count} {what.lower()}" for what, count in sorted(done.items()))
        lines += [f"`tests/{name}`, {cases} of each op: {words or 'nothing done'}{late}"]
        lines += [f"    {x[:300]}" for x in re.findall(r"^FAILED.*", text, re.M)]
    return lines


def median(run, seconds):
    """Milliseconds of run(), which waits for the GPU, as the median of several."""
    run()
    times, end = [], time.monotonic() + seconds
    while len(times) < 5 or time.monotonic() < end:
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
        if len(times) >= 5 and time.monotonic() > end:
            break
    return sorted(times)[len(times) // 2]


def dispatches(loaded):
    """Of a run of a plan; None on the processor."""
    return loaded.info["dispatches"] if hasattr(loaded, "info") else None


def language_model(engine, path, prompt):
    """Rows of `speeds`: a token and a prompt."""
    import numpy as np
    from edgewise import CausalLM

    lm = CausalLM(path, capacity=2 * prompt, engine=engine)
    sequence, ids = lm.open(), list(range(1, prompt + 1))

    def greedy(sequence, ids, _):
        np.array(lm.logits(lm.forward(sequence, ids))).argmax()

    def token():
        if lm.length(sequence) > 2 * prompt - 6:
            lm.truncate(sequence, prompt)
        (lm.forward_best if lm.chooses else greedy)(sequence, [7], None)

    def whole():
        lm.truncate(sequence, 0)
        lm.forward(sequence, ids)

    lm.forward(sequence, ids)
    rows = [("a token, greedy", median(token, SECONDS), dispatches(lm.plans[0].loaded))]
    rows.append((f"a prompt of {prompt}", median(whole, SECONDS), dispatches(lm.plans[-1].loaded)))
    lm.free()
    return rows


def lora_step(engine, data, tokens):
    """A row of `speeds`."""
    import numpy as np
    from edgewise.compiler.targets import target_of
    from edgewise.onnx import BytesSource, read_model
    from edgewise.training.language_model import causal_lm_inputs
    from edgewise.training.peft import LoraConfig
    from edgewise.training.program import Program
    from edgewise.training.session import TrainingSession

    graph = read_model(BytesSource(data))
    program = Program(
        graph,
        **causal_lm_inputs(graph, 1, tokens),
        target=target_of(engine.device),
        lora=LoraConfig(r=8, target_modules="all-linear"),
        trainable=[],
    )
    session = TrainingSession(program, engine)
    ids = np.arange(tokens)[None] + 1
    named = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids}
    names = {slot.name for slot in program.plan("train").slots if slot.kind == "input"}
    feeds = {name: x for name, x in named.items() if name in names}
    took = median(lambda: session.train(feeds, 1e-3), SECONDS)
    loaded = session.loaded["train"]
    row = f"a LoRA step, 1 x {tokens}", took, dispatches(loaded)
    session.free()
    return row


def speeds(engine, layers, software=False):
    """(what, milliseconds, dispatches) of a token, a prompt and a LoRA step of SmolLM2's shape, or
    of a smaller one for a GPU in software; dispatches: None on the processor.
    """
    from bench import models

    shape = {**models.SMOLLM2, **(SOFTWARE if software else {}), "layers": layers}
    data = models.language_model(**shape).SerializeToString()
    path = ROOT / ".build/gpu/report.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    tokens = 32 if software else 128
    return [*language_model(engine, path, tokens), lora_step(engine, data, tokens)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--layers", type=int, help="of the model that is timed (default 30)")
    parser.add_argument("--untested", action="store_true", help="only times")
    parser.add_argument(
        "--software",
        action="store_true",
        help="for a GPU in software: a small model of 2 layers, one case of each op, the processor"
        " beside it",
    )
    parser.add_argument("--json", action="store_true", help="print only the times, as JSON")
    args = parser.parse_args()
    from edgewise.engine.native import NativeEngine

    from gpu.adapters import opened

    engine = opened()
    if isinstance(engine, str):
        sys.exit(f"report: {engine}")
    layers = args.layers or (2 if args.software else 30)
    engines = [engine, *([NativeEngine(threads=1)] if args.software or args.json else [])]
    times = [speeds(one, layers, args.software) for one in engines]
    if args.json:
        print(json.dumps({"adapter": engine.gpu.name, "layers": layers, "times": times}))
        return
    lines = [f"# {engine.gpu.name}", ""]
    lines += [f"    {name}: {value}" for name, value in sorted(engine.gpu.limits.items())]
    size = "a small model" if args.software else "SmolLM2-135M's shape"
    beside = "one thread of the processor, ms"
    lines += ["", f"| {size}, {layers} layers | ms | dispatches | {beside} |", "|---|---|---|---|"]
    for (what, took, count), *others in zip(*times):
        more = f"{others[0][1]:.2f}" if others else ""
        lines.append(f"| {what} | {took:.2f} | {count} | {more} |")
    if not args.untested:
        lines += ["", *tests(args.minutes * 0.85, 1 if args.software else 40)]
    out = ROOT / ".build/gpu/report.md"
    out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"written: {out}")


if __name__ == "__main__":
    main()
