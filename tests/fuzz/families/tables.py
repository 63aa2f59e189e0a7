"""What depends on constants and lengths alone: tables sliced to a length, expanded to a batch,
gathered by positions; masks; tables of rotations.
"""

from __future__ import annotations

import numpy as np

LONGEST = 48  # rows of a table: more than any length


def lengthy(g, most=LONGEST):
    """A dimension that varies, of some value; rarely one that does not."""
    dims = {d for v in g.values for d in v.dims if max(d) <= most}
    if not dims:
        return None
    varying = sorted(d for d in dims if not g.is_fixed(d))
    return g.rng.choice(varying if varying and g.rng.random() < 0.95 else sorted(dims))


def width(g):
    """A fixed dimension that values have, so that they can be added."""
    found = sorted({d[0] for v in g.values for d in v.dims[-1:] if g.is_fixed(d) and d[0] > 1})
    return g.rng.choice(found or [4])


def sliced(g):
    """table[:n], or [k:n + k] or [-n:]."""
    d = lengthy(g, LONGEST - 4)
    end = d and g.length(d)
    if not end:
        return None
    lead = g.rng.choice(((), (1,), (1, 1)))
    table = g.weight(*lead, LONGEST, width(g))
    axis, start, how = len(lead), (0,), g.rng.random()
    if how < 0.2:
        k = g.rng.randint(1, 3)
        start, end = (k,), g.arithmetic("Add", end, k)
    elif how < 0.35 and min(d) > 0:
        start, end = g.node("Neg", [end], (g.fixed(1),), "i8", keep=False), (1 << 30,)
    step = [(1,)] if g.rng.random() < 0.7 else []
    dims = (*table.dims[:axis], d, table.dims[-1])
    out = g.node("Slice", [table, start, end, (axis,), *step], dims)
    return out


def expanded(g):
    """Learned queries or a token of a class, for each of the batch."""
    d = lengthy(g)
    if not d:
        return None
    rows, c = g.rng.choice(((1, width(g)), (3, width(g)), (5, 4), (4, 8)))
    lead = (1,) if g.rng.random() < 0.8 else ()
    table = g.weight(*lead, rows, c)
    dims = (d, g.fixed(rows), g.fixed(c))
    if g.rng.random() < 0.25 and lead:
        one = g.length(d)
        repeats = one and g.node("Concat", [one, (1, 1)], [g.fixed(3)], "i8", keep=False, axis=0)
        return repeats and g.node("Tile", [table, repeats], dims)
    shape = g.shape_of(dims)
    return shape and g.node("Expand", [table, shape], dims)


def positions(g, d):
    """int64 [d]: 0, 1, 2, .. in one of the ways of exporters."""
    number = g.length(d)
    if not number:
        return None
    how = g.rng.randrange(4)
    if how == 0:
        end = g.scalar(number)
        zero, one = (g.const(np.array(k, np.int64)) for k in (0, 1))
        return g.node("Range", [zero, end, one], (d,), "i8", size=LONGEST)
    if how == 1:
        buffer = g.const(np.arange(LONGEST))
        return g.node("Slice", [buffer, (0,), number, (0,)], (d,), "i8", size=LONGEST)
    value = np.ones(1, np.int64)
    from onnx import numpy_helper

    ones = g.node(
        "ConstantOfShape", [number], (d,), "i8", 1, keep=False, value=numpy_helper.from_array(value)
    )
    if how == 2:
        sums = g.node("CumSum", [ones, g.const(np.array(0, np.int64))], (d,), "i8", LONGEST)
        return g.node("Sub", [sums, (1,)], (d,), "i8", keep=False)
    return g.node(
        "CumSum", [ones, g.const(np.array(0))], (d,), "i8", LONGEST, exclusive=1
    )  # fmt: skip


def gathered(g):
    """table[positions], often expanded to the batch before."""
    d = lengthy(g, LONGEST - 4)
    at = d and min(d) > 0 and positions(g, d)
    if not at:
        return None
    dims = (d,)
    if g.rng.random() < 0.4:
        at = g.node("Add", [at, (g.rng.randint(1, 3),)], dims, "i8", keep=False)
    if g.rng.random() < 0.6:
        batch = lengthy(g)
        if g.rng.random() < 0.5:
            at = g.node("Unsqueeze", [at, (0,)], (g.fixed(1), d), "i8", keep=False)
            dims = (g.fixed(1), d)
        shape = g.shape_of((batch, d))
        if shape and g.fits((batch, d)):
            at = g.node("Expand", [at, shape], (batch, d), "i8")
            dims = (batch, d)
    c = width(g)
    if not g.fits((*dims, g.fixed(c))):
        return None
    return g.node("Gather", [g.weight(LONGEST, c), at], (*dims, g.fixed(c)), "f", size=3.0, axis=0)


def embedded(g):
    """Rows of a table for ids that are fed."""
    ids = g.pick(lambda v: any(v is i for i, kind in g.inputs if isinstance(kind, int)), "i8")
    if not ids:
        return None
    c = width(g)
    dims = (*ids.dims, g.fixed(c))
    return g.fits(dims) and g.node("Gather", [g.weight(16, c), ids], dims, "f", size=3.0)


def mask_of_table(g):
    """A causal mask: a square constant sliced to two lengths; added or chosen by."""
    rows, columns = lengthy(g, LONGEST - 4), lengthy(g, LONGEST - 4)
    if not rows:
        return None
    a, b = g.length(rows), g.length(columns)
    if not a or not b:
        return None
    as_bool = g.rng.random() < 0.4
    table = np.tril(np.ones((1, 1, LONGEST, LONGEST), bool))
    if not as_bool:
        table = np.where(table, 0, -1e4).astype(g.floats)
    table = g.const(table, 1.0)
    one = g.fixed(1)
    if g.rng.random() < 0.5:
        part = g.node("Slice", [table, (0,), a, (2,)], (one, one, rows, table.dims[3]), keep=False)
        out = g.node("Slice", [part, (0,), b, (3,)], (one, one, rows, columns))
    else:
        ends = g.node("Concat", [a, b], [g.fixed(2)], "i8", keep=False, axis=0)
        out = g.node("Slice", [table, (0, 0), ends, (2, 3)], (one, one, rows, columns))
    return use_mask(g, out)


def use_mask(g, mask):
    """Lets a value with these last two dimensions be masked, if there is one."""
    x = g.pick(lambda v: v.rank >= 2 and v.dims[-2:] == mask.dims[-2:] and v is not mask)
    if not x:
        return mask
    dims = g.broadcast(x.dims, mask.dims)
    if not dims or not g.fits(dims):
        return mask
    if mask.dtype == "?":
        y = g.node("Where", [mask, x, -1e4], dims, "f", size=x.size, keep=False)
    else:
        y = g.node("Add", [x, mask], dims, size=x.size, keep=False)
    return g.node("Softmax", [y], dims, size=1.0, axis=-1)


def mask_of_positions(g):
    """A causal mask of two ranges, or of a fed mask of the batch."""
    rows, columns = lengthy(g), lengthy(g)
    if not rows:
        return None
    a, b = positions(g, rows), positions(g, columns)
    if not a or not b:
        return None
    one = g.fixed(1)
    a = g.node("Unsqueeze", [a, (1,)], (rows, one), "i8", keep=False)
    b = g.node("Unsqueeze", [b, (0,)], (one, columns), "i8", keep=False)
    op = g.rng.choice(("LessOrEqual", "Less", "GreaterOrEqual"))
    mask = g.node(op, [b, a], (rows, columns), "?")
    fed = g.pick(lambda v: v.rank == 2 and v.dims[1] == columns, "?")
    if fed and g.rng.random() < 0.7:
        d = (fed.dims[0], one, one, columns)
        y = g.node("Unsqueeze", [fed, (1, 2)], d, keep=False)
        mask = g.node("And", [y, mask], (fed.dims[0], one, rows, columns), "?")
    return use_mask(g, mask)


def triangle(g):
    """Trilu of a ConstantOfShape."""
    rows, columns = lengthy(g), lengthy(g)
    shape = rows and g.opset >= 14 and g.shape_of((rows, columns))
    if not shape:
        return None
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([-1e4], g.floats))
    full = g.node(
        "ConstantOfShape", [shape], (rows, columns), "f", 1.0, keep=False, value=value
    )  # fmt: skip
    upper = g.node("Trilu", [full, g.const(np.array(1))], (rows, columns), size=1.0, upper=1)
    return use_mask(g, upper)


def computed(g):
    """A table goes through other operators before anything is fed into it."""
    table = sliced(g) if g.rng.random() < 0.5 else expanded(g)
    if not table:
        return None
    how = g.rng.randrange(4)
    if how == 0:
        c = table.dims[-1][0]
        return g.node("MatMul", [table, g.weight(c, c, scale=c**-0.5)], table.dims)
    if how == 1 and min(map(min, table.dims)) > 0:
        return g.node("Softmax", [table], table.dims, size=1.0, axis=g.rng.choice((-1, -2)))
    if how == 2:
        perm = [*range(table.rank - 2), table.rank - 1, table.rank - 2]
        return g.node("Transpose", [table], [table.dims[i] for i in perm], perm=perm)
    return g.node("Tanh", [table], table.dims, size=1.0)


FAMILIES = {
    "sliced": (5, sliced), "expanded": (5, expanded), "gathered": (5, gathered),
    "embedded": (3, embedded), "mask of table": (4, mask_of_table),
    "mask of positions": (3, mask_of_positions), "triangle": (2, triangle),
    "computed": (4, computed),
}  # fmt: skip
