#!/usr/bin/env python3
"""Cases in files: model.onnx, and runs.npz with the inputs `0/x`, `1/x`, .. of each run.

replay.py FOLDER [ENGINE]    runs the case of a folder and says what each run gave
"""

import sys
from pathlib import Path

import numpy as np
import onnx

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2] / "python"), str(Path(__file__).parents[1])]

from fuzz.check import check, references
from fuzz.graph import Run
from fuzz.shrink import shrink


def save(folder, model, runs):
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    arrays = {f"{i}/{name}": x for i, run in enumerate(runs) for name, x in run.feeds.items()}
    arrays |= {f"{i}//names": np.array(run.names) for i, run in enumerate(runs) if run.names}
    np.savez(folder / "runs.npz", **arrays)
    for node in model.graph.node:
        print(onnx.printer.to_text(node))
    print("outputs:", *[o.name for o in model.graph.output])
    for run in runs:
        print("run:", shapes(run))
    print(f"written to {folder}")


def load(folder):
    runs = {}
    with np.load(folder / "runs.npz") as arrays:
        for name in arrays:
            at, _, rest = name.partition("/")
            runs.setdefault(int(at), {})[rest] = arrays[name]
    made = []
    for _, feeds in sorted(runs.items()):
        names = feeds.pop("/names", None)
        made.append(Run(feeds, None if names is None else names.tolist()))
    return onnx.load(folder / "model.onnx"), made


def shapes(run):
    names = f", outputs {run.names}" if run.names else ""
    return f"{ {name: x.shape for name, x in run.feeds.items()} }{names}"


def shrunk(model, runs, engine):
    """The case with fewer nodes and runs, which fails alike."""
    found = check(model, runs, engine)
    if found.kind == "agree":
        return model, runs

    def fails(model, runs):
        wanted = references(model, runs)
        if any(isinstance(want, str) for want in wanted):
            return False
        other = check(model, runs, engine, wanted)
        # A refusal begins with the error's class.
        alike = found.kind in ("differ", "sensitive") or other.text[:12] == found.text[:12]
        return other.kind == found.kind and alike

    return shrink(model, runs, fails)


def main():
    from fuzz.fuzz_graphs import open_engine

    model, runs = load(Path(sys.argv[1]))
    result = check(model, runs, open_engine(*sys.argv[2:3] or ["native"]))
    for run, (kind, text) in zip(runs, result.runs):
        print(shapes(run), kind, text)
    print("the same in new sessions:", result.new)
    return int(result.kind not in ("agree", "sensitive"))


if __name__ == "__main__":
    sys.exit(main())
