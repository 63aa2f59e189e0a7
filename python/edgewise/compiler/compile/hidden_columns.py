"""Which keys a mask hides from all tokens of a run, proven from the nodes that compute it: the
first ones, where it is one of a sliding window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..declare.symbolic import Sym
from ..passes.attention_masks import LOW
from ..passes.rewrite import number, op_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..ir import Value

# Ops with the same elements in the same order.
_ALIKE = ("Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Expand")
# And those whose elements are some of these, in any order.
_PARTS = (*_ALIKE, "Transpose", "Slice", "Gather")
# Comparisons as (whether operands are swapped, whether equal ones count) of "less".
_LESS = {
    "Less": (False, False),
    "LessOrEqual": (False, True),
    "Greater": (True, False),
    "GreaterOrEqual": (True, True),
}


def window_of(mask: Value, past: int) -> int:
    """The positions that each token sees, with its own, by a mask that is added to scores.

    Args:
        mask: [..., keys], keys from the first position on.
        past: register with the position of the first token.

    Returns:
        so many; 0: all, or it cannot be told
    """
    return max(0, 1 - bound.add) if _is_past(bound := _hidden(mask), past) else 0


def _is_past(bound: Any, past: int) -> bool:
    return isinstance(bound, Sym) and (bound.reg, bound.scale) == (past, 1)


def _hidden(v: Value) -> Any:
    """A number so that all columns before it are hidden; None: it is not known."""
    n = v.producer
    if n is None:
        return None
    if n.op == "Where":
        condition, a, b = n.inputs
        for low, value in ((b, False), (a, True)):
            if _is_low(low) and _same_columns(condition, v):
                return _where(condition, value)
        return None
    if n.op == "Mul":  # not condition * low
        for low, x in (n.inputs, n.inputs[::-1]):
            if _is_low(low) and _same_columns(x, v):
                return _not_zero(x)
        return None
    if n.op == "Add":
        return _best(n.inputs, v, _hidden)
    return _hidden(n.inputs[0]) if _alike(v) else None


def _not_zero(x: Value) -> Any:
    """A number so that all columns before it are 1: of Cast(condition), or 1 - Cast(condition)."""
    n, value = x.producer, True
    if n is not None and n.op == "Sub" and number(n.inputs[0]) == 1:
        x, value = n.inputs[1], False
    return _where(x, value) if op_of(x) == "Cast" else None


def _is_low(v: Value) -> bool:
    low = number(v) if v.constant else None
    return low is not None and low < LOW


def _alike(v: Value) -> bool:
    """Whether the columns of a value are those of the first input of its node."""
    n = v.producer
    if n is None or not _same_columns(n.inputs[0], v):
        return False
    axes = n.inputs[3].numbers if n.op == "Slice" and n.has(3) else None
    if axes is not None:  # of rows, as those that logits are wanted of
        return all(isinstance(a, int) and a % v.rank != v.rank - 1 for a in axes)
    return n.op in _ALIKE


def _same_columns(x: Value, v: Value) -> bool:
    return x.rank > 0 and x.shape[-1] == v.shape[-1]


def _best(inputs: list[Value], v: Value, bound: Callable[[Value], Any]) -> Any:
    """The largest of the bounds of inputs, each of which suffices."""
    found = [bound(x) for x in inputs if _same_columns(x, v)]
    return max((b for b in found if isinstance(b, Sym)), key=lambda b: b.add, default=None)


def _where(v: Value, value: bool) -> Any:
    """A number so that a condition has this value in all columns before it; None: not known."""
    n = v.producer
    if n is None:
        return None
    if n.op == "Not":
        return _where(n.inputs[0], not value)
    if n.op == ("Or" if value else "And"):
        return _best(n.inputs, v, lambda x: _where(x, value))
    if n.op in _LESS:
        swapped, equal = _LESS[n.op]
        a, b = n.inputs[::-1] if swapped else n.inputs
        return _less(a, b, equal, v, value)
    return _where(n.inputs[0], value) if _alike(v) else None


def _less(a: Value, b: Value, equal: bool, v: Value, value: bool) -> Any:
    """As _where, of a < b, or a <= b."""
    columns, others = (b, a) if not value else (a, b)
    if _are_columns(columns, v):  # a < column is false up to column a; column < b true before b
        least = _least(others)
        return least if least is None or equal is not value else least + 1
    if not value:
        return _difference(a, b, equal, v)
    return None


def _difference(a: Value, b: Value, equal: bool, v: Value) -> Any:
    """Of row - column < size, or -size < column - row: where it is false."""
    for x, size, sign in ((a, b, 1), (b, a, -1)):
        n, c = x.producer, _integer(size)
        if n is None or n.op != "Sub" or c is None:
            continue
        row, column = n.inputs if sign == 1 else n.inputs[::-1]
        least = _least(row)
        if _are_columns(column, v) and least is not None:
            return least - sign * c + (0 if equal else 1)
    return None


def _are_columns(x: Value, v: Value) -> bool:
    """Whether a value is the number of the column of v."""
    while _alike(x) and x.producer is not None:
        x = x.producer.inputs[0]
    n = x.producer
    if n is None or n.op != "Range" or not _same_columns(x, v):
        return False
    return (_integer(n.inputs[0]), _integer(n.inputs[2])) == (0, 1)


def _integer(v: Value) -> int | None:
    """The number of a constant that is one integer."""
    numbers = v.numbers
    return numbers[0] if numbers and len(numbers) == 1 and isinstance(numbers[0], int) else None


def _least(v: Value) -> Any:
    """A number that no element is less than; None: not known."""
    if v.numbers is not None:
        syms = [x for x in v.numbers if isinstance(x, Sym)]
        if len(syms) < len(v.numbers) or len({(x.reg, x.scale) for x in syms}) != 1:
            return min(v.numbers) if v.numbers and not syms else None
        return min(syms, key=lambda x: x.add)
    n = v.producer
    if n is None:
        return None
    if n.op in _PARTS:
        return _least(n.inputs[0])
    if n.op == "Range":
        return _least(n.inputs[0]) if (_integer(n.inputs[2]) or 0) > 0 else None
    if n.op in ("Add", "Sub"):
        a, b = _least(n.inputs[0]), n.inputs[1].numbers
        if a is None or not b or any(isinstance(x, Sym) for x in b):
            return None
        return a + min(b) if n.op == "Add" else a - max(b)
    return None
