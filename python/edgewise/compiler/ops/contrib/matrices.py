"""UnfoldTensor, Inverse and CDist: windows over a dimension, and matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import MS, Op, axis_of, fail, product, takes, unsupported
from ..product.determinant import rows_of_square
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

unfold = Op("UnfoldTensor", MS)


@unfold.decompose
def unfold_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Windows of `size` elements, `step` apart, along `dim`; the elements of a window become the
    last dimension (torch.Tensor.unfold).
    """
    x, size, step = node.inputs[0], node.attr("size", -1), node.attr("step", 1)
    axis = axis_of(node, node.attr("dim", -1), x.rank)
    if not 0 < size <= x.shape[axis] or step < 1:
        fail(node, f"slices of {size}, {step} apart, of {x}")
    count = (x.shape[axis] - size) // step + 1
    index = [i * step + j for i in range(count) for j in range(size)]
    y = graph.op("Gather", x, graph.constant(INT64, [count, size], index), axis=axis)
    return [
        graph.op("Transpose", y, perm=[*range(axis + 1), *range(axis + 2, x.rank + 1), axis + 1])
    ]


LARGEST = 64  # rows; each adds ten nodes

inverse = Op("Inverse", MS)


@inverse.decompose
def inverse_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Gauss-Jordan elimination with partial pivoting of the matrix beside the identity."""
    takes(node, (FLOAT, DOUBLE), 0)
    x = node.inputs[0]
    size = rows_of_square(node, x)
    if size > LARGEST:
        unsupported(node, f"the inverse of a matrix of {size} rows")
    batch = product(x.shape[:-2])
    identity = [float(i == j) for i in range(size) for j in range(size)]
    right = graph.op(
        "Expand",
        graph.constant(x.dtype, [1, size, size], identity),
        graph.ints([batch, size, size]),
    )
    a = graph.op("Concat", graph.reshape(x, [batch, size, size]), right, axis=2)
    rows = graph.constant(INT64, [1, size, 1], range(size))
    zero, below = (graph.constant(x.dtype, [], [v]) for v in (0.0, -1.0))
    for k in range(size):
        column, here = cut(graph, a, 2, k, k + 1), graph.ints([k])
        free = graph.op("Where", graph.op("Less", rows, here), below, graph.op("Abs", column))
        chosen = graph.op("Equal", rows, graph.op("ArgMax", free, axis=1, keepdims=1))
        pivot_row = graph.op(
            "ReduceSum", graph.op("Where", chosen, a, zero), graph.ints([1]), keepdims=1
        )
        a = graph.op("Where", chosen, cut(graph, a, 1, k, k + 1), a)  # the rows change places
        pivot_row = graph.op("Div", pivot_row, cut(graph, pivot_row, 2, k, k + 1))
        rest = graph.op("Sub", a, graph.op("Mul", cut(graph, a, 2, k, k + 1), pivot_row))
        a = graph.op("Where", graph.op("Equal", rows, here), pivot_row, rest)
    return [graph.reshape(cut(graph, a, 2, size, 2 * size), [*x.shape])]


distances = Op("CDist", MS)


@distances.decompose
def distances_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The distance of each row of A from each row of B."""
    a, b = node.inputs
    name = node.attr("metric", "sqeuclidean")
    if (
        name not in ("euclidean", "sqeuclidean")
        or a.rank != 2
        or b.rank != 2
        or a.shape[1] != b.shape[1]
    ):
        unsupported(node, f"the distance {name!r} of {a} and {b}")
    d = graph.op(
        "Sub", graph.op("Unsqueeze", a, graph.ints([1])), graph.op("Unsqueeze", b, graph.ints([0]))
    )
    y = graph.op("ReduceSum", graph.op("Mul", d, d), graph.ints([2]), keepdims=0)
    return [graph.op("Sqrt", y) if name == "euclidean" else y]
