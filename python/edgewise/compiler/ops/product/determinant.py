"""Det, composed of operators that have gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, fail, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

LARGEST = 128  # rows; each adds a dozen nodes

det = Op("Det")


def rows_of_square(node: BoundNode, matrix: Value) -> int:
    """The number of rows of a matrix that is square."""
    if matrix.rank < 2 or matrix.shape[-1] != matrix.shape[-2]:
        fail(node, f"{matrix} is not a square matrix")
    return matrix.shape[-1]


@det.decompose
def det_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Gaussian elimination with partial pivoting: the row of the largest pivot is exchanged with
    the first one; the rest is a matrix with one row and one column less.
    """
    takes(node, (FLOAT, DOUBLE), 0)
    a = node.inputs[0]
    size = rows_of_square(node, a)
    if size > LARGEST:
        unsupported(node, f"the determinant of a matrix of {size} rows")
    lead = a.shape[:-2]
    rows, columns = len(lead), len(lead) + 1
    zero, one = (graph.constant(a.dtype, [], [v]) for v in (0.0, 1.0))

    def part(v: Value, axis: int, first: int, end: int) -> Value:
        return graph.op("Slice", v, *(graph.constant(INT64, [1], [i]) for i in (first, end, axis)))

    y = graph.op("Expand", one, graph.constant(INT64, [len(lead) + 2], [*lead, 1, 1]))
    for left in range(size, 0, -1):
        column = part(a, columns, 0, 1)
        chosen = graph.op("Cast", graph.op("Hardmax", graph.op("Abs", column), axis=rows), to=9)
        row = graph.op(
            "ReduceSum",
            graph.op("Where", chosen, a, zero),
            graph.constant(INT64, [1], [rows]),
            keepdims=1,
        )
        pivot = part(row, columns, 0, 1)
        y = graph.op(
            "Mul", y, graph.op("Where", part(chosen, rows, 0, 1), pivot, graph.op("Neg", pivot))
        )
        if left > 1:
            a = part(graph.op("Where", chosen, part(a, rows, 0, 1), a), rows, 1, left)
            share = graph.op(
                "Div",
                part(a, columns, 0, 1),
                graph.op("Where", graph.op("Equal", pivot, zero), one, pivot),
            )
            a = graph.op(
                "Sub",
                part(a, columns, 1, left),
                graph.op("Mul", share, part(row, columns, 1, left)),
            )
    return [graph.op("Reshape", y, graph.constant(INT64, [len(lead)], lead), allowzero=1)]
