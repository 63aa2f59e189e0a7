"""Operators that write states: tensors in slots that keep their contents between runs.

A state is updated in place; the output is the state with its new value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import Op, fail, like, takes

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, Inferred, View


def in_place(node: BoundNode, builder: Builder, i: int = 0, o: int = 0) -> View:
    """The view of the state that is input i, which becomes that of output o, too."""
    if node.inputs[i].role not in ("state", "kept"):
        fail(node, f"{node.inputs[i]} is not a state", "Report this.")
    v = builder.view(node.inputs[i])
    builder.alias(node.outputs[o], v)
    return v


KEPT = (FLOAT, INT64, INT32, BOOL)  # what Assign takes

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
