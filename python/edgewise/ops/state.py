"""States: tensors that live in slots from run to run. These ops write them where they lie; their output is the state with its new value."""
from __future__ import annotations

from .dtypes import FLOAT, INT64
from .op import Op, fail, like, takes


def in_place(n, b, i=0, o=0):
    """The view of state input i, which is also output o's."""
    if n.inputs[i].role != "state":
        fail(n, f"{n.inputs[i]} is no state", "Report this.")
    v = b.view(n.inputs[i])
    b.alias(n.outputs[o], v)
    return v


add_to = Op("AddTo", "edgewise")  # (state, x): state += x
assign = Op("Assign", "edgewise")  # (state, x): state = x


@add_to.infer
@assign.infer
def _(n):
    takes(n, (FLOAT, INT64), 0)
    if n.inputs[0].dtype != n.inputs[1].dtype or list(n.inputs[0].shape) != list(n.inputs[1].shape):
        fail(n, f"{n.inputs[1]} is added to {n.inputs[0]}", "Report this.")
    return [like(n, 0)]


@add_to.lower
def _(n, b):
    x = b.view(n.inputs[1])
    y = in_place(n, b)
    b.emit_binary("add", y, x, y, y.dtype)


@assign.lower
def _(n, b):
    x = b.view(n.inputs[1])
    b.copy(x, in_place(n, b))
