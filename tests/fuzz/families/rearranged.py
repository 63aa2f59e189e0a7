"""Further operators that move or choose elements, and sequences."""

from __future__ import annotations

import numpy as np
from onnx import helper

from ..graph import body
from .elementwise import floats


def blocks(g):
    """DepthToSpace or SpaceToDepth."""
    x = g.pick(lambda v: v.rank == 4 and min(map(min, v.dims)) > 0)
    if not x:
        return None
    b, c, h, w = x.dims
    if g.is_fixed(c) and c[0] % 4 == 0 and g.rng.random() < 0.6:
        dims = (b, g.fixed(c[0] // 4), *[tuple(2 * k for k in d) for d in (h, w)])
        mode = g.rng.choice(("DCR", "CRD"))
        return g.fits(dims) and g.node("DepthToSpace", [x], dims, blocksize=2, mode=mode)
    if any(k % 2 for d in (h, w) for k in d):
        return None
    dims = (b, tuple(4 * k for k in c), *[tuple(k // 2 for k in d) for d in (h, w)])
    return g.node("SpaceToDepth", [x], dims, blocksize=2)


def one_hot(g):
    """OneHot of what ArgMax finds."""
    x = g.pick(lambda v: 1 < v.rank <= 3 and min(map(min, v.dims)) > 0)
    if not x or not g.is_fixed(x.dims[-1]) or g.floats != np.float32:
        return None
    at = g.node("ArgMax", [x], x.dims[:-1], "i8", keep=False, axis=-1, keepdims=0)
    values = g.const(np.array([0, 1], g.floats))
    depth = g.const(np.array(x.dims[-1][0]))
    return g.node("OneHot", [at, depth, values], x.dims, "f", size=1.0)


def reversed_rows(g):
    """ReverseSequence by the lengths of a mask, or by a whole length."""
    x = g.pick(lambda v: v.rank >= 2 and min(map(min, v.dims)) > 0)
    if not x or g.floats != np.float32:
        return None
    number = g.length(x.dims[1])
    shape = number and g.length(x.dims[0])
    if not shape:
        return None
    lengths = g.node("Expand", [number, shape], (x.dims[0],), "i8", keep=False)
    return g.node("ReverseSequence", [x, lengths], x.dims, batch_axis=0, time_axis=1)


def compressed(g):
    """Compress by a condition of a length: every second row, or the first ones."""
    x = g.pick(lambda v: v.rank >= 2 and min(map(min, v.dims)) > 0)
    number = x and g.length(x.dims[0])
    if not number:
        return None
    ends = [g.const(np.array(0)), g.scalar(number), g.const(np.array(1))]
    at = g.node("Range", ends, (x.dims[0],), "i8", keep=False)
    odd = g.node("Mod", [at, (2,)], (x.dims[0],), "i8", keep=False)
    keep = g.node("Equal", [odd, (0,)], (x.dims[0],), "?", keep=False)
    dims = (tuple((k + 1) // 2 for k in x.dims[0]), *x.dims[1:])
    return g.node("Compress", [x, keep], dims, axis=0)


def sequence(g):
    """A value is split into a sequence, and put together again."""
    x = g.pick(lambda v: v.rank >= 2 and 0 < min(map(min, v.dims)) and max(v.dims[0]) < 12)
    if not x:
        return None
    parts = g.node(
        "SplitToSequence", [x, g.const(np.array(1))], x.dims, keep=False, axis=0, keepdims=1
    )
    if g.rng.random() < 0.5:
        at = g.const(np.array(g.rng.choice((0, -1))))
        return g.node("SequenceAt", [parts, at], (g.fixed(1), *x.dims[1:]))
    return g.node("ConcatFromSequence", [parts], x.dims, axis=0)


def rows_in_a_loop(g):
    """Loop that takes a row of a value in each round, and a row of a table."""
    x = g.pick(lambda v: v.rank == 2 and 0 < min(map(min, v.dims)) and max(v.dims[0]) < 12)
    if not x or not g.is_fixed(x.dims[1]):
        return None
    number = g.length(x.dims[0])
    if number is None:
        return None
    c = x.dims[1][0]
    table, start = g.weight(48, c), g.weight(c)
    g.used.update((x.name, table.name))
    i, go, h, went, row, other, s, y, out = (
        g.fresh(k) for k in ("i", "go", "h", "went", "row", "other", "s", "y", "out")
    )
    nodes = [
        helper.make_node("Identity", [go], [went]),
        helper.make_node("Gather", [x.name, i], [row], axis=0),
        helper.make_node("Gather", [table.name, i], [other], axis=0),
        helper.make_node("Add", [row, other], [s]),
        helper.make_node("Add", [s, h], [out]),
        helper.make_node("Tanh", [out], [y]),
    ]
    inner = body(
        "body",
        nodes,
        [(i, np.int64, []), (go, np.bool_, []), (h, g.floats, [c])],
        [(went, np.bool_, []), (y, g.floats, [c]), (out, g.floats, [c])],
    )
    true = g.const(np.array(True))
    outs = g.many(
        "Loop",
        [g.scalar(number), true, start],
        [(g.fixed(c),), x.dims],
        ["f", "f"],
        6.0,
        body=inner,
    )
    return outs[1]


def growing(g):
    """Loop whose carried value grows by a row in each round, as generated tokens do."""
    x = g.pick(lambda v: v.rank == 2 and 0 < min(map(min, v.dims)) and max(v.dims[1]) < 12)
    if not x or not g.fits((tuple(k + 3 for k in x.dims[0]), x.dims[1])):
        return None
    last = g.const(np.array([-1]))
    g.used.add(last.name)
    i, go, h, went, row, y, more = (
        g.fresh(k) for k in ("i", "go", "h", "went", "row", "y", "more")
    )
    nodes = [
        helper.make_node("Identity", [go], [went]),
        helper.make_node("Gather", [h, last.name], [row], axis=0),
        helper.make_node("Sin", [row], [y]),
        helper.make_node("Concat", [h, y], [more], axis=0),
    ]
    inner = body(
        "body",
        nodes,
        [(i, np.int64, []), (go, np.bool_, []), (h, g.floats, None)],
        [(went, np.bool_, []), (more, g.floats, None)],
    )
    times = g.rng.randint(1, 3)
    dims = (tuple(k + times for k in x.dims[0]), x.dims[1])
    inputs = [g.const(np.array(times)), g.const(np.array(True)), x]
    return g.node("Loop", inputs, dims, "f", size=x.size + 1, body=inner)


def picture_bytes(g):
    """Bytes of pictures as inputs: cast, scaled and normalized."""
    if any(v.dtype == "u1" for v, _ in g.inputs):
        return None
    dims = (g.dim("b"), g.dim("n"), g.dim("m"), g.fixed(3))
    if min(map(min, dims)) < 1 or not g.fits(dims):
        return None
    x = g.input("u1", dims, 256, "picture")
    y = g.node("Cast", [x], dims, "f", size=255.0, to=floats(g), keep=False)
    y = g.node("Div", [y, 255.0], dims, size=1.0, keep=False)
    y = g.node("Sub", [y, g.weight(3)], dims, size=3.0, keep=False)
    return g.node("Transpose", [y], [dims[i] for i in (0, 3, 1, 2)], perm=[0, 3, 1, 2])


FAMILIES = {
    "blocks": (1, blocks), "one hot": (1, one_hot), "reversed": (1, reversed_rows),
    "compressed": (1, compressed), "sequence": (0.8, sequence), "rows": (1, rows_in_a_loop),
    "growing": (0.7, growing), "picture": (1, picture_bytes),
}  # fmt: skip
