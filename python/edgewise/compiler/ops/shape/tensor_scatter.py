"""TensorScatter: new keys or values written into a cache, at an index of each row of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import Op, axis_of, fail, product
from ..attention.attention_kernel import shaped

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

tensor_scatter = Op("TensorScatter")  # opset 24; past_cache, update, write_indices


@tensor_scatter.decompose
def tensor_scatter_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """ScatterND into [batch, dimensions before the axis, places, dimensions after it]."""
    cache, update = node.inputs[:2]
    axis, mode = axis_of(node, node.attr("axis", -2), cache.rank), node.attr("mode", "linear")
    if (
        axis == 0
        or update.rank != cache.rank
        or update.dtype != cache.dtype
        or any(d != e for i, (d, e) in enumerate(zip(cache.shape, update.shape)) if i != axis)
    ):
        fail(node, f"the update {update} does not fit {cache} along axis {axis}")
    if mode not in ("linear", "circular"):
        fail(node, f"its mode is {mode!r}, not 'linear' or 'circular'", "Export the model again.")
    shaped(node, 2, "write_indices", cache.shape[0])
    batch, before, places, after, count = (
        cache.shape[0],
        product(cache.shape[1:axis]),
        cache.shape[axis],
        product(cache.shape[axis + 1 :]),
        update.shape[axis],
    )
    if count > places:
        fail(node, f"{count} new places do not fit into {places}")

    def spread(v: Value) -> Value:
        return graph.op("Expand", v, graph.constant(INT64, [4], [batch, before, count, 1]))

    place = graph.constant(INT64, [1, 1, count, 1], range(count))
    if node.has(2):
        place = graph.op("Add", graph.reshape(node.inputs[2], [batch, 1, 1, 1]), place)
        if mode == "circular":
            place = graph.op("Mod", place, graph.constant(INT64, [], [places]))
    index = graph.op(
        "Concat",
        spread(graph.constant(INT64, [batch, 1, 1, 1], range(batch))),
        spread(graph.constant(INT64, [1, before, 1, 1], range(before))),
        spread(place),
        axis=3,
    )
    return [
        graph.reshape(
            graph.op(
                "ScatterND",
                graph.reshape(cache, [batch, before, places, after]),
                index,
                graph.reshape(update, [batch, before, count, after]),
            ),
            [*cache.shape],
        )
    ]
