"""The expressions that regular expressions, schemas and grammars are translated to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

MAX_CHARACTER = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)

Kind = Literal["characters", "sequence", "choice", "repeat", "call", "quoted", "automaton", "token"]


@dataclass
class Automaton:
    """A deterministic automaton on characters. The first state is 0.

    Attributes:
        edges: of each state (low, high, target), in ascending order and without overlaps.
        accepts: of each state, whether a text may end there.
    """

    edges: list[list[tuple[int, int, int]]]
    accepts: list[bool]


@dataclass
class Node:
    """An expression.

    Attributes:
        kind: characters: one of `ranges`. sequence, choice: of `parts`; a choice of none is never
            possible. repeat: the first part, from `least` to `most` times. call: the rule `rule`.
            quoted: the first part as it is written within a string of JSON. automaton: `automaton`.
            token: the added token `rule`, which no text has.
        ranges: (first, last) code points, in ascending order.
        most: -1: any number.
    """

    kind: Kind
    parts: list[Node] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    least: int = 0
    most: int = -1
    rule: str = ""
    automaton: Automaton | None = None


def characters(ranges: Sequence[tuple[int, int]]) -> Node:
    """One character of some ranges, which may overlap."""
    return Node("characters", ranges=merged(ranges))


def literal(text: str) -> Node:
    """A text."""
    return sequence([characters([(ord(c), ord(c))]) for c in text])


def sequence(parts: Sequence[Node]) -> Node:
    """Expressions one after the other."""
    return parts[0] if len(parts) == 1 else Node("sequence", list(parts))


def choice(parts: Sequence[Node]) -> Node:
    """One of several expressions."""
    return parts[0] if len(parts) == 1 else Node("choice", list(parts))


def repeat(part: Node, least: int, most: int = -1) -> Node:
    """An expression that is repeated. most: -1: any number of times."""
    return part if least == 1 and most == 1 else Node("repeat", [part], least=least, most=most)


def optional(part: Node) -> Node:
    """An expression or nothing."""
    return repeat(part, 0, 1)


def call(rule: str) -> Node:
    """A rule by its name."""
    return Node("call", rule=rule)


def token(text: str) -> Node:
    """An added token of the tokenizer, of those that vocabularies have (vocabulary.py)."""
    return Node("token", rule=text)


def quoted(part: Node) -> Node:
    """Text as it is written within a string of JSON: control characters, quotes and backslashes
    with a backslash, everything else as it is.
    """
    return Node("quoted", [part])


def automaton_node(automaton: Automaton) -> Node:
    """The texts of an automaton."""
    return Node("automaton", automaton=automaton)


def nothing() -> Node:
    """The empty text."""
    return Node("sequence")


def never() -> Node:
    """No text at all."""
    return Node("choice")


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same characters in ascending ranges that do not touch."""
    made: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if low > high:
            continue
        if made and low <= made[-1][1] + 1:
            made[-1] = (made[-1][0], max(made[-1][1], high))
        else:
            made.append((low, high))
    return made


def others(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The characters that are not in ascending ranges."""
    made: list[tuple[int, int]] = []
    at = 0
    for low, high in ranges:
        if at < low:
            made.append((at, low - 1))
        at = high + 1
    if at <= MAX_CHARACTER:
        made.append((at, MAX_CHARACTER))
    return made


def common(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The characters of both."""
    made = [
        (max(one[0], two[0]), min(one[1], two[1]))
        for one in a
        for two in b
        if max(one[0], two[0]) <= min(one[1], two[1])
    ]
    return merged(made)


ANY = [(0, MAX_CHARACTER)]
"""Every character."""
