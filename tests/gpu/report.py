"""All that a machine with a GPU can tell in ten minutes: `python tests/gpu/report.py`.

It writes .build/gpu/report.md: adapter, results of all cases of ops, models and training, and how
long tokens and training steps take. VK_DRIVER_FILES chooses a driver; --minutes limits the cases.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]


def tests(minutes):
    """(summary, failures) of tests/gpu with as many cases of each op as the time allows."""
    lines = []
    for name, cases, share in (("gpu -k 'not ops'", 1, 0.4), ("gpu/test_ops_on_gpu.py", 40, 0.6)):
        environment = {**os.environ, "EDGEWISE_GPU_CASES": str(cases), "PYTHONPATH": "python"}
        command = f"{sys.executable} -m pytest tests/{name} -q -rf -p no:cacheprovider --tb=line"
        try:
            done = subprocess.run(
                command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True,
                timeout=60 * minutes * share,
            )  # fmt: skip
            kept = [
                x for x in done.stdout.split("\n") if re.match(r"FAILED|\d+ (passed|failed)", x)
            ]
            lines += [f"`tests/{name}`:", "", *(f"    {x[:300]}" for x in kept), ""]
        except subprocess.TimeoutExpired:
            lines += [f"`tests/{name}`: not done within {minutes * share:.0f} minutes", ""]
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


def speeds(engine, layers):
    """Rows of a table: a token and a LoRA step of SmolLM2's shape, with counts."""
    from bench import models
    from edgewise import CausalLM
    from edgewise.onnx import BytesSource, read_model
    from edgewise.targets import target_of
    from edgewise.training.language_model import causal_lm_inputs
    from edgewise.training.peft import LoraConfig
    from edgewise.training.program import Program
    from edgewise.training.session import TrainingSession

    rows = []
    data = models.language_model(**{**models.SMOLLM2, "layers": layers}).SerializeToString()
    path = ROOT / ".build/gpu/report.onnx"
    path.write_bytes(data)
    lm = CausalLM(path, capacity=256, engine=engine)
    sequence = lm.open()

    def token():
        if lm.length(sequence) > 250:
            lm.truncate(sequence, 128)
        lm.forward_best(sequence, [7], None)

    lm.forward(sequence, list(range(1, 129)))
    rows.append(("a token, greedy", median(token, 5), lm.plans[0].loaded.info["dispatches"]))

    def prompt():
        lm.truncate(sequence, 0)
        lm.forward(sequence, list(range(1, 129)))

    rows.append(("a prompt of 128", median(prompt, 5), lm.plans[-1].loaded.info["dispatches"]))
    lm.free()
    graph = read_model(BytesSource(data))
    program = Program(
        graph,
        **causal_lm_inputs(graph, 1, 128),
        target=target_of(engine.device),
        lora=LoraConfig(r=8, target_modules="all-linear"),
        trainable=[],
    )
    session = TrainingSession(program, engine)
    import numpy as np

    ids = np.arange(128)[None] + 1
    named = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": ids}
    names = {slot.name for slot in program.plan("train").slots if slot.kind == "input"}
    feeds = {name: x for name, x in named.items() if name in names}
    took = median(lambda: session.train(feeds, 1e-3), 5)
    rows.append(("a LoRA step, 1 x 128", took, session.loaded["train"].info["dispatches"]))
    session.free()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--layers", type=int, default=30, help="of the model that is timed")
    parser.add_argument("--untested", action="store_true", help="only times")
    args = parser.parse_args()
    from gpu.adapters import opened

    engine = opened()
    if isinstance(engine, str):
        sys.exit(f"report: {engine}")
    lines = [f"# {engine.gpu.name}", ""]
    lines += [f"    {name}: {value}" for name, value in sorted(engine.gpu.limits.items())]
    lines += ["", "| SmolLM2-135M's shape | ms | dispatches |", "|---|---|---|"]
    for what, took, dispatches in speeds(engine, args.layers):
        lines.append(f"| {what}, {args.layers} layers | {took:.2f} | {dispatches} |")
    if not args.untested:
        lines += ["", *tests(args.minutes * 0.85)]
    out = ROOT / ".build/gpu/report.md"
    out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"written: {out}")


if __name__ == "__main__":
    main()
