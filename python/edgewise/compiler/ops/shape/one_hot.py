"""OneHot and Hardmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64, UINT64
from ...declare.op import Op, axis_of, fail

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


one_hot = Op("OneHot")


@one_hot.decompose
def one_hot_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Where(index == class, on, off); an index outside of [-depth, depth) is off everywhere."""
    i, values = node.inputs[0], node.inputs[2]
    (depth,) = node.need(1)
    depth, axis = int(depth), axis_of(node, node.attr("axis", -1), i.rank + 1)
    if depth < 0 or list(values.shape) != [2]:
        fail(node, f"a depth of {depth}, values {values}")
    unsigned, i = i.dtype == UINT64, graph.op("Cast", i, to=INT64)
    if not unsigned:  # the upper half of uint64 becomes negative, which no class equals
        i = graph.op(
            "Where",
            graph.op("Less", i, graph.constant(INT64, [], [0])),
            graph.op("Add", i, graph.constant(INT64, [], [depth])),
            i,
        )
    i = graph.op("Unsqueeze", i, graph.constant(INT64, [1], [axis]))
    classes = graph.op(
        "Reshape",
        graph.op("Range", *(graph.constant(INT64, [], [x]) for x in (0, depth, 1))),
        graph.constant(INT64, [i.rank - axis], [depth] + [1] * (i.rank - axis - 1)),
        allowzero=1,
    )
    off, on = (graph.op("Gather", values, graph.constant(INT64, [], [k])) for k in (0, 1))
    return [graph.op("Where", graph.op("Equal", i, classes), on, off)]


hardmax = Op("Hardmax")


@hardmax.decompose
def hardmax_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """1 at the first maximum along the axis, else 0; before opset 13, all dimensions from the axis
    on are one.
    """
    x, old = node.inputs[0], node.opset < 13
    axis = axis_of(node, node.attr("axis", 1 if old else -1), x.rank)
    flat = graph.op("Flatten", x, axis=axis) if old else x
    axis = 1 if old else axis
    d = flat.shape[axis]
    classes = graph.op(
        "Reshape",
        graph.op("Range", *(graph.constant(INT64, [], [i]) for i in (0, d, 1))),
        graph.constant(INT64, [flat.rank - axis], [d] + [1] * (flat.rank - axis - 1)),
        allowzero=1,
    )
    y = graph.op(
        "Cast", graph.op("Equal", graph.op("ArgMax", flat, axis=axis), classes), to=x.dtype
    )
    return [graph.op("Reshape", y, graph.constant(INT64, [x.rank], x.shape), allowzero=1)]
