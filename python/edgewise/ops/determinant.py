"""Det: a composition, so that it has a gradient."""
from __future__ import annotations

from .dtypes import DOUBLE, FLOAT, INT64
from .op import Op, fail, takes, unsupported

LARGEST = 128  # rows: each is a dozen nodes

det = Op("Det")


@det.decompose
def _(n, g):
    """Gaussian elimination with partial pivoting: the row of the largest pivot changes places with the first, and what is left is a matrix of one row and column less."""
    takes(n, (FLOAT, DOUBLE), 0)
    a = n.inputs[0]
    size = a.shape[-1] if a.rank >= 2 else None
    if size is None or a.shape[-2] != size:
        fail(n, f"{a} is no square matrix")
    if size > LARGEST:
        unsupported(n, f"the determinant of a matrix of {size} rows")
    lead = a.shape[:-2]
    rows, columns = len(lead), len(lead) + 1
    zero, one = (g.constant(a.dtype, [], [v]) for v in (0.0, 1.0))

    def part(v, axis, first, end):
        return g.op("Slice", v, *(g.constant(INT64, [1], [i]) for i in (first, end, axis)))
    y = g.op("Expand", one, g.constant(INT64, [len(lead) + 2], [*lead, 1, 1]))
    for left in range(size, 0, -1):
        column = part(a, columns, 0, 1)
        chosen = g.op("Cast", g.op("Hardmax", g.op("Abs", column), axis=rows), to=9)
        row = g.op("ReduceSum", g.op("Where", chosen, a, zero), g.constant(INT64, [1], [rows]), keepdims=1)
        pivot = part(row, columns, 0, 1)
        y = g.op("Mul", y, g.op("Where", part(chosen, rows, 0, 1), pivot, g.op("Neg", pivot)))
        if left > 1:
            a = part(g.op("Where", chosen, part(a, rows, 0, 1), a), rows, 1, left)
            share = g.op("Div", part(a, columns, 0, 1), g.op("Where", g.op("Equal", pivot, zero), one, pivot))
            a = g.op("Sub", part(a, columns, 1, left), g.op("Mul", share, part(row, columns, 1, left)))
    return [g.op("Reshape", y, g.constant(INT64, [len(lead)], lead), allowzero=1)]


@det.cases
def _(t):
    for shape in ((1, 1), (2, 2), (3, 3), (2, 3, 4, 4), (7, 7), (20, 20)):
        yield t(t.f(*shape), tol=1e-4)
    yield t(t.of("float32", [[0, 1, 2], [0, 3, 4], [0, 5, 6]]))
    yield t(t.of("float32", [[0, 2, 1], [3, 0, 0], [0, 1, 5]]))
    yield t(t.f(0, 3, 3), trust="onnx", why="onnxruntime gives 1 or nothing")
    yield t(t.f(3, 3, dtype="float64"), opset=11)
