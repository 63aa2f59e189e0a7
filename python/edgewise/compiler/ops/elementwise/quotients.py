"""Lengths that are divided in floating point and rounded, as exporters of PyTorch write
`math.ceil(frames)`: the shapes that follow are rounded quotients of registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.symbolic import Sym, product

if TYPE_CHECKING:
    from ...declare.annotations import Value

EXACT = 1 << 22  # up to it, float32 rounds a quotient and a sum to the same side of an integer
MAX_CHAIN = 16


def rounded_quotient(v: Value, up: bool) -> Sym | int | None:
    """The number of a value that is the quotient of a length and a number, rounded.

    Args:
        v: of one element, whose number is not known.
        up: whether it is rounded up; else down.

    Returns:
        a Sym or a number; None if the value is something else
    """
    found = _quotient(v, MAX_CHAIN)
    if found is None:
        return None
    x, divisor = found
    if not isinstance(x, Sym):
        return None
    if x.registers is None or max(-x.min, x.max) >= EXACT:
        return None
    above = x + (divisor - 1 if up else 0)
    return x.registers.floor(above, divisor) if isinstance(above, Sym) else None


def _quotient(v: Value, depth: int) -> tuple[Sym | int, int] | None:
    """(x, divisor) of a value that is x / divisor; None if it is something else."""
    if any(isinstance(d, Sym) for d in v.shape) or product(v.shape) != 1:
        return None
    if v.numbers is not None:
        (x,) = v.numbers
        if isinstance(x, Sym):
            return x, 1
        return (int(x), 1) if x == x and x == x // 1 else None
    node = v.producer
    if node is None or not depth or node.domain:
        return None
    first = _quotient(node.inputs[0], depth - 1)
    if first is None or node.op in ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
        return first
    x, divisor = first
    c: Any = _number(node.inputs[1]) if len(node.inputs) == 2 else None
    if c is None:
        return None
    if node.op == "Div" and c > 0 and c == c // 1:
        return x, divisor * int(c)
    if node.op == "Mul" and c > 0 and (1 / c) == (1 / c) // 1:
        return x, divisor * int(1 / c)
    if node.op in ("Add", "Sub") and c * divisor == c * divisor // 1:
        by = int(c * divisor)
        return x + (by if node.op == "Add" else -by), divisor
    return None


def _number(v: Value | None) -> float | None:
    """The only number of a value, if it is known."""
    if v is None or v.numbers is None or len(v.numbers) != 1 or isinstance(v.numbers[0], Sym):
        return None
    number = v.numbers[0]
    return number if number == number and abs(number) < EXACT else None
