"""Norms, softmax and reductions."""

from __future__ import annotations

import numpy as np

from ..graph import MS
from .elementwise import floats

REDUCTIONS = ("Mean", "Sum", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp")


def full(v):
    return min(map(min, v.dims), default=1) > 0


def with_width(g):
    return g.pick(
        lambda v: v.rank >= 2 and full(v) and g.is_fixed(v.dims[-1]) and v.dims[-1][0] > 1
    )


def mean(g, x, axes, keepdims=1):
    dims = [d for i, d in enumerate(x.dims) if i - x.rank not in axes]
    if keepdims:
        dims = [g.fixed(1) if i - x.rank in axes else d for i, d in enumerate(x.dims)]
    return reduce(g, "ReduceMean", x, axes, dims, keepdims)


def reduce(g, op, x, axes, dims, keepdims, size=None):
    if g.opset >= (13 if op == "ReduceSum" else 18):
        return g.node(op, [x, tuple(axes)], dims, size=size, keepdims=keepdims)
    return g.node(op, [x], dims, size=size, axes=list(axes), keepdims=keepdims)


def layer_norm(g):
    """LayerNormalization or RMSNorm, decomposed or not."""
    x = with_width(g)
    if not x:
        return None
    c = x.dims[-1][0]
    scale, how = g.weight(c, positive=True), g.rng.randrange(5)
    if how == 0 and g.opset >= 17:
        bias = [g.weight(c)] * g.rng.randint(0, 1)
        return g.node("LayerNormalization", [x, scale, *bias], x.dims, size=4.0, axis=-1)
    if how == 1:
        other = g.pick(lambda v: v.dims == x.dims)
        if other and x.rank == 3:
            inputs = [x, other, scale, g.weight(c)]
            return g.node("SkipLayerNormalization", inputs, x.dims, size=4.0, domain=MS)
        return g.node(
            "SimplifiedLayerNormalization", [x, scale], x.dims, size=4.0, axis=-1, epsilon=1e-5
        )
    y = x
    if how < 4:
        y = g.node("Sub", [x, mean(g, x, (-1,))], x.dims, keep=False)
    square = g.node("Pow", [y, 2.0], x.dims, size=y.size**2, keep=False)
    variance = mean(g, square, (-1,))
    one = variance.dims
    variance = g.node("Add", [variance, 1e-3], one, keep=False)
    root = g.node("Sqrt", [variance], one, size=3.0, keep=False)
    y = g.node("Div", [y, root], x.dims, size=4.0, keep=False)
    y = g.node("Mul", [y, scale][:: g.rng.choice((1, -1))], x.dims, size=4.0)
    return g.node("Add", [y, g.weight(c)], x.dims, size=6.0) if g.rng.random() < 0.5 else y


def channel_norm(g):
    x = g.pick(lambda v: v.rank >= 3 and full(v) and g.is_fixed(v.dims[1]))
    if not x:
        return None
    c = x.dims[1][0]
    how = g.rng.randrange(3)
    if how == 0:
        inputs = [
            x, g.weight(c, positive=True), g.weight(c), g.weight(c), g.weight(c, positive=True)
        ]  # fmt: skip
        return g.node("BatchNormalization", inputs, x.dims, size=x.size * 3 + 3)
    if how == 1:
        inputs = [x, g.weight(c, positive=True), g.weight(c)]
        return g.node("InstanceNormalization", inputs, x.dims, size=6.0, epsilon=1e-2)
    if g.opset < 21:
        return None
    groups = g.rng.choice([k for k in (1, 2, c) if c % k == 0])
    inputs = [x, g.weight(c, positive=True), g.weight(c)]
    return g.node(
        "GroupNormalization", inputs, x.dims, size=6.0, num_groups=groups, epsilon=1e-2
    )  # fmt: skip


def softmax(g):
    x = g.pick(lambda v: v.rank >= 1 and full(v) and v.size < 100)
    if not x:
        return None
    op = g.rng.choice(("Softmax", "Softmax", "LogSoftmax"))
    axis = g.rng.choice((-1, -1, *range(-x.rank, x.rank)))
    return g.node(op, [x], x.dims, size=1.0 if op == "Softmax" else 10.0, axis=axis)


def reduction(g):
    x = g.pick(lambda v: v.rank >= 1 and full(v) and v.size < 30)
    if not x:
        return None
    axes = sorted(g.rng.sample(range(-x.rank, 0), g.rng.randint(1, min(2, x.rank))))
    kind, keep = g.rng.choice(REDUCTIONS), g.rng.randint(0, 1)
    dims = [d for i, d in enumerate(x.dims) if i - x.rank not in axes]
    if keep:
        dims = [g.fixed(1) if i - x.rank in axes else d for i, d in enumerate(x.dims)]
    size = x.size if kind in ("Mean", "Max", "Min", "LogSumExp") else x.size * 10
    if g.rng.random() < 0.12:
        axis = axes[0]
        dims = [d for i, d in enumerate(x.dims) if i - x.rank != axis]
        op = g.rng.choice(("ArgMax", "ArgMin"))
        return g.node(op, [x], dims, "i8", size=40, axis=axis, keepdims=0)
    return reduce(g, "Reduce" + kind, x, axes, dims, keep, size)


def pooled(g):
    """The mean over a length, weighted by a mask: of sentences."""
    mask = g.pick(lambda v: v.rank == 2 and full(v), g.rng.choice(("?", "i8")))
    x = mask and g.pick(lambda v: v.rank == 3 and v.dims[:2] == mask.dims)
    if not x:
        return None
    to = floats(g)
    one = (*mask.dims, g.fixed(1))
    m = g.node("Unsqueeze", [mask, (-1,)], one, keep=False)
    m = g.node("Cast", [m], one, "f", size=1.0, keep=False, to=to)
    y = g.node("Mul", [x, m], x.dims, size=x.size, keep=False)
    dims = (x.dims[0], x.dims[2])
    y = reduce(g, "ReduceSum", y, (1,), dims, 0, x.size * 6)
    count = reduce(g, "ReduceSum", m, (1,), (x.dims[0], g.fixed(1)), 0, 9.0)
    count = g.node("Clip", [count, 1.0], count.dims, keep=False)
    return g.node("Div", [y, count], dims, size=x.size)


def top(g):
    """TopK of a constant or of half of a length."""
    x = g.pick(lambda v: v.rank >= 1 and full(v))
    if not x:
        return None
    axis = g.rng.randrange(x.rank)
    d = x.dims[axis]
    if g.rng.random() < 0.5:
        k = g.rng.randint(1, min(d))
        number, dim = (k,), g.fixed(k)
    else:
        number, dim = g.length(d), d
        if number is None:
            return None
        if g.rng.random() < 0.5:
            dim = tuple((v + 1) // 2 for v in d)
            number = g.node("Add", [number, (1,)], (g.fixed(1),), "i8", keep=False)
            number = g.node("Div", [number, (2,)], (g.fixed(1),), "i8", keep=False)
    dims = (*x.dims[:axis], dim, *x.dims[axis + 1 :])
    largest = g.rng.randint(0, 1)
    out = g.many("TopK", [x, number], [dims, dims], ["f", "i8"], x.size, axis=axis, largest=largest)
    out[1].size = 50
    return out[0]


def sums(g):
    x = g.pick(lambda v: v.rank >= 1 and full(v) and v.size < 20)
    if not x or g.floats != np.float32:
        return None
    axis = g.const(np.array(g.rng.randrange(-x.rank, x.rank)))
    flags = {"exclusive": g.rng.randint(0, 1), "reverse": g.rng.randint(0, 1)}
    return g.node("CumSum", [x, axis], x.dims, size=x.size * 6, **flags)


FAMILIES = {
    "layer norm": (5, layer_norm), "channel norm": (2, channel_norm), "softmax": (3, softmax),
    "reduction": (4, reduction), "pooled": (2, pooled), "top": (2, top), "sums": (2, sums),
}  # fmt: skip
