"""python -m tests.bench [CASE ...] [--rounds N] [--seconds N] [--out FOLDER]: measures and writes results.md and results.json."""
from __future__ import annotations

import argparse
import os
import sys
import time

from . import binding, language, networks, ops, report, start, training
from .browser import Bench, say

CASES = (*language.CASES, "start", "bind", "ops", "vision", "encoder", "train")


def main():
    p = argparse.ArgumentParser(prog="python -m tests.bench", description="Speed of Edgewise beside other engines in one Chromium. Cases: " + ", ".join(CASES))
    p.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    p.add_argument("--rounds", type=int, default=7, help="how often everything is repeated, in turns (default 7)")
    p.add_argument("--seconds", type=float, default=170, help="no new round of a case after so long (default 170)")
    p.add_argument("--out", default=report.HERE, help="where results.md and results.json go")
    a = p.parse_args()
    unknown = set(a.cases) - set(CASES)
    if unknown:
        p.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    wanted = a.cases or CASES
    begin = time.monotonic()
    broken = False
    with Bench() as bench:
        common = list(bench.trouble)
        for group, run in ((tuple(language.CASES), language.run), (("start",), start.run), (("bind",), binding.run), (("ops",), ops.run), (("vision",), networks.run), (("encoder",), networks.run), (("train",), training.run)):
            cases = [c for c in group if c in wanted]
            if not cases:
                continue
            say(f"{' and '.join(cases)} (load average {os.getloadavg()[0]:.1f})")
            bench.trouble = list(common)
            before = os.getloadavg()[0]
            try:
                found = run(bench, cases, a.rounds, a.seconds)
            except Exception as e:
                bench.failed(" and ".join(cases), e)
                broken = True
                continue
            for case in found.values():
                case |= {"load": [before, os.getloadavg()[0]], "trouble": case.get("trouble", []) + bench.trouble}
            path = report.write(found, bench.version, a.out)
    if not broken or "path" in locals():
        print("\n" + path.read_text())
    say(f"{time.monotonic() - begin:.0f} s in all")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
