"""Case `ops`: single operators, compared with other engines and with the limits of the machine."""

from __future__ import annotations

import time

import numpy as np

from . import operators
from .browser import WORK, Contender, say
from .contenders import (
    EDGEWISE,
    JAX,
    NATIVE,
    ONE,
    ORT_ONE,
    ORT_TWO,
    SIMD,
    TF,
    TORCH,
    TWO,
    Limits,
    measure,
    native_session,
)
from .networks import write_run
from .operators import OPS
from .stats import cell, ratio, show

CASES = ("ops",)
SCRIPTS = {
    **dict.fromkeys(EDGEWISE, "edgewise.js"),
    ORT_ONE: "ort.js",
    ORT_TWO: "ort.js",
    TF: "tf-ops.js",
    JAX: "jax-ops.js",
}
SHOWN = (*SCRIPTS, NATIVE, TORCH)
RATIOS = {
    "simd128 : ORT": (SIMD, ORT_ONE),
    "relaxed : ORT": (ONE, ORT_ONE),
    "2 threads : ORT": (TWO, ORT_TWO),
    "relaxed : TensorFlow.js": (ONE, TF),
}
# relative to the largest value; the second if activations may be rounded to int8
TOLERANCE, LEVEL4 = 1e-3, 0.1


# long: the rounds of one case and its report
def run(bench, cases, rounds, seconds):
    folder = WORK / "ops"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {who: Contender(bench, who, script) for who, script in SCRIPTS.items()}
    limits = Limits(bench)
    values, table, shares, versions = {}, [], {}, {}
    end = time.monotonic() + 2 * seconds
    for i, name in enumerate(OPS):
        op, path = OPS[name], folder / f"op{i}"
        _, links = operators.write(name, path)
        x = operators.numbers(op.shape)
        url = [f"/bench/ops/{path.name}", f"/bench/ops/{path.name}.onnx"]
        calls = {ORT_ONE: (url, 1), ORT_TWO: (url, 2)}
        native = {
            NATIVE: lambda: (lambda session: lambda: session.run(None, {"x": x})[0])(
                native_session(path.with_suffix(".onnx"))
            )
        }
        if op.kind != "nbits":
            calls |= {TF: (url, 1), JAX: (url, 1)}
            native[TORCH] = lambda: operators.torch_run(name, links, x)
        try:
            write_run(path.with_suffix(".onnx"), {"x": x}, path)
            calls = {**{who: (url, *how) for who, how in EDGEWISE.items()}, **calls}
        except Exception as e:
            bench.failed(f"Edgewise, {name}", e)

        def differs(y, reference):
            return float(np.max(np.abs(y - reference)) / np.max(np.abs(reference))), (
                LEVEL4 if op.more.get("level") == 4 else TOLERANCE
            )

        times, _, found, _ = measure(
            bench,
            name,
            pages,
            calls,
            native,
            rounds,
            (end - time.monotonic()) / (len(OPS) - i),
            differs,
            80,
            limits,
        )
        versions |= {w: v for w, v in found.items() if v}
        values[name] = times = {who: [t / op.chain for t in ms] for who, ms in times.items()}
        share = ONE in times and limits.share(
            float(np.median(times[ONE])), op.flops, op.bytes, op.dots
        )
        if share:
            shares[name] = {ONE: share}
        ratios = [
            ratio(times.get(b), times.get(a)) for a, b in RATIOS.values()
        ]  # the inverse ratio of times is the ratio of speeds
        table.append(
            [
                name,
                *(cell(times.get(w)) for w in SHOWN),
                *(f"**{r['median']:.2f}×**" if r else "–" for r in ratios),
                f"{100 * share[0]:.0f} % of {share[1]}" if share else "–",
            ]
        )
        say(
            f"  {name}: "
            + ", ".join(f"{w} {show(np.median(t))}" for w, t in times.items())
            + (f" ms; {table[-1][-1]}" if share else " ms")
        )
    note = limits.note()
    limits.close()
    for one in pages.values():
        one.close()
    notes = [
        note,
        "Milliseconds per op. The same for all: a float32 array of the page goes in, one comes out,"
        " copied; between them several of the op in a chain, weights of their own each, so that"
        " copies count little ("
        + ", ".join(f"{n}: {o.chain}" for n, o in OPS.items())
        + "). TensorFlow.js gets images with their channels last, as it wants them.",
        (
            "Last column, of relaxed SIMD with one thread: what the op has to do at least"
            " (arithmetic of the graph; weights, or input and output, moved once) at the machine's"
            " limit that binds, over the time. Attention is counted without its exponentials;"
            " results that stay within a cache can exceed 100 % of memory's speed."
        ),
        (
            f"Results agree within {TOLERANCE:g} of the largest value ({LEVEL4:g} where"
            " accuracy_level 4 lets activations be rounded to int8), or it says so here."
        ),
        (
            "Not comparable: TensorFlow.js, jax-js and PyTorch have no products with 4-bit weights"
            " in blocks."
        ),
    ]
    return {
        "ops": {
            "title": "Single operators",
            "peer": f"onnxruntime-web {versions.get(ORT_ONE)}, TensorFlow.js {versions.get(TF)}",
            "unit": "ms",
            "values": values,
            "shares": shares,
            "columns": ["ms per op", *SHOWN, *RATIOS, "relaxed, of the limit that binds"],
            "table": table,
            "notes": notes,
        }
    }
