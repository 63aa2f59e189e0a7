"""Random numbers that follow from a seed: Dropout, and what parameters begin as.

`seed` is an int64 [1] that the host chooses for each run, `stream` a number that no other node of the plan has: together with an element's place they
say its number, so that the backward part recomputes a mask instead of keeping it, and every machine draws the same (core/kernels/random.c).
"""
from __future__ import annotations

from .kernel import Kernel, read, write

Kernel("random", {"n": "i32", "stream": "i32", "threshold": "i32", "scale": "f32", "offset": "f32"},
       [read("x", 4, "n", optional=True), read("seed", 8, "1"), write("y", 4, "n", inplace=["x"])], empty=["n"],
       doc="y = random 32 bits >= threshold (unsigned) ? x * scale : 0; without x: uniform numbers of [offset, offset + scale).")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
from .dtypes import BOOL, FLOAT, INT64
from .op import Op, fail, like, product, takes

active = Op("Dropout", "edgewise")  # (x, seed); ratio, stream: x / (1 - ratio), or 0 with probability `ratio`
uniform = Op("RandomUniform", "edgewise")  # (seed); shape, low, high, stream: uniform in [low, high)


@active.infer
def _(n):
    takes(n, (FLOAT,), 0)
    takes(n, (INT64,), 1)
    if not 0.0 <= n.attr("ratio", 0.5) < 1.0:
        fail(n, f"its ratio is {n.attr('ratio')}", "It is a probability below 1.")
    return [like(n, 0)]


def _emit(b, x, seed, y, stream, threshold=0, scale=1.0, offset=0.0):
    b.emit("random", {"x": x, "seed": seed, "y": y}, n=product(y.shape), stream=stream, threshold=threshold - (1 << 32) * (threshold >= 1 << 31), scale=scale, offset=offset)


@active.lower
def _(n, b):
    ratio = float(n.attr("ratio", 0.5))
    _emit(b, b.contiguous(b.view(n.inputs[0])), b.view(n.inputs[1]), b.out(n.outputs[0]), n.attr("stream", 0), min(round(ratio * (1 << 32)), (1 << 32) - 1), 1.0 / (1.0 - ratio))


@active.grad
def _(n, g, dy):
    return [g.op("Dropout", dy, n.inputs[1], domain="edgewise", **n.attrs), None]


@uniform.infer
def _(n):
    takes(n, (INT64,), 0)
    return [(FLOAT, n.attr("shape"))]


@uniform.lower
def _(n, b):
    low = float(n.attr("low", 0.0))
    _emit(b, None, b.view(n.inputs[0]), b.out(n.outputs[0]), n.attr("stream", 0), scale=float(n.attr("high", 1.0)) - low, offset=low)


dropout = Op("Dropout")


@dropout.decompose
def _(n, b):
    """Active where the graph is bound for training (`bind`'s `training`), unless the node says training_mode = false; else, whatever the node says, it passes its input on."""
    x, ratio = n.inputs[0], n.attr("ratio", 0.5)
    if n.has(1):
        ratio = float(n.need(1)[0])
    off = ratio == 0.0 or n.has(2) and not n.need(2)[0]
    stream = None if off else b.random_stream()
    if stream is not None:
        seed, number = stream
        def drop(v):
            return b.op("Dropout", v, seed, domain="edgewise", ratio=float(ratio), stream=number)
        y = drop(x)
    else:
        y = x
    if not n.wants(1):
        return [y, None][:len(n.outputs)]
    dims = b.constant(INT64, [x.rank], list(x.shape))
    ones = b.op("Expand", b.constant(FLOAT, [], [1.0]), dims)
    return [y, b.op("Cast", drop(ones) if stream is not None else ones, to=BOOL)]


@dropout.cases
def _(t):
    yield t(t.f(2, 3), outputs=2)
    yield t(t.f(2, 3), 0.5, t.of("bool", False), outputs=2)
    yield t(t.f(2, 3), opset=7, ratio=0.5)
    yield t(t.f(0, 3), outputs=2)
