"""Profiles a network of networks.py in Chromium (web/src/page/profile.ts), with all nodes.

    python -m tests.bench.profile NETWORK [--int8] [--batch N] [--flavour simd128|relaxed-threads]
    [--threads N] [--trace FILE]

`--trace FILE` writes the trace.
"""

from __future__ import annotations

import argparse

from . import networks
from .browser import Bench


def main():
    a = argparse.ArgumentParser(prog="python -m tests.bench.profile")
    a.add_argument(
        "network", choices=sorted({n for c in networks.CASES.values() for n, _, _ in c.values()})
    )
    a.add_argument("--int8", action="store_true")
    a.add_argument("--batch", type=int, default=1)
    a.add_argument("--flavour", default="relaxed-threads")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--ms", type=int, default=1500, help="how long to measure")
    a.add_argument("--trace", help="file for the trace of one run, for https://ui.perfetto.dev")
    a = a.parse_args()
    how = next(h for c in networks.CASES.values() for n, _, h in c.values() if n == a.network)
    file = networks.model_file(a.network, how if a.int8 else None)
    networks.write_run(
        file, networks.feeds(a.network, a.batch), file.with_name(f"{file.stem}-profile")
    )
    with Bench() as bench:
        one = bench.contend(
            "Edgewise",
            "edgewise.js",
            "model",
            [f"/bench/networks/{file.stem}-profile"],
            a.flavour,
            a.threads,
        )
        found = one.call("modelProfile", a.ms)
        trace = one.call("modelTrace") if a.trace else None
    print(found["text"] + "\n")
    for r in found["nodes"]:
        print(
            f"{r['ms'] / r['calls']:8.3f} ms  {r.get('gops') or 0:6.1f} GOP/s "
            f" {r.get('gbs') or 0:5.1f} GB/s  {100 * (r.get('ofLimit') or 0):3.0f} % of"
            f" {r.get('limit') or '?':7s}  {r['kernel']}  {r['node']} ({r['op']})"
        )
    if trace:
        with open(a.trace, "w", encoding="utf-8") as f:
            f.write(trace)


if __name__ == "__main__":
    main()
