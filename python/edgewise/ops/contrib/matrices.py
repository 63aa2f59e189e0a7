"""UnfoldTensor and CDist: windows over a dimension, and distances between rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import MS, Op, axis_of, fail, unsupported

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
