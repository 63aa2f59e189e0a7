"""Numbers between bounds, as they are written in JSON."""

from __future__ import annotations

from dataclasses import dataclass

from ..native import digits_of
from .nodes import Node, characters, choice, literal, never, nothing, repeat, sequence

MAX_DIGITS = 15
"""Digits with which a number stays different from its neighbors as a float64."""


@dataclass
class Bound:
    """A bound.

    Attributes:
        value: the number.
        open: whether the bound itself is excluded.
    """

    value: float
    open: bool


def _digits(low: int, high: int) -> Node:
    return characters([(48 + low, 48 + high)])


def _any(least: int = 0, most: int = -1) -> Node:
    return repeat(_digits(0, 9), least, most)


def whole_part() -> Node:
    """An integer of 0 or more."""
    return choice([literal("0"), sequence([_digits(1, 9), _any()])])


def integer_node() -> Node:
    """Any integer."""
    return sequence([repeat(literal("-"), 0, 1), whole_part()])


def number_node() -> Node:
    """Any number."""
    signs = characters([(43, 43), (45, 45)])
    letters = characters([(69, 69), (101, 101)])
    exponent = sequence([letters, repeat(signs, 0, 1), _any(1)])
    fraction = sequence([literal("."), _any(1)])
    return sequence([integer_node(), repeat(fraction, 0, 1), repeat(exponent, 0, 1)])


def _split(value: float) -> tuple[str, str]:
    """The digits of a number of 0 or more, before and after the point."""
    whole, _, fraction = digits_of(value).partition(".")
    return whole, fraction.rstrip("0")


def _whole_from(text: str) -> Node:
    """Integers of at least that many digits whose value is at least `text`'s."""
    options: list[Node] = [sequence([_digits(1, 9), _any(len(text))])]  # longer ones
    for i, c in enumerate(text):
        if int(c) < 9:
            rest = len(text) - i - 1
            options.append(sequence([literal(text[:i]), _digits(int(c) + 1, 9), _any(rest, rest)]))
    options.append(literal(text))
    return choice(options)


def _whole_up_to(text: str) -> Node:
    """Integers of 0 or more whose value is at most `text`'s."""
    if text == "0":
        return literal("0")
    options: list[Node] = [literal("0")]
    for length in range(1, len(text)):
        options.append(sequence([_digits(1, 9), _any(length - 1, length - 1)]))
    for i, c in enumerate(text):
        least = 1 if i == 0 else 0
        if int(c) > least:
            rest = len(text) - i - 1
            options.append(
                sequence([literal(text[:i]), _digits(least, int(c) - 1), _any(rest, rest)])
            )
    options.append(literal(text))
    return choice(options)


def _more(text: str) -> str:
    """The next integer."""
    made: list[str] = []
    carry = 1
    for c in reversed(text):
        digit = int(c) + carry
        carry = digit // 10
        made.append(str(digit % 10))
    if carry:
        made.append("1")
    made.reverse()
    return "".join(made)


def _less(text: str) -> str:
    """The previous integer of one above 0."""
    made: list[str] = []
    borrow = 1
    for c in reversed(text):
        digit = int(c) - borrow
        borrow = 1 if digit < 0 else 0
        made.append(str(digit + 10 * borrow))
    made.reverse()
    return "".join(made).lstrip("0") or "0"


def _fraction_from(digits: str, is_open: bool) -> Node:
    """What may follow an integer so that the fraction is at least (open: more than) `digits`."""
    positive = sequence([literal("."), repeat(literal("0"), 0), _digits(1, 9), _any()])
    if not digits:
        return positive if is_open else repeat(sequence([literal("."), _any(1)]), 0, 1)
    options: list[Node] = []
    for i, c in enumerate(digits):
        if int(c) < 9:
            options.append(sequence([literal(digits[:i]), _digits(int(c) + 1, 9), _any()]))
    rest = sequence([repeat(literal("0"), 0), _digits(1, 9), _any()]) if is_open else _any()
    options.append(sequence([literal(digits), rest]))
    return sequence([literal("."), choice(options)])


def _fraction_up_to(digits: str, is_open: bool) -> Node:
    """What may follow so that the fraction is at most (open: less than) `digits`."""
    zeros = repeat(literal("0"), 0)
    if not digits:
        return never() if is_open else repeat(sequence([literal("."), zeros, literal("0")]), 0, 1)
    options: list[Node] = []
    for i, c in enumerate(digits):
        if i:  # fewer digits
            options.append(literal(digits[:i]))
        if int(c) > 0:
            options.append(sequence([literal(digits[:i]), _digits(0, int(c) - 1), _any()]))
    if not is_open:
        options.append(literal(digits))
    return choice([nothing(), sequence([literal("."), choice(options)])])


def _from(value: float, is_open: bool, integer: bool) -> Node:
    """Numbers of 0 or more that are at least a bound of 0 or more."""
    whole, fraction = _split(value)
    if integer:
        up = fraction or is_open
        return _from_whole(_more(whole) if up else whole)
    any_fraction = repeat(sequence([literal("."), _any(1)]), 0, 1)
    return choice(
        [
            sequence([literal(whole), _fraction_from(fraction, is_open)]),
            sequence([_from_whole(_more(whole)), any_fraction]),
        ]
    )


def _from_whole(text: str) -> Node:
    return whole_part() if text == "0" else _whole_from(text)


def _up_to(value: float, is_open: bool, integer: bool) -> Node:
    """Numbers of 0 or more that are at most a bound of 0 or more."""
    whole, fraction = _split(value)
    if integer:
        if fraction or not is_open:
            return _whole_up_to(whole)
        return never() if whole == "0" else _whole_up_to(_less(whole))
    any_fraction = repeat(sequence([literal("."), _any(1)]), 0, 1)
    options = [sequence([literal(whole), _fraction_up_to(fraction, is_open)])]
    if whole != "0":
        options.append(sequence([_whole_up_to(_less(whole)), any_fraction]))
    return choice(options)


def _all(integer: bool) -> Node:
    fraction = repeat(sequence([literal("."), _any(1)]), 0, 1)
    return whole_part() if integer else sequence([whole_part(), fraction])


def numbers_from(bound: Bound, integer: bool) -> Node:
    """Numbers of at least a bound, without exponents."""
    if bound.value > 0:
        return _from(bound.value, bound.open, integer)
    if bound.value == 0:
        return _from(0, bound.open, integer)
    negative = sequence([literal("-"), _up_to(-bound.value, bound.open, integer)])
    return choice([_all(integer), negative])


def numbers_up_to(bound: Bound, integer: bool) -> Node:
    """Numbers of at most a bound, without exponents."""
    minus = literal("-")
    if bound.value < 0:
        return sequence([minus, _from(-bound.value, bound.open, integer)])
    if bound.value == 0:
        below = sequence([minus, _from(0, bound.open, integer)])
        return below if bound.open else choice([_up_to(0, False, integer), below])
    return choice([_up_to(bound.value, bound.open, integer), sequence([minus, _all(integer)])])


def decimals_for(bound: Bound) -> int:
    """Digits after the point with which no number is rounded to an open bound."""
    whole, fraction = _split(abs(bound.value))
    return max(len(fraction), MAX_DIGITS - len(whole), 0)


def short_numbers(decimals: int) -> Node:
    """Numbers of at most so many digits after the point."""
    fraction = sequence([literal("."), _any(1, decimals)]) if decimals else never()
    return sequence([integer_node(), repeat(fraction, 0, 1)])


__all__ = [
    "Bound",
    "decimals_for",
    "integer_node",
    "number_node",
    "numbers_from",
    "numbers_up_to",
    "short_numbers",
]
