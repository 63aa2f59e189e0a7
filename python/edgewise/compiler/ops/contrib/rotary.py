"""MRotaryEmbedding: rotary positions of images and videos."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT
from ...declare.op import MS, Op, fail, takes, unsupported
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

multimodal_rotary = Op("MRotaryEmbedding", MS)


@multimodal_rotary.decompose
def multimodal_rotary_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """RotaryEmbedding with tables in which each frequency follows the position in time, height or
    width.
    """
    x, ids, cos, sin = node.inputs
    takes(node, (FLOAT,), 0, 2, 3)
    sections, layout, half = (
        node.attr("mrope_section", []),
        node.attr("mrope_layout", 0),
        cos.shape[-1],
    )
    if (
        len(sections) != 3
        or min(sections) < 0
        or sum(sections) != half
        or layout not in (0, 1)
        or ids.rank != 3
        or ids.shape[0] != 3
        or cos.rank != 2
        or list(sin.shape) != list(cos.shape)
    ):
        fail(node, f"sections of {sections} frequencies do not fit {cos} and {ids}")
    if node.attr("scale", 1.0) != 1.0:
        unsupported(node, "a scale")
    axes = _axes(sections, layout)
    heads = node.attr("num_heads", 0) or (
        x.shape[2] // (node.attr("rotary_embedding_dim", 0) or 2 * half) if x.rank == 3 else 0
    )
    return [
        graph.op(
            "RotaryEmbedding",
            x,
            *(_mixed_table(graph, table, ids, axes) for table in (cos, sin)),
            interleaved=node.attr("interleaved", 0),
            rotary_embedding_dim=node.attr("rotary_embedding_dim", 0),
            **({"num_heads": heads} if x.rank == 3 else {}),
        )
    ]


def _axes(sections: list[int], layout: int) -> list[int]:
    """For each frequency the position that it follows: 0 time, 1 height, 2 width.

    Args:
        sections: how many frequencies follow each.
        layout: 0: one section after the other; 1: interleaved, the rest follows time.
    """
    if not layout:
        return [axis for axis, count in enumerate(sections) for _ in range(count)]
    return [
        next((k for k in (1, 2) if i % 3 == k and i < 3 * sections[k]), 0)
        for i in range(sum(sections))
    ]


def _mixed_table(graph: Binder, table: Value, ids: Value, axes: list[int]) -> Value:
    """Rows of a table at positions ids [3, batch, length], each column at the position of its
    axis: [batch, length, frequencies].
    """
    rows = [
        graph.op(
            "Gather", table, graph.reshape(cut(graph, ids, 0, k, k + 1), [*ids.shape[1:]]), axis=0
        )
        for k in range(3)
    ]
    y = rows[0]
    for k in (1, 2):
        follows = graph.constant(BOOL, [len(axes)], [axis == k for axis in axes])
        y = graph.op("Where", follows, rows[k], y)
    return y
