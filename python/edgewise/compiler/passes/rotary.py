"""Recognises rotary position embedding: x * cos + concat(-x2, x1) * sin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..declare.symbolic import Sym
from ..ir import BoundNode, Value
from ..ops.shape.movement import slice_ranges
from .rewrite import Rewriter, number, op_of

if TYPE_CHECKING:
    from ..bind import BoundGraph


def fuse_rotary(bound: BoundGraph) -> None:
    """x * cos + concat(-x[half:], x[:half]) * sin becomes Rope, with the first halves of the
    tables: [batch or 1, sequence, half].
    """
    r = Rewriter(bound)
    halves: dict[int, Value] = {}
    for add in r.nodes("Add"):
        _match(r, add, halves)
    r.done()


def lay_out_rotations(bound: BoundGraph) -> None:
    """A rotation that is only read with heads after the sequence is stored in this order, so that
    what follows the Transpose copies nothing: the gradients of projections.
    """
    r = Rewriter(bound)
    for rope in r.nodes("Rope"):
        user = r.only_user(rope.outputs[0])
        if user is not None and user.op == "Transpose" and user.attr("perm") == [0, 2, 1, 3]:
            rope.attrs = {**rope.attrs, "order": [0, 2, 1, 3]}
    r.done()


def _match(r: Rewriter, add: BoundNode, halves: dict[int, Value]) -> None:
    muls = [v.producer for v in add.inputs]
    if any(m is None or m.op != "Mul" for m in muls):
        return
    for straight, rotation in (muls, muls[::-1]):
        for i in (0, 1):
            rotated, sin = rotation.inputs[i], rotation.inputs[1 - i]
            if op_of(rotated) != "Concat":
                continue
            x = _rotated_half(rotated.producer)
            if x is None or x not in straight.inputs:
                continue
            cos = straight.inputs[0] if straight.inputs[1] is x else straight.inputs[1]
            if x.rank != 4 or not _same_halves(cos) or not _same_halves(sin):
                return
            tables = [_half(r, add, v, x, halves) for v in (cos, sin)]
            if None not in tables:
                r.become(add, "Rope", "edgewise", [x, *tables])
            return


def _rotated_half(concat: BoundNode) -> Value | None:
    """x, where a node computes concat(-x[half:], x[:half]) along the last axis; else None."""
    if len(concat.inputs) != 2 or concat.attr("axis") not in (-1, concat.outputs[0].rank - 1):
        return None
    neg, low = concat.inputs
    if op_of(neg) != "Neg":
        return None
    high = neg.producer.inputs[0].producer
    low = low.producer
    if high is None or low is None:
        return None
    half = concat.outputs[0].shape[-1] // 2
    if high.op == low.op == "Slice" and high.inputs[0] is low.inputs[0]:
        x = high.inputs[0]
        if x.shape[-1] == 2 * half and _span(low) == (0, half) and _span(high) == (half, half):
            return x
    if (
        high is low
        and high.op == "Split"
        and high.inputs[0].shape[-1] == 2 * half
        and high.outputs[0] is concat.inputs[1]
        and high.outputs[1] is neg.producer.inputs[0]
    ):
        return high.inputs[0]
    return None


def _span(node: BoundNode) -> tuple[int | Sym, int | Sym] | None:
    """(start, length) of a Slice along the last axis only; None of others."""
    ranges = [x for x in slice_ranges(node) if x[2] != node.inputs[0].shape[x[0]]]
    if len(ranges) != 1 or ranges[0][0] != node.inputs[0].rank - 1 or ranges[0][3] != 1:
        return None
    return ranges[0][1], ranges[0][2]


def _same_halves(v: Value) -> bool:
    """Whether both halves of the last axis are equal: concat(f, f), followed by elementwise ops of
    one input.
    """
    for _ in range(8):
        n = v.producer
        if n is None:
            return False
        if n.op == "Concat":
            return (
                len(n.inputs) == 2
                and n.inputs[0] is n.inputs[1]
                and n.attr("axis") in (-1, v.rank - 1)
            )
        if n.op in ("Cos", "Sin", "Unsqueeze", "Cast", "Neg"):
            if n.op == "Unsqueeze" and n.inputs[0].shape[-1:] != v.shape[-1:]:
                return False
            v = n.inputs[0]
        elif n.op == "Mul" and any(number(i) is not None for i in n.inputs):
            v = n.inputs[0] if number(n.inputs[0]) is None else n.inputs[1]
        else:
            return False
    return False


def _half(
    r: Rewriter, before: BoundNode, v: Value, x: Value, halves: dict[int, Value]
) -> Value | None:
    """The first half of a cos or sin table as [batch|1, seq, half]; None where its shape is not
    [batch|1, 1, seq, dim].
    """
    if id(v) not in halves:
        if (
            v.rank != 4
            or v.shape[1] != 1
            or v.shape[2] != x.shape[2]
            or v.shape[3] != x.shape[3]
            or v.shape[0] not in (1, x.shape[0])
        ):
            return None
        h = r.slice(before, v, 3, 0, v.shape[3] // 2)
        halves[id(v)] = r.reshape(before, h, [v.shape[0], v.shape[2], v.shape[3] // 2])
    return halves[id(v)]
