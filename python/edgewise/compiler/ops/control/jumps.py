"""If, Loop and Scan in a plan, as bind/jumps.py makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import INT64
from ...declare.op import Op
from ...declare.symbolic import Sym, most

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, View
    from ...ir import Repetition

branch = Op("Branch", "edgewise")


@branch.lower
def branch_lower(node: BoundNode, builder: Builder) -> None:
    """The steps of one branch, and a jump over them; both copy their results to the same place."""
    condition, *around = [builder.view(v) for v in node.inputs]
    outs = [builder.out(v) if v is not None else None for v in node.outputs]
    jump = builder.jump("branch", {"condition": condition}, counter=-1)
    for body, last in zip(node.bodies, (False, True)):
        first = len(builder.written)
        count = len(body.inputs)
        for x, y in zip(builder.lower_body(body, around[:count]), outs):
            if y is not None:
                builder.copy(x, y)
        around = around[count:]
        if not last:
            end = builder.jump("branch", {}, counter=-1)
            builder.span(jump, first)
            jump = end
        else:
            builder.span(jump, first)


repeat = Op("Repeat", "edgewise")


@repeat.lower
def repeat_lower(node: BoundNode, builder: Builder) -> None:
    """Carried values in memory of their own, then the steps of an iteration and a jump back."""
    rule, (body,) = node.attrs["rule"], node.bodies
    limit, condition = (builder.view(v) if v is not None else None for v in node.inputs[:2])
    rest = [builder.view(v) for v in node.inputs[2:]]
    states = [_copied(builder, v) for v in rest[: rule.carried]]
    scanned = rest[rule.carried : rule.carried + len(rule.scans)]
    scanned = [_copied(builder, v) if isinstance(v.offset, Sym) else v for v in scanned]
    around = rest[rule.carried + len(rule.scans) :]
    stacked = [builder.out(v) if v is not None else None for v in node.outputs[rule.carried :]]
    counter = builder.counter(most(rule.trips))
    params = {"counter": counter.reg, "trips": rule.trips}
    begin = builder.jump("loop_begin", {"limit": limit, "condition": condition}, **params)
    first = len(builder.written)
    own = _begin(builder, rule, body.inputs[:2], body.bound, counter)
    own += states + [
        _copied(builder, _row(v, rule.trips, counter, *scan))
        for v, scan in zip(scanned, rule.scans)
    ]
    outs = builder.lower_body(body, own + around)
    test = outs.pop(0) if rule.counter is not None else None
    _end(
        builder,
        rule,
        outs,
        states,
        [
            None if v is None else _row(v, rule.trips, counter, *stack)
            for v, stack in zip(stacked, rule.stacks)
        ],
    )
    operands = {"limit": limit, "condition": test if rule.tested else None}
    again = builder.jump("loop_end", operands, **params)
    builder.span(begin, first)
    builder.span(again, first)
    for v, state in zip(node.outputs, states):
        if v is not None:
            builder.alias(v, state)


def _begin(
    builder: Builder, rule: Repetition, inputs: Sequence[Any], bound: Any, counter: Sym
) -> list[View]:
    """The views of the body's counter and condition."""
    if rule.counter is None:
        return []
    number = builder.temp(INT64, [])
    users = bound.users()
    if id(rule.counter) in users:
        builder.range(builder.flat(number), counter, 0)
    return [number, builder.view(inputs[1])]


def _end(
    builder: Builder,
    rule: Repetition,
    outs: Sequence[View],
    states: Sequence[View],
    rows: Sequence[View | None],
) -> None:
    """Copies what the body computed: to the rows that are collected, then to carried values."""
    for x, row in zip(outs[rule.carried :], rows):
        if row is not None:
            builder.copy(x, row)
    own = {v.buffer for v in states}
    moved = []
    for x, state in zip(outs, states):
        if x.layout != state.layout:
            # What lies in the memory of another carried value is overwritten with that value.
            moved.append((_copied(builder, x) if x.buffer in own else x, state))
    for x, state in moved:
        builder.copy(x, state)


def _copied(builder: Builder, v: View) -> View:
    y = builder.temp(v.dtype, v.shape)
    builder.copy(v, y)
    return y


def _row(v: View, trips: int | Sym, counter: Sym, axis: int, back: bool) -> View:
    """The slice of an iteration along an axis."""
    return v.slice(axis, trips - 1 - counter if back else counter, 1).drop(axis)
