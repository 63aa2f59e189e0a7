#!/usr/bin/env python3
"""Random graphs of common operators, each in one session over several shapes, against onnxruntime
without optimizations.

    fuzz_graphs.py [--runs N] [--first N] [--seconds T] [--seed S] [--jobs J] [--engine E]
                   [--form F] [--log FILE] [--only CASE [--shrink]]

A case depends only on its number and the seed: `--only 1234 --seed S` repeats it, `--shrink` makes
it smaller and writes it to .build/fuzz. `replay.py FOLDER` runs what is written there. Findings are
other numbers than the reference's (beyond what changes of its inputs by rounding errors explain), a
damaged plan, an exception that is no EdgewiseError, a crash and a hang. What Edgewise refuses alone
is counted and listed. With --log, outcomes are appended to a file of JSON lines, and a campaign
goes on after what the file has.
"""

import argparse
import collections
import json
import os
import re
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests")]
FOLDER = ROOT / ".build/fuzz"
ENGINES = ("native", "wasm", "gpu")
BAD = ("differ", "damaged")


def open_engine(name):
    if name == "native":
        from edgewise.engine.native import NativeEngine

        return NativeEngine(threads=1)
    if name == "wasm":
        from engines.node_engine import NodeEngine

        return NodeEngine("simd128")
    from gpu.adapters import opened

    engine = opened(serial=True)
    if isinstance(engine, str):
        raise SystemExit(engine)
    return engine


def run_case(number, seed, form, engine, say=lambda library: None):
    """What a campaign records of a case: {"kind", "text", "runs", "recorded", ..}."""
    from fuzz.check import check, references
    from fuzz.generate import generate

    case = generate(number, seed, form)
    say("onnxruntime")
    wanted = references(case.model, case.runs)
    say("edgewise")
    result = check(case.model, case.runs, engine, wanted)
    kinds = dict(collections.Counter(kind for kind, _ in result.runs))
    line = {"kind": result.kind, "text": result.text, "runs": kinds, "recorded": result.recorded}
    line |= {"form": case.form, "families": case.families, "new": result.new}
    if result.kind in BAD:
        line |= {"kind": "FINDING", "what": result.kind}
        line["text"] += f"; new sessions: {result.new}; families: {', '.join(case.families)}"
    return line


def worker(a):
    """Runs cases a.first, a.first + a.step, ... and prints JSON lines."""

    def say(**line):
        print(json.dumps(line), flush=True)

    engine = open_engine(a.engine)
    for number in range(a.first, a.runs, a.step):
        say(start=number)
        try:
            line = run_case(number, a.seed, a.form, engine, lambda library: say(inside=library))
        except Exception:  # noqa: BLE001 - an exception of a session is a finding
            line = {"kind": "FINDING", "what": "exception", "text": traceback.format_exc(limit=-6)}
        if line["kind"] == "FINDING":
            line["text"] += f"\n    repeat: {command(a, number)} --shrink"
        say(end=number, **line)
        if a.engine == "wasm" and engine.process.poll() is not None:
            engine = open_engine(a.engine)


def command(a, number):
    form = f" --form {a.form}" * bool(a.form)
    path = HERE.relative_to(ROOT)
    return f"python {path} --only {number} --seed {a.seed} --engine {a.engine}{form}"


def graphs_campaign(runs, first=0, seconds=None, seed=0, jobs=1, engine="native", form=None, **how):
    """Runs the cases in child processes; returns (Counter of kinds, [findings])."""
    from hostile.fuzz_onnx import campaign

    extra = ["--engine", engine, *(["--form", form] if form else [])]
    paths = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests")])
    env = {"PYTHONPATH": paths}
    return campaign(
        runs, seconds, seed, jobs, script=HERE, extra=extra, env=env, first=first, **how
    )


def done(path, first):
    """The first number of a case that a log lacks."""
    seen = set()
    if path and Path(path).exists():
        for line in Path(path).read_text().splitlines():
            seen.add(json.loads(line)["end"])
    while first in seen:
        first += 1
    return first


def summary(lines):
    """Counts of graphs and runs, and what was refused, with numbers of cases."""
    graphs, runs, recorded = collections.Counter(), collections.Counter(), 0
    refused = collections.defaultdict(list)
    for line in lines:
        graphs[line.get("what", line["kind"])] += 1
        runs.update(line.get("runs", {}))
        recorded += line.get("recorded", 0)
        if line["kind"] == "only edgewise refuses":
            refused[re.sub(r"[\d.]+", "#", line["text"])[:160]].append(line["end"])
    out = [f"{sum(graphs.values())} graphs: {counted(graphs)}"]
    out.append(f"{sum(runs.values())} runs, {recorded} of them recorded: {counted(runs)}")
    for text, cases in sorted(refused.items(), key=lambda x: -len(x[1])):
        out.append(f"{len(cases)} refused by Edgewise alone, as {cases[:3]}: {text}")
    return "\n".join(out)


def counted(counter):
    return ", ".join(f"{k} {v}" for k, v in counter.most_common())


def only(a):
    """Repeats one case, here."""
    from fuzz.generate import generate
    from fuzz.replay import save, shrunk

    engine = open_engine(a.engine)
    print(json.dumps(run_case(a.only, a.seed, a.form, engine), indent=1))
    case = generate(a.only, a.seed, a.form)
    model, runs = shrunk(case.model, case.runs, engine) if a.shrink else (case.model, case.runs)
    print(f"lengths of the runs: {case.lengths}")
    save(FOLDER / f"{a.engine}-{a.seed}-{a.only}", model, runs)
    return 0


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--runs", type=int, default=10000, help="the last case is the one before")
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--seconds", type=float)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--engine", choices=ENGINES, default="native")
    p.add_argument("--form", choices=("float32", "float16", "float64", "int8"))
    p.add_argument("--log", help="file of JSON lines to append outcomes to")
    p.add_argument("--only", type=int, help="run this case, here, and say what it gave")
    p.add_argument("--shrink", action="store_true", help="make it smaller")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker or a.only is not None:
        return worker(a) if a.worker else only(a)
    lines, log = [], open(a.log, "a") if a.log else None

    def each(line):
        lines.append(line)
        if log:
            print(json.dumps(line), file=log, flush=True)

    first = done(a.log, a.first)
    _, findings = graphs_campaign(
        a.runs,
        first,
        a.seconds,
        a.seed,
        a.jobs,
        a.engine,
        a.form,
        each=each,
        say=lambda text: print(text, flush=True),
    )
    print(summary(lines))
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
