"""Schemas by the types of JSON: what both of two schemas allow, and whether anything is.

The values of an array or an object are named, not held: by the pointer of their schema, or as
below. So schemas can be recursive, also where two are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..native import digits_of
from .automaton import automaton_of, counted, fits, intersection
from .nodes import Automaton, Node
from .numbers import Bound

ANYTHING = "anything"
"""The name of the schema `true`."""
NOTHING = "nothing"
"""The name of the schema `false`."""


@dataclass
class Numbers:
    """Numbers.

    Attributes:
        integer: whether they are whole.
        low, high: bounds.
        multiple: of which they are multiples; 0: of nothing.
        values: the only ones, or None.
    """

    integer: bool = False
    low: Bound | None = None
    high: Bound | None = None
    multiple: int = 0
    values: list[float] | None = None


@dataclass
class Texts:
    """Strings.

    Attributes:
        least, most: characters; most -1: any number.
        parts: expressions that all have to fit.
        source: what the only part was made of, if the same text always makes it.
        values: the only ones, or None.
    """

    least: int = 0
    most: int = -1
    parts: list[Node] = field(default_factory=list)
    values: list[str] | None = None
    source: str = ""


@dataclass
class Arrays:
    """Arrays.

    Attributes:
        prefix: names of the schemas of the first elements.
        items: name of the schema of the others.
        least, most: elements; most -1: any number.
    """

    prefix: list[str] = field(default_factory=list)
    items: str = ANYTHING
    least: int = 0
    most: int = -1


@dataclass
class Pattern:
    """Properties whose names fit a pattern.

    Attributes:
        source: of the pattern.
        names: the automaton.
        value: name of the schema.
    """

    source: str
    names: Automaton
    value: str


@dataclass
class Objects:
    """Objects.

    Attributes:
        properties: names of schemas by name, in order.
        required: names.
        patterns: of other names.
        additional: name of the schema of all others.
    """

    properties: dict[str, str] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    patterns: list[Pattern] = field(default_factory=list)
    additional: str = ANYTHING


@dataclass
class Option:
    """The values of some types; None and empty ones: no value of a type.

    Attributes:
        null: whether null is one.
        booleans: which of them are.
    """

    null: bool = False
    booleans: list[bool] = field(default_factory=list)
    numbers: Numbers | None = None
    texts: Texts | None = None
    arrays: Arrays | None = None
    objects: Objects | None = None


def everything() -> Option:
    """All values."""
    return Option(True, [False, True], Numbers(), Texts(), Arrays(), Objects())


def is_possible(option: Option) -> bool:
    """Whether any type is left."""
    if option.null or option.booleans or option.numbers is not None:
        return True
    return option.texts is not None or option.arrays is not None or option.objects is not None


def number_fits(rule: Numbers, value: float) -> bool:
    """Whether a number is one of them."""
    if rule.integer and value != int(value):
        return False
    if rule.low is not None and (
        value < rule.low.value or (rule.low.open and value == rule.low.value)
    ):
        return False
    if rule.high is not None and (
        value > rule.high.value or (rule.high.open and value == rule.high.value)
    ):
        return False
    if rule.multiple and value % rule.multiple != 0:
        return False
    return rule.values is None or value in rule.values


def _higher(a: Bound | None, b: Bound | None) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    if a.value == b.value:
        return a if a.open else b
    return a if a.value > b.value else b


def _lower(a: Bound | None, b: Bound | None) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    if a.value == b.value:
        return a if a.open else b
    return a if a.value < b.value else b


def common_divisor(a: int, b: int) -> int:
    """The greatest common divisor."""
    while b:
        rest = a % b
        a = b
        b = rest
    return a


def both_numbers(a: Numbers, b: Numbers) -> Numbers | None:
    """The numbers of both."""
    multiple = a.multiple or b.multiple
    if a.multiple and b.multiple:
        multiple = a.multiple * b.multiple // common_divisor(a.multiple, b.multiple)
    low, high = _higher(a.low, b.low), _lower(a.high, b.high)
    made = Numbers(a.integer or b.integer, low, high, multiple)
    if low is not None and high is not None:
        if low.value > high.value or (low.value == high.value and (low.open or high.open)):
            return None
    if a.values is None and b.values is None:
        return made
    found = a.values
    if found is None:
        found = b.values or []
    made.values = [x for x in found if number_fits(a, x) and number_fits(b, x)]
    return made if made.values else None


def texts_automaton(rule: Texts, where: str) -> Automaton:
    """The automaton of strings that are not listed."""
    made: Automaton | None = None
    for part in rule.parts:
        one = automaton_of(part, where)
        made = one if made is None else intersection(made, one, where)
    if made is None:
        return counted(rule.least, rule.most, where)
    if rule.least == 0 and rule.most < 0:
        return made
    return intersection(made, counted(rule.least, rule.most, where), where)


def _fitting(rule: Texts, values: list[str], where: str) -> list[str]:
    """The strings of a list that are among them."""
    automata = [automaton_of(part, where) for part in rule.parts]
    return [
        value
        for value in values
        if (rule.values is None or value in rule.values)
        and rule.least <= len(value)
        and (rule.most < 0 or len(value) <= rule.most)
        and all(fits(one, value) for one in automata)
    ]


def both_texts(a: Texts, b: Texts, where: str) -> Texts | None:
    """The strings of both."""
    most = b.most if a.most < 0 else a.most if b.most < 0 else min(a.most, b.most)
    made = Texts(max(a.least, b.least), most, [*a.parts, *b.parts])
    if most >= 0 and made.least > most:
        return None
    if a.values is None and b.values is None:
        return made
    found = a.values
    if found is None:
        found = b.values or []
    made.values = _fitting(b, _fitting(a, found, where), where)
    return made if made.values else None


def element(rule: Arrays, i: int) -> str:
    """Name of the schema of an element."""
    return rule.prefix[i] if i < len(rule.prefix) else rule.items


def value_of(rule: Objects, name: str) -> list[str]:
    """Names of the schemas that the value of a property has to fit."""
    if name in rule.properties:
        found = [rule.properties[name]]
    else:
        found = []
    found.extend([p.value for p in rule.patterns if fits(p.names, name)])
    return found or [rule.additional]


def json_text(value: Any) -> str:
    """A number, a boolean or null as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    number: float = value
    return digits_of(number) if number >= 0 else "-" + digits_of(-number)
