"""Attention as exporters write it, with masks, caches that are fed, and rotations."""

from __future__ import annotations

import numpy as np

from ..graph import MS
from . import tables
from .elementwise import floats


def tokens(g):
    """A value [batch, length, c] of a fixed c that heads can share."""
    return g.pick(
        lambda v: v.rank == 3 and v.size < 12 and g.is_fixed(v.dims[2]) and v.dims[2][0] in (4, 8)
    )


def projected(g, x, c, h):
    """[b, n, c] -> [b, h, n, c / h]"""
    y = g.node("MatMul", [x, g.weight(c, c, scale=c**-0.5)], x.dims, size=3.0, keep=False)
    if g.rng.random() < 0.5:
        y = g.node("Add", [y, g.weight(c, scale=0.3)], x.dims, keep=False)
    d = g.fixed(c // h)
    dims = (*x.dims[:2], g.fixed(h), d)
    if g.rng.random() < 0.5:
        shape = (0, 0, h, c // h)
    else:
        parts = [g.length(x.dims[0]), g.length(x.dims[1]), (h,), (c // h,)]
        if None in parts:
            return None
        shape = g.node("Concat", parts, [g.fixed(4)], "i8", keep=False, axis=0)
    y = g.node("Reshape", [y, shape], dims, keep=False)
    dims = (x.dims[0], g.fixed(h), x.dims[1], d)
    return g.node("Transpose", [y], dims, keep=False, perm=[0, 2, 1, 3])


def rotated(g, x):
    """Rotary positions of [b, h, n, d] by tables that are sliced or gathered."""
    n, d = x.dims[2], x.dims[3][0]
    at = tables.positions(g, n)
    if not at or d % 2:
        return x
    angles = np.arange(tables.LONGEST)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    angles = np.concatenate([angles, angles], 1)
    parts = []
    for f in (np.cos, np.sin):
        table = g.const(f(angles).astype(g.floats), 1.0)
        parts.append(g.node("Gather", [table, at], (n, g.fixed(d)), "f", size=1.0, keep=False))
    half = (*x.dims[:3], g.fixed(d // 2))
    low = g.node("Slice", [x, (0,), (d // 2,), (3,)], half, keep=False)
    high = g.node("Slice", [x, (d // 2,), (1 << 40,), (3,)], half, keep=False)
    high = g.node("Neg", [high], half, keep=False)
    turned = g.node("Concat", [high, low], x.dims, keep=False, axis=-1)
    a = g.node("Mul", [x, parts[0]], x.dims, keep=False)
    b = g.node("Mul", [turned, parts[1]], x.dims, keep=False)
    return g.node("Add", [a, b], x.dims, size=x.size * 2, keep=False)


def with_past(g, x):
    """A cache is fed and concatenated before the keys or values; the result is an output."""
    past = g.input("f", (x.dims[0], x.dims[1], g.dim("m"), x.dims[3]), stem="past")
    total = tuple(map(sum, zip(past.dims[2], x.dims[2])))
    dims = (x.dims[0], x.dims[1], total, x.dims[3])
    return g.node("Concat", [past, x], dims, size=3.0, axis=2)


def masked(g, scores):
    """Causal, of the batch, or none."""
    b, _, rows, columns = scores.dims
    one, how = g.fixed(1), g.rng.randrange(5)
    if how == 0:
        side = tables.LONGEST
        table = g.const(np.triu(np.full((1, 1, side, side), -1e4, g.floats), 1), 1.0)
        dims = (one, one, rows, columns)
        ends = [g.length(rows), g.length(columns)]
        if None in ends:
            return scores
        start = (0, 0)
        if rows != columns and g.rng.random() < 0.7:  # after a past
            gap = g.node("Sub", [ends[1], ends[0]], [one], "i8", keep=False)
            start = g.node("Concat", [gap, (0,)], [g.fixed(2)], "i8", keep=False, axis=0)
            ends[0] = g.node("Add", [gap, ends[0]], [one], "i8", keep=False)
        end = g.node("Concat", ends, [g.fixed(2)], "i8", keep=False, axis=0)
        mask = g.node("Slice", [table, start, end, (2, 3)], dims, keep=False)
        return g.node("Add", [scores, mask], scores.dims, keep=False)
    if how == 1:
        fed = g.pick(lambda v: v.dims == (b, columns), "?")
        if fed is None and g.fits((b, columns)):
            fed = g.input("?", (b, columns), "mask", "mask")
        dims = (b, one, one, columns)
        mask = g.node("Unsqueeze", [fed, (1, 2)], dims, keep=False)
        return g.node("Where", [mask, scores, -1e4], scores.dims, "f", keep=False)
    if how == 2:
        fed = g.pick(lambda v: v.dims == (b, columns), "i8")
        if fed is None:
            fed = g.input("i8", (b, columns), "mask", "mask")
        to = floats(g)
        mask = g.node("Unsqueeze", [fed, (1, 2)], (b, one, one, columns), keep=False)
        mask = g.node("Cast", [mask], mask.dims, "f", 1.0, keep=False, to=to)
        mask = g.node("Sub", [1.0, mask], mask.dims, keep=False)
        mask = g.node("Mul", [mask, -1e4], mask.dims, keep=False)
        return g.node("Add", [scores, mask], scores.dims, keep=False)
    return scores


def decomposed(g):
    """Softmax(q k^T / sqrt(d) + mask) v, with its projections; self or cross attention."""
    x = tokens(g)
    if not x:
        return None
    c = x.dims[2][0]
    h = g.rng.choice((1, 2, 2))
    other = x
    if g.rng.random() < 0.35:
        other = g.pick(lambda v: v.rank == 3 and v.dims[::2] == x.dims[::2]) or x
    if max(x.dims[1]) * max(other.dims[1]) > 1600:
        return None
    q, k, v = projected(g, x, c, h), projected(g, other, c, h), projected(g, other, c, h)
    if None in (q, k, v):
        return None
    if other is x and g.rng.random() < 0.3:
        q, k = rotated(g, q), rotated(g, k)
    if g.rng.random() < 0.3:
        k, v = with_past(g, k), with_past(g, v)
        if k.dims != v.dims:
            return None
    if min(k.dims[2]) < 1 or not g.fits((*q.dims[:3], k.dims[2])):
        return None
    kt = g.node("Transpose", [k], [k.dims[i] for i in (0, 1, 3, 2)], keep=False, perm=[0, 1, 3, 2])
    scale = g.number(np.sqrt(c / h))
    if g.rng.random() < 0.3:
        q = g.node("Div", [q, scale], q.dims, keep=False)
    dims = (*q.dims[:3], k.dims[2])
    scores = g.node("MatMul", [q, kt], dims, size=4.0, keep=False)
    scores = g.node("Div", [scores, scale], dims, keep=False)
    scores = masked(g, scores)
    weights = g.node("Softmax", [scores], dims, size=1.0, keep=g.rng.random() < 0.2, axis=-1)
    y = g.node("MatMul", [weights, v], q.dims, size=3.0, keep=False)
    y = g.node(
        "Transpose", [y], [y.dims[i] for i in (0, 2, 1, 3)], keep=False, perm=[0, 2, 1, 3]
    )  # fmt: skip
    y = g.node("Reshape", [y, (0, 0, c)], x.dims, "f")
    y = g.node("MatMul", [y, g.weight(c, c, scale=c**-0.5)], x.dims, size=3.0)
    if g.rng.random() < 0.6:
        return g.node("Add", [x, y], x.dims, size=x.size + 3)
    return y


def contrib(g):
    """MultiHeadAttention of onnxruntime, with and without a bias of the scores."""
    x = tokens(g)
    if not x or g.floats != np.float32:
        return None
    c = x.dims[2][0]
    other = x
    if g.rng.random() < 0.4:
        other = g.pick(lambda v: v.rank == 3 and v.dims[::2] == x.dims[::2]) or x
    if min(*x.dims[1], *other.dims[1]) < 1 or max(x.dims[1]) * max(other.dims[1]) > 1600:
        return None
    parts = [
        g.node("MatMul", [v, g.weight(c, c, scale=c**-0.5)], v.dims, size=3.0, keep=False)
        for v in (x, other, other)
    ]
    bias = g.weight(3 * c, scale=0.3) if g.rng.random() < 0.5 else None
    return g.node(
        "MultiHeadAttention", [*parts, bias], x.dims, size=3.0, domain=MS, num_heads=2
    )  # fmt: skip


FAMILIES = {"attention": (6, decomposed), "MultiHeadAttention": (1.5, contrib)}
