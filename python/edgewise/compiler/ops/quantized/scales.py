"""Layouts of scales and zero points: one number, one along an axis, or one for each block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import Dim, axis_of, fail, one_number, product, same_shape

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, Gradients, Graph, Value, View


def scale_layout(node: BoundNode) -> tuple[Dim, Dim, Dim, int]:
    """How the kernels read the scales of input 0: (outer, axis, inner, block).

    The tensor is [outer, axis, inner]; every `block` elements along the axis share a scale; 0: each
    index of the axis has one; -1: all elements share one.

    Raises:
        ModelError: scales or zero points do not fit the tensor.
    """
    x, scale = node.inputs[0], node.inputs[1]
    if node.has(2) and not same_shape(node.inputs[2].shape, scale.shape):
        fail(node, f"zero point {node.inputs[2]} does not fit scale {scale}")
    block = node.attr("block_size", 0)
    if one_number(scale.shape) and not block:
        return 1, 1, product(x.shape), -1
    axis = axis_of(node, node.attr("axis", 1), x.rank)
    expected = (
        [-(-d // block) if i == axis else d for i, d in enumerate(x.shape)]
        if block
        else [x.shape[axis]]
    )
    if list(scale.shape) != expected:
        fail(node, f"scale {scale} does not fit {x}: {expected} is expected")
    return product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :]), block


def per_element(graph: Graph, node: BoundNode, v: Value) -> Value:
    """A scale or zero point of a node in a shape that broadcasts to its input 0."""
    x, (outer, axis, inner, block) = node.inputs[0], scale_layout(node)

    def ints(values: Sequence[Dim]) -> Value:
        return graph.constant(INT64, [len(values)], values)

    def reshape(v: Value, shape: Sequence[Dim]) -> Value:
        return (
            v if list(v.shape) == list(shape) else graph.op("Reshape", v, ints(shape), allowzero=1)
        )

    if block < 0:
        return reshape(v, [])
    at = axis_of(node, node.attr("axis", 1), x.rank)
    if not block:
        return reshape(v, [axis] + [1] * (x.rank - at - 1))
    blocks = -(-axis // block)
    v = graph.op(
        "Expand", reshape(v, [outer, blocks, 1, inner]), ints([outer, blocks, block, inner])
    )
    v = graph.op(
        "Slice", reshape(v, [outer, blocks * block, inner]), ints([0]), ints([axis]), ints([1])
    )
    return reshape(v, x.shape)


def dense_input(builder: Builder, v: View, block: int) -> tuple[View, list[int]]:
    """A view without gaps, and the order of its dimensions in memory; if all elements share a
    scale, any order will do.
    """
    return builder.dense(v) if block < 0 else (builder.contiguous(v), list(range(len(v.shape))))


def sum_to_scale(graph: Gradients, node: BoundNode, d: Value) -> Value:
    """The gradient of a node's scale from the gradient of the scales of its elements."""
    x, scale, (outer, axis, inner, block) = node.inputs[0], node.inputs[1], scale_layout(node)
    if block <= 0:
        shape = (
            []
            if block < 0
            else [axis] + [1] * (x.rank - axis_of(node, node.attr("axis", 1), x.rank) - 1)
        )
        return graph.reshape(graph.sum_to(d, shape), scale.shape)
    blocks = -(-axis // block)
    d = graph.op(
        "Pad",
        graph.reshape(d, [outer, axis, inner]),
        graph.ints([0, 0, 0, 0, blocks * block - axis, 0]),
    )
    return graph.reshape(
        graph.op(
            "ReduceSum",
            graph.reshape(d, [outer, blocks, block, inner]),
            graph.ints([2]),
            keepdims=0,
        ),
        scale.shape,
    )
