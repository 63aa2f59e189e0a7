"""The operator Recurrent: the walk of an LSTM, GRU or RNN through its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT, pack
from ...declare.op import Op
from ...declare.symbolic import Sym

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...declare.annotations import BoundNode, Builder, Dim, Inferred, Value, View


# Inputs: x [steps, batch, directions * gates * hidden], R [directions, gates * hidden, hidden],
# bias of the last gate, initial h, initial c, lengths, peepholes.
# Outputs: y [steps, batch, directions, hidden], last h and last c [directions, batch, hidden],
# gates [steps, batch, directions, (gates + lbr) * hidden], cells [steps, batch, directions,
# hidden].
recurrent = Op("Recurrent", "edgewise")


def sizes_of(x: Value | View, r: Value | View) -> tuple[int, int, int, int]:
    """(steps, batch, directions, hidden)."""
    return x.shape[0], x.shape[1], r.shape[0], r.shape[2]


@recurrent.infer
def recurrent_infer(node: BoundNode) -> Inferred:
    t, b, d, h = sizes_of(*node.inputs[:2])
    return [
        (FLOAT, [t, b, d, h]),
        (FLOAT, [d, b, h]),
        (FLOAT, [d, b, h]),
        (FLOAT, [t, b, d, (node.attrs["gates"] + node.attrs["lbr"]) * h]),
        (FLOAT, [t, b, d, h]),
    ]


def table_view(node: BoundNode, builder: Builder) -> View:
    """The node's activations as an operand."""
    numbers = node.attrs["table"]
    return builder.const_bytes(pack(FLOAT, numbers), FLOAT, [len(numbers)])


def shared_operands(
    node: BoundNode, builder: Builder, r: View, first: int
) -> tuple[dict[str, int], dict[str, View]]:
    """Parameters and operands that both kernels have. first: the input initial h, which initial c,
    lengths and peepholes follow.
    """
    params: dict[str, Any] = {"d": r.shape[0], "h": r.shape[2]}
    params |= {k: node.attrs[k] for k in ("gates", "lbr", "reverse", "coupled")}
    operands = {
        k: builder.contiguous(builder.view(node.inputs[first + i]))
        for i, k in enumerate(("h_first", "c_first", "lengths", "peepholes"))
        if node.has(first + i)
    }
    return params, {**operands, "table": table_view(node, builder)}


def without_steps(builder: Builder, t: Dim, operands: Mapping[str, View | None]) -> bool:
    """Whether there are no steps, t being 0. Then the last states are the first ones: copies them.

    Args:
        operands: h_last and c_last, and h_first and c_first where they are given.
    """
    if isinstance(t, Sym) or t:
        return False
    for last, first in (("h_last", "h_first"), ("c_last", "c_first")):
        to, of = operands[last], operands.get(first)
        assert to is not None
        if of is None:
            builder.fill(to, 0.0)
        else:
            builder.copy(of, to)
    return True


@recurrent.lower
def recurrent_lower(node: BoundNode, builder: Builder) -> None:
    x, r = (
        builder.inner_contiguous(builder.view(node.inputs[0])),
        builder.contiguous(builder.view(node.inputs[1])),
    )
    t, batch, d, h = sizes_of(x, r)
    params, operands = shared_operands(node, builder, r, 3)
    outs = [builder.out(v) if v is not None else None for v in node.outputs] + [None] * (
        5 - len(node.outputs)
    )
    y, h_last, c_last, g, cells = outs
    h_last, c_last = (
        v if v is not None else builder.temp(FLOAT, [d, batch, h]) for v in (h_last, c_last)
    )
    if without_steps(builder, t, {**operands, "h_last": h_last, "c_last": c_last}):
        return
    # A constant R is transposed once, in the init steps.
    panel = builder.target.lowering.recurrent_panel
    panels = panel > 0 and h % panel == 0 and builder.is_constant(r.buffer)
    if panels:
        r = builder.contiguous(
            r.reshape([d, params["gates"] * h // panel, panel, h]).transpose([0, 1, 3, 2])
        )
    slots = (params["gates"] + params["lbr"]) * h
    builder.emit(
        "recurrent",
        {
            "x": x,
            "r": r,
            "bias": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
            **operands,
            "y": y if y is not None else builder.temp(FLOAT, [t, batch, d, h]),
            "h_last": h_last,
            "c_last": c_last,
            "g": g if g is not None else builder.temp(FLOAT, [batch, d, slots]),
            "cells": cells,
        },
        t=t,
        b=batch,
        x_t=x.strides[0] if t > 1 else 0,
        x_b=x.strides[1] if batch > 1 else 0,
        g_t=batch * d * slots if g is not None else 0,
        panels=int(panels),
        **params,
    )
