"""Runs cases of the benchmark and writes the results.

    python -m tests.bench [CASE ...] [--rounds N] [--seconds N] [--out FOLDER]

Writes results.json, results.md and the plots. If they are written to the repository, the measured
part of docs/benchmarks.md is written too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from . import (
    binding,
    calls,
    classes,
    gpu,
    kernels,
    language,
    networks,
    ops,
    pipelines,
    real,
    start,
    training,
    which_model,
)
from .browser import Bench, say
from .contenders import busy
from .results import report

MODULES = (
    language,
    networks,
    training,
    ops,
    kernels,
    start,
    binding,
    real,
    classes,
    calls,
    pipelines,
    which_model,
    gpu,
)  # modules with CASES and run(bench, cases, rounds, seconds) -> {case: result}, see report.py
CASES = {case: module for module in MODULES for case in module.CASES}


# long: the options of the program and the loop over its cases
def main():
    p = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Speed of Edgewise beside other engines in one Chromium. Cases: "
        + ", ".join(CASES),
    )
    p.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    p.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="how often everything is repeated, in turns (default 5)",
    )
    p.add_argument(
        "--seconds",
        type=float,
        default=45,
        help=(
            "no new round after so long for a format of a language model, a table of networks, or"
            " half of that of the operators; a model that is trained has half of it (default 45)"
        ),
    )
    p.add_argument(
        "--out",
        default=report.HERE,
        help="where results and plots go (default: tests/bench/results)",
    )
    p.add_argument(
        "--rows",
        default="",
        help="of the case pipelines, only rows whose name contains this; nothing is written",
    )
    a = p.parse_args()
    if a.rows and a.cases != ["pipelines"]:
        p.error("--rows is for the case pipelines")
    unknown = set(a.cases) - set(CASES)
    if unknown:
        p.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    begin, path, broken = time.monotonic(), None, []
    with Bench() as bench:
        bench.rows = a.rows
        common = list(bench.trouble)
        for module in MODULES:
            cases = [c for c in module.CASES if c in (a.cases or CASES)]
            if not cases:
                continue
            warning = busy()
            say(f"{' and '.join(cases)} ({warning or 'the machine is quiet'})")
            bench.trouble, before = list(common), os.getloadavg()[0]
            try:
                found = module.run(bench, cases, a.rounds, a.seconds)
            except Exception as e:
                bench.failed(" and ".join(cases), e)
                broken += cases
                continue
            for case in found.values():
                case |= {
                    "load": [before, os.getloadavg()[0]],
                    "trouble": (
                        case.get("trouble", []) + bench.trouble + ([warning] if warning else [])
                    ),
                }
            if not a.rows:
                path = report.write(found, bench.version, a.out)
    if path:
        print("\n" + report.summary(path))
    say(
        f"{time.monotonic() - begin:.0f} s in all"
        + (f"; not measured: {', '.join(broken)}" if broken else "")
        + (f"; {path}" if path else "")
    )
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
