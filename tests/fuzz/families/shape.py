"""Operators that move elements: reshapes, slices, concatenations, gathers, resizes."""

from __future__ import annotations

import numpy as np

FAR = (1 << 31) - 1


def heads(g):
    """[.., h * d] -> [.., h, d], often transposed to [b, h, n, d]."""
    x = g.pick(lambda v: v.rank >= 2 and g.is_fixed(v.dims[-1]) and v.dims[-1][0] in (4, 6, 8, 16))
    if not x:
        return None
    c = x.dims[-1][0]
    h = g.rng.choice([k for k in (2, 3, 4) if c % k == 0])
    dims = (*x.dims[:-1], g.fixed(h), g.fixed(c // h))
    y = reshaped(g, x, dims)
    if y and x.rank == 3 and g.rng.random() < 0.7:
        perm = [0, 2, 1, 3]
        y = g.node("Transpose", [y], [dims[i] for i in perm], perm=perm)
    return y


def reshaped(g, x, dims, keep=True):
    """x with these dimensions, by a shape that is constant or computed."""
    total = min(g.total(x.dims)) > 0
    plain = [d[0] if g.is_fixed(d) else None for d in dims]
    zeros = [0 if i < x.rank and x.dims[i] == d else k for i, (d, k) in enumerate(zip(dims, plain))]
    how = g.rng.random()
    for shape in (plain, zeros) if how < 0.5 else (zeros,):
        if shape.count(None) == (1 if total else 0) and how < 0.75:
            return g.node("Reshape", [x, tuple(-1 if k is None else k for k in shape)], dims)
    if how < 0.75 and total and None not in plain and len(plain) > 1:
        return g.node("Reshape", [x, (-1, *plain[1:])], dims)
    shape = g.shape_of(dims)
    return shape and g.node("Reshape", [x, shape], dims, keep=keep)


def flattened(g):
    """Two neighbouring dimensions become one, or all after an axis."""
    x = g.pick(lambda v: v.rank >= 2)
    if not x:
        return None
    if g.rng.random() < 0.3:
        axis = g.rng.randint(0, x.rank)
        dims = (g.total(x.dims[:axis]), g.total(x.dims[axis:]))
        return g.node("Flatten", [x], dims, axis=axis)
    i = g.rng.randrange(x.rank - 1)
    dims = [*x.dims[:i], g.total(x.dims[i : i + 2]), *x.dims[i + 2 :]]
    if g.rng.random() < 0.5 and min(g.total(x.dims)) > 0 and all(map(g.is_fixed, dims[i + 1 :])):
        shape = (*[0] * i, -1, *[d[0] for d in dims[i + 1 :]])
        return g.node("Reshape", [x, shape], dims)
    lead = [g.length(d) for d in x.dims[i : i + 2]]
    if None in lead:
        return None
    both = g.node("Mul", lead, [g.fixed(1)], "i8", keep=False)
    parts = [g.length(d) for d in dims[:i]] + [both] + [g.length(d) for d in dims[i + 1 :]]
    if None in parts:
        return None
    shape = g.node("Concat", parts, [g.fixed(len(parts))], "i8", keep=False, axis=0)
    return g.node("Reshape", [x, shape], dims)


def transposed(g):
    x = g.pick(lambda v: v.rank >= 2, g.rng.choice("ffff?"))
    if not x:
        return None
    perm = list(range(x.rank))
    g.rng.shuffle(perm)
    return g.node("Transpose", [x], [x.dims[i] for i in perm], perm=perm)


def ranked(g):
    """Unsqueeze or Squeeze."""
    x = g.pick(lambda v: v.rank < 5)
    if not x:
        return None
    ones = [i for i, d in enumerate(x.dims) if d == g.fixed(1)]
    if ones and g.rng.random() < 0.6:
        i = g.rng.choice(ones)
        return g.node("Squeeze", [x, (i,)], x.dims[:i] + x.dims[i + 1 :])
    i = g.rng.randint(0, x.rank)
    if x.rank == 4:
        return None
    return g.node("Unsqueeze", [x, (i,)], (*x.dims[:i], g.fixed(1), *x.dims[i:]))


def cut(g):
    """Slice with constant or computed ends."""
    x = g.pick(lambda v: v.rank >= 1 and max(map(max, v.dims)) > 1)
    if not x:
        return None
    axis = g.rng.randrange(x.rank)
    d = x.dims[axis]
    how, axes = g.rng.randrange(6), (axis - x.rank if g.rng.random() < 0.5 else axis,)
    if how == 0:
        start, end, step = (-1,), (FAR,), (1,)
        dim = tuple(min(v, 1) for v in d)
    elif how == 1:
        k = g.rng.randint(1, 3)
        start, end, step, dim = (0,), (k,), (1,), tuple(min(v, k) for v in d)
    elif how == 2:
        start, end, step, dim = (0,), (FAR,), (2,), tuple((v + 1) // 2 for v in d)
    elif how == 3:
        start, end, step, dim = (-1,), (-FAR,), (-1,), d
    elif how == 4:
        start, end, step, dim = (1,), (FAR,), (1,), tuple(max(v - 1, 0) for v in d)
    else:  # the first half, as long as another dimension
        number = g.length(d)
        if number is None or min(d) < 1:
            return None
        end = g.node("Div", [number, (2,)], [g.fixed(1)], "i8", keep=False)
        start, step, dim = (0,), (1,), tuple(v // 2 for v in d)
    if min(dim) == 0 and min(d) > 0 and g.rng.random() < 0.8:
        return None
    dims = (*x.dims[:axis], dim, *x.dims[axis + 1 :])
    return g.node("Slice", [x, start, end, axes, step], dims)


def joined(g):
    """Concat of two or three values that differ in one dimension at most."""
    x = g.pick(lambda v: v.rank >= 1)
    if not x:
        return None
    axis = g.rng.randrange(x.rank)

    def agrees(v):
        return v.rank == x.rank and all(
            a == b for i, (a, b) in enumerate(zip(v.dims, x.dims)) if i != axis
        )

    others = [g.pick(agrees) or x for _ in range(g.rng.randint(1, 2))]
    fixed = [d[0] if g.is_fixed(d) else 0 for d in x.dims]
    if 0 not in fixed[:axis] + fixed[axis + 1 :] and g.rng.random() < 0.3:
        others[0] = g.weight(*fixed[:axis], 2, *fixed[axis + 1 :])
    parts = [x, *others]
    g.rng.shuffle(parts)
    dims = list(x.dims)
    dims[axis] = tuple(map(sum, zip(*(v.dims[axis] for v in parts))))
    size = max(v.size for v in parts)
    axis -= x.rank if g.rng.random() < 0.4 else 0
    return g.fits(dims) and g.node("Concat", parts, dims, size=size, axis=axis)


def split(g):
    """Split of a fixed dimension; both halves are used."""
    x = g.pick(lambda v: any(g.is_fixed(d) and d[0] >= 2 for d in v.dims))
    if not x:
        return None
    axis = g.rng.choice([i for i, d in enumerate(x.dims) if g.is_fixed(d) and d[0] >= 2])
    k = x.dims[axis][0]
    first = k // 2 if k % 2 == 0 and g.rng.random() < 0.6 else g.rng.randint(1, k - 1)
    dims = [(*x.dims[:axis], g.fixed(s), *x.dims[axis + 1 :]) for s in (first, k - first)]
    if 2 * first == k and g.opset < 18 and g.rng.random() < 0.5:
        return g.many("Split", [x], dims, axis=axis)[0]
    if 2 * first == k and g.opset >= 18 and g.rng.random() < 0.5:
        return g.many("Split", [x], dims, axis=axis, num_outputs=2)[0]
    return g.many("Split", [x, (first, k - first)], dims, axis=axis)[0]


def padded(g):
    """Pad by constants, or up to the largest length."""
    x = g.pick(lambda v: v.rank >= 1 and min(map(min, v.dims)) > 0)
    if not x:
        return None
    axis = g.rng.randrange(x.rank)
    d, low, high = x.dims[axis], g.rng.randint(0, 2), g.rng.randint(0, 2)
    mode = g.rng.choice(("constant", "constant", "edge", "reflect"))
    if mode == "reflect" and max(low, high) >= min(d):
        return None
    if g.rng.random() < 0.35 and mode == "constant":  # to a multiple of 16
        number = g.length(d)
        if number is None:
            return None
        end = tuple(-v % 16 for v in d)
        rest = g.node("Neg", [number], [g.fixed(1)], "i8", keep=False)
        rest = g.node("Mod", [rest, (16,)], [g.fixed(1)], "i8", keep=False)
        before, after = (0,) * (x.rank + axis), (0,) * (x.rank - axis - 1)
        parts = [p for p in (before, rest, after) if p != ()]
        pads = g.node("Concat", parts, [g.fixed(2 * x.rank)], "i8", keep=False, axis=0)
        dim = tuple(map(sum, zip(d, end)))
    else:
        pads = [0] * (2 * x.rank)
        pads[axis], pads[x.rank + axis] = low, high
        pads, dim = tuple(pads), tuple(v + low + high for v in d)
    dims = (*x.dims[:axis], dim, *x.dims[axis + 1 :])
    value = [g.rng.choice((0.0, 1.5, -2.0))] if mode == "constant" else []
    return g.fits(dims) and g.node("Pad", [x, pads, *value], dims, mode=mode)


def tiled(g):
    """Tile by constants or by a length."""
    x = g.pick(lambda v: 1 <= v.rank <= 3)
    if not x:
        return None
    axis = g.rng.randrange(x.rank)
    if g.rng.random() < 0.5:
        times = g.fixed(g.rng.randint(1, 3))
    else:
        times = g.rng.choice([d for v in g.values for d in v.dims] or [g.fixed(2)])
    number = g.length(times)
    dims = list(x.dims)
    dims[axis] = tuple(a * b for a, b in zip(dims[axis], times))
    if number is None or not g.fits(dims):
        return None
    parts = [number if i == axis else (1,) for i in range(x.rank)]
    repeats = g.node("Concat", parts, [g.fixed(x.rank)], "i8", keep=False, axis=0)
    return g.node("Tile", [x, repeats], dims)


def broadcast(g):
    """Expand of a dimension of 1 to a length."""
    x = g.pick(lambda v: g.fixed(1) in v.dims)
    if not x:
        return None
    d = g.rng.choice([d for v in g.values for d in v.dims])
    i = g.rng.choice([i for i, k in enumerate(x.dims) if k == g.fixed(1)])
    dims = (*x.dims[:i], d, *x.dims[i + 1 :])
    shape = g.fits(dims) and g.shape_of(dims)
    return shape and g.node("Expand", [x, shape], dims)


def taken(g):
    """Gather by a constant, by the last position, or by positions backwards."""
    x = g.pick(lambda v: v.rank >= 1 and min(map(min, v.dims)) > 0)
    if not x:
        return None
    axis = g.rng.randrange(x.rank)
    d, how = x.dims[axis], g.rng.randrange(4)
    if how == 0:
        at = g.const(np.array(g.rng.choice((0, -1, min(d) - 1))))
        dims = x.dims[:axis] + x.dims[axis + 1 :]
        return g.node("Gather", [x, at], dims, axis=axis)
    if how == 1:
        at = tuple(g.rng.randrange(-min(d), min(d)) for _ in range(g.rng.randint(1, 3)))
        return g.node(
            "Gather", [x, at], (*x.dims[:axis], g.fixed(len(at)), *x.dims[axis + 1 :]), axis=axis
        )
    number = g.length(d)
    if number is None:
        return None
    last = g.node("Sub", [number, (1,)], [g.fixed(1)], "i8", keep=False)
    if how == 2:
        dims = (*x.dims[:axis], g.fixed(1), *x.dims[axis + 1 :])
        return g.node("Gather", [x, last], dims, axis=axis)
    ends = [g.scalar(last), g.const(np.array(-1)), g.const(np.array(-1))]
    back = g.node("Range", ends, [d], "i8", keep=False)
    return g.node("Gather", [x, back], x.dims, axis=axis)


def scattered(g):
    """ScatterND or ScatterElements into a value or zeros."""
    x = g.pick(lambda v: v.rank >= 2 and min(map(min, v.dims)) > 0)
    if not x:
        return None
    if g.rng.random() < 0.5:
        k = g.rng.randint(1, min(x.dims[0]))
        at = g.const(np.array(g.rng.sample(range(min(x.dims[0])), k), np.int64)[:, None])
        updates = g.node("Slice", [x, (0,), (k,), (0,)], (g.fixed(k), *x.dims[1:]), keep=False)
        updates = g.node("Neg", [updates], updates.dims, keep=False)
        half = g.floats != np.float32
        how = g.rng.choice(("none", "add", "mul")) if g.opset >= 16 and not half else None
        how = {"reduction": how} if how else {}
        return g.node("ScatterND", [x, at, updates], x.dims, size=x.size * 3, **how)
    if g.opset < 16 or g.floats != np.float32:
        return None
    shape = g.node("Shape", [x], [g.fixed(x.rank)], "i8", keep=False)
    zeros = g.node("ConstantOfShape", [shape], x.dims, "f", size=1.0, keep=False)
    index = g.node("ConstantOfShape", [shape], x.dims, "?", keep=False)
    index = g.node("Cast", [index], x.dims, "i8", keep=False, to=7)
    axis = g.rng.randrange(x.rank)
    return g.node(
        "ScatterElements", [zeros, index, x], x.dims, size=x.size * 6, axis=axis, reduction="add"
    )


def gathered_elements(g):
    """GatherElements by what TopK found, or GatherND."""
    x = g.pick(lambda v: v.rank >= 2 and min(map(min, v.dims)) > 0)
    if not x:
        return None
    if g.rng.random() < 0.4:
        at = g.const(np.array([[0], [min(x.dims[0]) - 1]], np.int64))
        return g.node("GatherND", [x, at], (g.fixed(2), *x.dims[1:]))
    axis = g.rng.randrange(x.rank)
    dims = (*x.dims[:axis], g.fixed(1), *x.dims[axis + 1 :])
    found = g.many("TopK", [x, (1,)], [dims, dims], ["f", "i8"], axis=axis, keep=False)[1]
    return g.node("GatherElements", [x, found], dims, axis=axis)


def resized(g):
    """Resize by factors or to computed sizes."""
    x = g.pick(lambda v: v.rank in (3, 4) and min(map(min, v.dims)) > 0)
    if not x:
        return None
    mode = g.rng.choice(("nearest", "linear"))
    how = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if g.rng.random() < 0.4:
        how["coordinate_transformation_mode"] = "half_pixel"
    n = x.rank - 2
    if g.rng.random() < 0.5:
        scale = g.rng.choice((2, 3))
        dims = (*x.dims[:2], *[tuple(v * scale for v in d) for d in x.dims[2:]])
        scales = g.const(np.array([1, 1, *[scale] * n], np.float32))
        return g.fits(dims) and g.node("Resize", [x, None, scales], dims, **how)
    numbers = [g.length(d) for d in x.dims]
    if None in numbers:
        return None
    sizes = [*numbers[:2], *[g.arithmetic("Mul", v, 2) for v in numbers[2:]]]
    dims = (*x.dims[:2], *[tuple(v * 2 for v in d) for d in x.dims[2:]])
    if not g.fits(dims):
        return None
    sizes = g.node("Concat", sizes, [g.fixed(x.rank)], "i8", keep=False, axis=0)
    return g.node("Resize", [x, None, None, sizes], dims, **how)


def nonzero(g):
    """A shape that depends on data: what is greater than something; a sum makes it fixed again."""
    x = g.pick(lambda v: v.rank == 2 and min(map(min, v.dims)) > 0)
    if not x:
        return None
    mask = g.node("Greater", [x, g.number(0.2)], x.dims, "?", keep=False)
    found = g.node("NonZero", [mask], [g.fixed(2), g.fixed(0)], "i8", keep=False)
    at = g.node("Transpose", [found], [g.fixed(0), g.fixed(2)], keep=False, perm=[1, 0])
    some = g.node("GatherND", [x, at], [g.fixed(0)], "f", keep=False)
    more = g.node("Mul", [some, 0.5], [g.fixed(0)], keep=False)
    return g.node("ScatterND", [x, at, more], x.dims, size=x.size)


FAMILIES = {
    "heads": (4, heads), "flattened": (3, flattened), "transposed": (3, transposed),
    "ranked": (2, ranked), "cut": (4, cut), "joined": (4, joined), "split": (2, split),
    "padded": (2, padded), "tiled": (2, tiled), "broadcast": (3, broadcast), "taken": (3, taken),
    "scattered": (2, scattered), "gathered elements": (1, gathered_elements),
    "resized": (1.5, resized), "nonzero": (0.7, nonzero),
}  # fmt: skip
