"""Schemas as expressions: the JSON texts of their values.

Properties come in the order of the schema, then required ones that it does not list, then others.
Characters are written as themselves where JSON allows it. Both are what llguidance and OpenAI do.
"""

from __future__ import annotations

from typing import Any

from .automaton import anything, automaton_of, difference, intersection, is_empty, texts
from .network import Network
from .nodes import (
    ANY,
    Automaton,
    Node,
    automaton_node,
    call,
    characters,
    choice,
    literal,
    nothing,
    optional,
    quoted,
    repeat,
    sequence,
)
from .numbers import (
    decimals_for,
    integer_node,
    number_node,
    numbers_from,
    numbers_up_to,
    short_numbers,
)
from .program import program_of
from .rules import (
    NOTHING,
    Arrays,
    Numbers,
    Objects,
    Option,
    Texts,
    json_text,
    texts_automaton,
    value_of,
)
from .schema import Schemas, at, refused

MAX_PATTERNS = 4
"""patternProperties of an object: names can fit any of their subsets."""
SPACE = [(9, 10), (13, 13), (32, 32)]


class JsonGrammar:
    """The grammar of a schema.

    Args:
        schema: JSON Schema, true for any value.
        flexible: whether white space is allowed where JSON allows it.
    """

    def __init__(self, schema: Any, flexible: bool) -> None:
        self.schemas = Schemas(schema)
        self.network = Network("response_format")
        self.space = repeat(characters(SPACE), 0) if flexible else nothing()
        self.named: set[str] = set()
        self.waiting: list[str] = []
        self.steps = 0

    def program(self) -> list[int]:
        """The words for the engine."""
        start = self.schemas.part("#", self.schemas.root)
        self.value(start)
        while self.waiting:
            name = self.waiting.pop()
            options = self.schemas.options(name)
            self.network.define(name, choice([self._option(one, name) for one in options]))
        return program_of(self.network, start, "no finite value satisfies the schema")

    def value(self, name: str) -> Node:
        """A value of a schema."""
        if name not in self.named:
            self.named.add(name)
            self.waiting.append(name)
        return call(name)

    def _option(self, option: Option, name: str) -> Node:
        made: list[Node] = []
        if option.null:
            made.append(literal("null"))
        made.extend([literal(json_text(x)) for x in option.booleans])
        if option.numbers is not None:
            made.append(self._number(option.numbers, name))
        if option.texts is not None:
            made.append(self._text(option.texts, name))
        if option.arrays is not None:
            made.append(self._array(option.arrays))
        if option.objects is not None:
            made.append(self._object(option.objects, name))
        return choice(made)

    # Numbers and strings

    def _number(self, rule: Numbers, name: str) -> Node:
        if rule.values is not None:
            return choice([literal(json_text(x)) for x in rule.values])
        parts: list[Node] = []
        if rule.low is not None:
            parts.append(numbers_from(rule.low, rule.integer))
        if rule.high is not None:
            parts.append(numbers_up_to(rule.high, rule.integer))
        for bound in (rule.low, rule.high):
            if bound is not None and bound.open and not rule.integer:
                parts.append(short_numbers(decimals_for(bound)))
        if rule.multiple > 1:
            parts.append(automaton_node(_multiples(rule.multiple)))
        if not parts:
            return integer_node() if rule.integer else number_node()
        if len(parts) == 1:
            return parts[0]
        made = automaton_of(parts[0], at(name))
        for part in parts[1:]:
            made = intersection(made, automaton_of(part, at(name)), at(name))
        return automaton_node(made)

    def _text(self, rule: Texts, name: str) -> Node:
        if rule.values is not None:
            inside = choice([literal(x) for x in rule.values])
        elif not rule.parts:
            inside = repeat(characters(ANY), rule.least, rule.most)
        elif len(rule.parts) == 1 and rule.least == 0 and rule.most < 0:
            inside = self._shared(rule)
        else:
            inside = automaton_node(texts_automaton(rule, at(name)))
        return _string(inside)

    def _shared(self, rule: Texts) -> Node:
        """The only expression of strings, once for all that have the same."""
        if not rule.source:
            return rule.parts[0]
        if rule.source not in self.network.rules:
            self.network.define(rule.source, quoted(rule.parts[0]))
        return call(rule.source)

    # Arrays

    def _rule(self, node: Node) -> Node:
        """A rule for what is used in several places."""
        self.steps += 1
        name = f"step {self.steps}"
        self.network.define(name, node)
        return call(name)

    def _array(self, rule: Arrays) -> Node:
        prefix = rule.prefix if rule.most < 0 else rule.prefix[: rule.most]
        count = len(prefix)
        most = -1 if rule.most < 0 else max(rule.most - count, 0)
        least = max(rule.least - count, 0)
        comma = sequence([self.space, literal(","), self.space])
        inside = nothing()
        if most != 0 and count:
            inside = repeat(sequence([comma, self.value(rule.items)]), least, most)
        elif most != 0:
            item = self.value(rule.items)
            more = repeat(sequence([comma, item]), max(least - 1, 0), max(most - 1, -1))
            inside = sequence([item, more])
            if least == 0:
                inside = optional(inside)
        for i in reversed(range(count)):
            parts = [self.value(prefix[i]), inside]
            inside = sequence([comma, *parts] if i else parts)
            inside = self._rule(inside if i < rule.least else optional(inside))
        return sequence([literal("["), self.space, inside, self.space, literal("]")])

    # Objects

    def _entry(self, name: Node, value: Node) -> Node:
        return sequence([name, self.space, literal(":"), self.space, value])

    def _object(self, rule: Objects, place: str) -> Node:
        names = [*rule.properties]
        names.extend([x for x in rule.required if x not in rule.properties])
        names = [name for i, name in enumerate(names) if name not in names[:i]]
        comma = sequence([self.space, literal(","), self.space])
        other = choice(self._others(rule, names, place))
        after = self._rule(repeat(sequence([comma, other]), 0))
        first = optional(sequence([other, after]))
        for name in reversed(names):
            value = self.value(self.schemas.all_of(value_of(rule, name)))
            entry = self._entry(_string(literal(name)), value)
            here = sequence([entry, after])
            later = sequence([comma, entry, after])
            if name in rule.required:
                first = self._rule(here)
                after = self._rule(later)
            else:
                first = self._rule(choice([here, first]))
                after = self._rule(choice([later, after]))
        return sequence([literal("{"), self.space, first, self.space, literal("}")])

    def _others(self, rule: Objects, names: list[str], place: str) -> list[Node]:
        """The entries whose names are not listed."""
        if rule.additional == NOTHING and not rule.patterns:
            return []
        if not names and not rule.patterns:
            name = _string(repeat(characters(ANY), 0))
            return [self._entry(name, self.value(rule.additional))]
        if len(rule.patterns) > MAX_PATTERNS:
            raise refused("patternProperties", place)
        free = anything()
        if names:
            free = difference(free, texts(names), at(place))
        groups: list[tuple[Automaton, list[str]]] = [(free, [])]
        for pattern in rule.patterns:
            some: list[tuple[Automaton, list[str]]] = []
            for automaton, values in groups:
                inside = intersection(automaton, pattern.names, at(place))
                if not is_empty(inside):
                    some.append((inside, [*values, pattern.value]))
                outside = difference(automaton, pattern.names, at(place))
                if not is_empty(outside):
                    some.append((outside, values))
            groups = some
        made: list[Node] = []
        for automaton, values in groups:
            value = self.schemas.all_of(values or [rule.additional])
            made.append(self._entry(_string(automaton_node(automaton)), self.value(value)))
        return made


def _string(inside: Node) -> Node:
    return sequence([literal('"'), quoted(inside), literal('"')])


def _multiples(number: int) -> Automaton:
    """The integers that are multiples of a number."""
    # 0: the beginning, 1: after "-", 2: after "0", 3 + r: after digits with the remainder r
    leading = [(48 + d, 48 + d, 3 + d % number) for d in range(1, 10)]
    zero = (48, 48, 2)
    edges = [[(45, 45, 1), zero, *leading], [zero, *leading], []]
    for rest in range(number):
        edges.append([(48 + d, 48 + d, 3 + (10 * rest + d) % number) for d in range(10)])
    return Automaton(edges, [False, False, True, *[rest == 0 for rest in range(number)]])
