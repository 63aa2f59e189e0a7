"""Operators that write states: tensors in slots that keep their contents between runs; and one
that has no gradient.

A state is updated in place; the output is the state with its new value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT8, INT32, INT64, UINT8
from ...declare.op import Op, fail, like, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )


def in_place(node: BoundNode, builder: Builder, i: int = 0, o: int = 0) -> View:
    """The view of the state that is input i, which becomes that of output o, too."""
    if node.inputs[i].role not in ("state", "kept"):
        fail(node, f"{node.inputs[i]} is not a state", "Report this.")
    v = builder.view(node.inputs[i])
    builder.alias(node.outputs[o], v)
    return v


KEPT = (FLOAT, INT64, INT32, INT8, UINT8, BOOL)  # what Assign takes

add_to = Op("AddTo", "edgewise")  # inputs: state, x; state += x
assign = Op("Assign", "edgewise")  # inputs: state, x; state = x


@add_to.infer
@assign.infer
def add_to_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT, INT64) if node.op == "AddTo" else KEPT, 0)
    if node.inputs[0].dtype != node.inputs[1].dtype or list(node.inputs[0].shape) != list(
        node.inputs[1].shape
    ):
        fail(node, f"{node.inputs[1]} is added to {node.inputs[0]}", "Report this.")
    return [like(node, 0)]


@add_to.lower
def add_to_lower(node: BoundNode, builder: Builder) -> None:
    x = builder.view(node.inputs[1])
    y = in_place(node, builder)
    builder.emit_binary("add", y, x, y, y.dtype)


@assign.lower
def assign_lower(node: BoundNode, builder: Builder) -> None:
    x = builder.view(node.inputs[1])
    y = in_place(node, builder)
    if node.inputs[0].role == "kept" and builder.slot_kind(x.buffer) == "cache":
        # Not a copy: its memory may have got its next value before.
        if node.inputs[0] is node.inputs[1]:
            return
        fail(node, f"{node.inputs[1]} is a part of a state, or another one", "Report this model.")
    builder.copy(x, y)


# Input: x; output: x, through which no gradient goes.
stop_gradient = Op("StopGradient", "edgewise")


@stop_gradient.infer
def stop_gradient_infer(node: BoundNode) -> Inferred:
    return [like(node, 0)]


@stop_gradient.lower
def stop_gradient_lower(node: BoundNode, builder: Builder) -> None:
    builder.alias(node.outputs[0], builder.view(node.inputs[0]))


@stop_gradient.grad
def stop_gradient_grad(node: BoundNode, graph: Gradients, dy: Value) -> InputGradients:
    return [None]


# Inputs: a cache, x, which is the cache with more rows along the attribute `axis`; cache = x.
assign_grown = Op("AssignGrown", "edgewise")


@assign_grown.infer
def assign_grown_infer(node: BoundNode) -> Inferred:
    cache, x, axis = *node.inputs, node.attr("axis")
    if x.dtype != cache.dtype or any(
        a != b for i, (a, b) in enumerate(zip(x.shape, cache.shape)) if i != axis
    ):
        fail(node, f"{x} replaces {cache}", "Report this.")
    return [(cache.dtype, x.shape)]


@assign_grown.lower
def assign_grown_lower(node: BoundNode, builder: Builder) -> None:
    cache, x = node.inputs
    v, axis = builder.view(x), node.attr("axis")
    if builder.slot_kind(v.buffer) == "cache":  # its memory may be written before it is read
        fail(node, f"{x} is a part of a state, or another one", "Report this model.")
    old = builder.stored(cache, rows=True)
    if old.bits:  # what is loaded and stored again differs
        unsupported(
            node,
            f"a state that each run writes as a whole, in {old.bits} bits",
            "Keep keys and values as float16 (cache_dtype).",
        )
    y = old.extended(axis, v.shape[axis])
    builder.store(v, y)
    builder.alias(node.outputs[0], y)
