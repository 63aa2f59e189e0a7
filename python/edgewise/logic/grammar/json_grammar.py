"""Schemas as expressions: the JSON texts of their values.

Properties come in the order of the schema, then required ones that it does not list, then others.
Characters are written as themselves where JSON allows it. Both are what llguidance and OpenAI do.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass
class Writing:
    """How values are written.

    Attributes:
        true, false, null: words.
        quote: the mark before and after a string, in which nothing has a backslash; None: strings
            are those of JSON.
    """

    true: str = "true"
    false: str = "false"
    null: str = "null"
    quote: Node | None = None


class JsonGrammar:
    """The grammar of a schema.

    Args:
        schema: JSON Schema, true for any value.
        space: white space where JSON allows it.
        network: gets the rules. Default: one of its own.
        prefix: of the names of rules.
        writing: how values are written. Default: as JSON.
    """

    def __init__(
        self,
        schema: Any,
        space: Node,
        network: Network | None = None,
        prefix: str = "",
        writing: Writing | None = None,
    ) -> None:
        self.schemas = Schemas(schema)
        self.network = network or Network("response_format")
        self.space, self.prefix = space, prefix
        self.writing = writing or Writing()
        self.named: set[str] = set()
        self.waiting: list[str] = []
        self.steps = 0

    def program(self) -> list[int]:
        """The words for the engine."""
        self.value(self.start())
        self.define()
        start = self.prefix + self.start()
        return program_of(self.network, start, "no finite value satisfies the schema")

    def start(self) -> str:
        """The name of the schema."""
        return self.schemas.part("#", self.schemas.root)

    def define(self) -> None:
        """Defines the rules of all values so far."""
        while self.waiting:
            name = self.waiting.pop()
            options = self.schemas.options(name)
            rule = choice([self.option(one, name) for one in options])
            self.network.define(self.prefix + name, rule)

    def value(self, name: str) -> Node:
        """A value of a schema."""
        if name not in self.named:
            self.named.add(name)
            self.waiting.append(name)
        return call(self.prefix + name)

    def option(self, option: Option, name: str) -> Node:
        """A value of an alternative. name: of the schema."""
        made: list[Node] = []
        words = self.writing
        if option.null:
            made.append(literal(words.null))
        made.extend([literal(words.true if x else words.false) for x in option.booleans])
        if option.numbers is not None:
            made.append(self._number(option.numbers, name))
        if option.texts is not None:
            made.append(self._string(self.text(option.texts, name)))
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

    def text(self, rule: Texts, name: str) -> Node:
        """The text of a string."""
        if rule.values is not None:
            return choice([literal(x) for x in rule.values])
        if not rule.parts:
            return repeat(characters(ANY), rule.least, rule.most)
        if len(rule.parts) == 1 and rule.least == 0 and rule.most < 0:
            return self._shared(rule)
        return automaton_node(texts_automaton(rule, at(name)))

    def _string(self, inside: Node) -> Node:
        quote = self.writing.quote
        if quote is not None:
            return sequence([quote, inside, quote])
        return sequence([literal('"'), quoted(inside), literal('"')])

    def _name(self, name: str) -> Node:
        """A listed name of a property."""
        bare = self.writing.quote is not None and is_word(name)
        return literal(name) if bare else self._string(literal(name))

    def _shared(self, rule: Texts) -> Node:
        """The only expression of strings, once for all that have the same."""
        if not rule.source or self.writing.quote is not None:
            return rule.parts[0]
        if rule.source not in self.network.rules:
            self.network.define(rule.source, quoted(rule.parts[0]))
        return call(rule.source)

    # Arrays

    def _rule(self, node: Node) -> Node:
        """A rule for what is used in several places."""
        self.steps += 1
        name = f"{self.prefix}step {self.steps}"
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
        comma = sequence([self.space, literal(","), self.space])
        names = names_of(rule)
        entries: list[Node] = []
        for name in names:
            value = self.value(self.schemas.all_of(value_of(rule, name)))
            entries.append(self._entry(self._name(name), value))
        other = choice(self._others(rule, names, place))
        inside = self.listed(entries, [name in rule.required for name in names], other, comma)
        return sequence([literal("{"), self.space, inside, self.space, literal("}")])

    def listed(self, entries: list[Node], needed: list[bool], other: Node, comma: Node) -> Node:
        """Entries in their order, of which some may be left out, and others after them.

        Args:
            entries: one after the other.
            needed: which of them are never left out.
            other: any more, any number of times.
            comma: what stands between two.
        """
        after = self._rule(repeat(sequence([comma, other]), 0))
        first = optional(sequence([other, after]))
        for i in reversed(range(len(entries))):
            here = sequence([entries[i], after])
            later = sequence([comma, entries[i], after])
            if needed[i]:
                first = self._rule(here)
                after = self._rule(later)
            else:
                first = self._rule(choice([here, first]))
                after = self._rule(choice([later, after]))
        return first

    def _others(self, rule: Objects, names: list[str], place: str) -> list[Node]:
        """The entries whose names are not listed."""
        if rule.additional == NOTHING and not rule.patterns:
            return []
        if not names and not rule.patterns:
            name = self._string(repeat(characters(ANY), 0))
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
            entry = self._entry(self._string(automaton_node(automaton)), self.value(value))
            made.append(entry)
        return made


def flexible_space(flexible: bool) -> Node:
    """White space where JSON allows it. flexible: whether it is allowed."""
    return repeat(characters(SPACE), 0) if flexible else nothing()


def is_word(name: str) -> bool:
    """Whether a name is made of letters of ASCII, digits and _."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
    return name != "" and all(c in letters for c in name)


def names_of(rule: Objects) -> list[str]:
    """The names of properties that are listed or required."""
    names = [*rule.properties]
    names.extend([x for x in rule.required if x not in rule.properties])
    return [name for i, name in enumerate(names) if name not in names[:i]]


def _multiples(number: int) -> Automaton:
    """The integers that are multiples of a number."""
    # 0: the beginning, 1: after "-", 2: after "0", 3 + r: after digits with the remainder r
    leading = [(48 + d, 48 + d, 3 + d % number) for d in range(1, 10)]
    zero = (48, 48, 2)
    edges = [[(45, 45, 1), zero, *leading], [zero, *leading], []]
    for rest in range(number):
        edges.append([(48 + d, 48 + d, 3 + (10 * rest + d) % number) for d in range(10)])
    return Automaton(edges, [False, False, True, *[rest == 0 for rest in range(number)]])
