"""python -m tests.bench.profile NETWORK [--int8] [--batch N] [--flavour simd128|relaxed-threads] [--threads N]: where the time of a network of networks.py goes, step by step, in Chromium.

A step's time is the least of several runs; with its multiply-adds, where it has any, comes GFLOP/s."""
from __future__ import annotations

import argparse
import struct
from collections import defaultdict

from . import networks
from .browser import Bench


def parameters(plan):
    """Of each step after the init steps: {parameter: number or list}."""
    from edgewise.ops.kernel import KERNELS
    from edgewise.plan.plan import HEADER, STEP
    at, out = HEADER.unpack_from(plan.data)[12], []
    for name in plan.kernels:
        size = STEP.unpack_from(plan.data, at)[5]
        p, where = {}, at + STEP.size
        for field, kind in KERNELS[name].params.items():
            base, _, count = kind.partition("[")
            numbers = struct.unpack_from(f"<{int(count[:-1] or 1) if count else 1}{'f' if base == 'f32' else 'i'}", plan.data, where)
            where += 4 * len(numbers)
            p[field] = list(numbers) if count else numbers[0]
        out.append(p)
        at += size
    return out[plan.init_count:]


def product(numbers):
    n = 1
    for x in numbers:
        n *= x
    return n


def work(kernel, p):
    """(floating-point operations, words that tell the size)"""
    if kernel == "gemm":
        return 2 * p["batch0"] * p["batch1"] * p["m"] * p["n"] * p["k"], f"{p['batch0'] * p['batch1']} × {p['m']}×{p['n']}×{p['k']}"
    if kernel == "conv":
        n = p["batch"] * p["groups"] * p["m"] * p["c"] * product(p["y_size"]) * product(p["taps"])
        return 2 * n, f"{p['groups']} groups {p['c']}→{p['m']}, {'×'.join(map(str, p['taps'][1:]))} / {p['stride'][2]}, {'×'.join(map(str, p['y_size'][1:]))}"
    if kernel == "attention":
        return 2 * p["batch"] * p["heads"] * p["q_len"] * p["kv_len"] * (p["head_dim"] + p["v_dim"]), f"{p['batch']} × {p['heads']} heads, {p['q_len']} × {p['kv_len']} × {p['head_dim']}"
    return 0, " ".join(str(p[k]) for k in ("dims", "rows", "cols", "planes", "y_size", "m", "n", "k") if k in p)


def main():
    a = argparse.ArgumentParser(prog="python -m tests.bench.profile")
    a.add_argument("network", choices=sorted({n for c in networks.CASES.values() for n, _, _ in c.values()}))
    a.add_argument("--int8", action="store_true")
    a.add_argument("--batch", type=int, default=1)
    a.add_argument("--flavour", default="relaxed-threads")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--ms", type=int, default=1500, help="how long to measure")
    a = a.parse_args()
    how = next(h for c in networks.CASES.values() for n, _, h in c.values() if n == a.network)
    file = networks.model_file(a.network, how if a.int8 else None)
    plan = networks.write_run(file, networks.feeds(a.network, a.batch), file.with_name(f"{file.stem}-profile"))
    with Bench() as bench:
        one = bench.contend("Edgewise", "edgewise.js", "model", [f"/bench/networks/{file.stem}-profile"], a.flavour, a.threads)
        whole = min(one.call("modelTimes", a.ms))
        ms = one.call("modelSteps", len(plan.kernels) - plan.init_count, a.ms)
    kinds = defaultdict(lambda: [0, 0.0, 0])
    print("    ms  GFLOP/s  kernel")
    for t, kernel, label, p in zip(ms, plan.kernels[plan.init_count:], plan.labels[plan.init_count:], parameters(plan)):
        flops, size = work(kernel, p)
        for i, x in enumerate((1, t, flops)):
            kinds[kernel][i] += x
        print(f"{t:6.3f}  {flops / t / 1e6 if t else 0:7.1f}  {kernel} {size}   {label}")
    print(f"\nwhole run {whole:.1f} ms, steps {sum(ms):.1f} ms")
    for kernel, (count, t, flops) in sorted(kinds.items(), key=lambda k: -k[1][1]):
        print(f"{t:8.2f} ms {100 * t / sum(ms):5.1f} %  {count:4} × {kernel}" + (f", {flops / t / 1e6:.1f} GFLOP/s" if flops and t else ""))


if __name__ == "__main__":
    main()
