"""The tables that the engine reads: a network of states, with edges that read bytes and edges that
call rules (recursive transition networks, Woods 1970).

Such a network is a pushdown automaton on bytes: a place in it and the stack of the calls that led
there say what may follow. It is made in time linear in the grammar, since nothing is determined
here; core/sampling/grammar.c finds the sets of places that a text leads to when it gets there, and
keeps them. Earley's method (as llguidance has) would also take left recursion, which is removed or
refused here; it needs the items of all earlier positions, where a set of stacks is a state by
itself, which is found again, and whose mask is kept.
"""

from __future__ import annotations

from ...errors import InputError
from ..native import utf8_bytes
from .nodes import Automaton, Node, common, merged

END = -1
"""Label: the end of a rule."""
SKIP = -2
"""Label: nothing is read."""
CALL = -3
"""Label minus the first state of a rule: it is called, and the edge's target follows."""

TOKEN = 0xFF
"""The byte before the text of an added token: UTF-8 does not have it."""

MAX_STATES = 400_000
MAX_DEPTH = 200
"""Expressions within expressions."""
INLINE = 4
"""Repetitions up to this number are written out."""
CHAIN = 1000
"""Repetitions up to this number are calls one after the other, which leads to the fewest places;
beyond, they are sums of powers of two.
"""

ASCII = [(0, 0x7F)]
PLAIN = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E)]
"""Characters below 128 that a string of JSON has as they are."""
ESCAPED = [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0x7F, 0x7F)]
"""The others."""
BY_LENGTH = [(0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
"""Characters of 2, 3 and 4 bytes, without surrogates."""
_SHORT = {8: ord("b"), 9: ord("t"), 10: ord("n"), 12: ord("f"), 13: ord("r")}


class Network:
    """A network that grows.

    Args:
        where: what is compiled, for errors.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.edges: list[list[tuple[int, int]]] = []
        self.rules: dict[str, tuple[int, int]] = {}  # (first state, last state)
        self.wide: dict[str, int] = {}  # sets of characters of several bytes, as rules
        self.counted = 0

    def state(self) -> int:
        """A new state."""
        if len(self.edges) >= MAX_STATES:
            raise self.too_large()
        self.edges.append([])
        return len(self.edges) - 1

    def too_large(self) -> InputError:
        """The error of a format that explodes."""
        return InputError(
            f"the format needs more than {MAX_STATES} states",
            self.where,
            "Lower the numbers of repetitions, or simplify its patterns.",
        )

    def edge(self, source: int, label: int, target: int) -> None:
        """Adds an edge."""
        self.edges[source].append((label, target))

    def bytes(self, source: int, low: int, high: int, target: int) -> None:
        """An edge that reads a byte from `low` to `high`."""
        self.edge(source, low + 256 * high, target)

    def begun(self, name: str) -> tuple[int, int]:
        """The first and the last state of a rule, which may be defined later."""
        found = self.rules.get(name)
        if found is None:
            found = (self.state(), self.state())
            self.edge(found[1], END, found[1])
            self.rules[name] = found
        return found

    def define(self, name: str, node: Node) -> None:
        """Defines a rule."""
        first, last = self.begun(name)
        self.edge(self.add(node, first, False, 0), SKIP, last)

    def add(self, node: Node, source: int, in_string: bool, depth: int) -> int:
        """Adds an expression after a state. Returns the state after it.

        Args:
            node: the expression.
            source: see there.
            in_string: whether characters are written as in a string of JSON.
            depth: expressions around it.
        """
        if depth > MAX_DEPTH:
            raise InputError(
                f"the format has more than {MAX_DEPTH} expressions within each other",
                self.where,
                "Nest fewer groups.",
            )
        if node.kind == "characters":
            target = self.state()
            self.characters(source, node.ranges, target, in_string)
            return target
        if node.kind == "sequence":
            for part in node.parts:
                source = self.add(part, source, in_string, depth + 1)
            return source
        if node.kind == "choice":
            target = self.state()
            for part in node.parts:
                first = self.state()
                self.edge(source, SKIP, first)
                self.edge(self.add(part, first, in_string, depth + 1), SKIP, target)
            return target
        if node.kind == "call":
            target = self.state()
            self.edge(source, CALL - self.begun(node.rule)[0], target)
            return target
        if node.kind == "token":
            return self._token(node.rule, source)
        if node.kind == "quoted":
            return self.add(node.parts[0], source, True, depth + 1)
        if node.automaton is not None:
            return self._automaton(node.automaton, source, in_string)
        return self._repeat(node, source, in_string, depth)

    def _token(self, text: str, source: int) -> int:
        """An added token: its bytes after one that no text has."""
        for byte in [TOKEN, *utf8_bytes(text)]:
            target = self.state()
            self.bytes(source, byte, byte, target)
            source = target
        return source

    # Repetitions

    def _repeat(self, node: Node, source: int, in_string: bool, depth: int) -> int:
        part, least, most = node.parts[0], node.least, node.most
        few = max(least, most) <= INLINE
        if not few:
            part = self._rule_of(part, in_string, depth)
            in_string = False
        if max(least, most) <= CHAIN:
            few = True
        if few or least <= INLINE:
            for _ in range(least):
                source = self.add(part, source, in_string, depth + 1)
        else:
            source = self.add(self._exactly(part, least), source, False, depth + 1)
        if most < 0:
            first = self.state()
            self.edge(source, SKIP, first)
            self.edge(self.add(part, first, in_string, depth + 1), SKIP, first)
            return first
        if not few:
            return self.add(self._up_to(part, most - least), source, False, depth + 1)
        target = self.state()
        self.edge(source, SKIP, target)
        for _ in range(most - least):
            source = self.add(part, source, in_string, depth + 1)
            self.edge(source, SKIP, target)
        return target

    def _rule_of(self, part: Node, in_string: bool, depth: int) -> Node:
        """A rule for a part that is used several times."""
        if part.kind == "call":
            return part
        self.counted += 1
        name = f"({self.counted})"
        first, last = self.begun(name)
        self.edge(self.add(part, first, in_string, depth + 1), SKIP, last)
        return Node("call", rule=name)

    def _exactly(self, part: Node, count: int) -> Node:
        """A rule that is called so many times, as a sum of powers of two."""
        parts: list[Node] = []
        power = 1
        name = part.rule
        while power <= count:
            if power > 1:
                half = Node("call", rule=name)
                name = f"{part.rule}*{power}"
                if name not in self.rules:
                    self.define(name, Node("sequence", [half, half]))
            if count // power % 2:
                parts.append(Node("call", rule=name))
            power *= 2
        parts.reverse()
        return Node("sequence", parts)

    def _up_to(self, part: Node, count: int) -> Node:
        """A rule that is called at most so many times. Each number of times has one way: the
        greatest power of two, and the rest; or fewer than this power.
        """
        if count <= 0:
            return Node("sequence")
        if count == 1:
            return Node("repeat", [part], least=0, most=1)
        name = f"{part.rule}<{count}"
        if name not in self.rules:
            self.begun(name)
            power = 1
            while 2 * power <= count:
                power *= 2
            rest = self._up_to(part, count - power)
            more = Node("sequence", [self._exactly(part, power), rest])
            self.define(name, Node("choice", [more, self._up_to(part, power - 1)]))
        return Node("call", rule=name)

    # Characters

    def _automaton(self, automaton: Automaton, source: int, in_string: bool) -> int:
        states = [self.state() for _ in automaton.edges]
        target = self.state()
        self.edge(source, SKIP, states[0])
        for i, edges in enumerate(automaton.edges):
            by_target: dict[int, list[tuple[int, int]]] = {}
            for low, high, to in edges:
                by_target.setdefault(to, []).append((low, high))
            for to, ranges in by_target.items():
                self.characters(states[i], merged(ranges), states[to], in_string)
            if automaton.accepts[i]:
                self.edge(states[i], SKIP, target)
        return target

    def characters(
        self, source: int, ranges: list[tuple[int, int]], target: int, in_string: bool
    ) -> None:
        """Edges that read one character of ascending ranges."""
        wide: list[tuple[int, int]] = []  # what takes several bytes
        for low, high in ranges:
            if low < 0x80:
                last = min(high, 0x7F)
                for start, end in common([(low, last)], PLAIN if in_string else ASCII):
                    self.bytes(source, start, end, target)
                if in_string:
                    wide.extend(common([(low, last)], ESCAPED))
            if high >= 0x80:
                wide.append((max(low, 0x80), high))
        if not wide:
            return
        name = ",".join([f"{low}-{high}" for low, high in wide])
        first = self.wide.get(name)
        if first is None:
            first, last = self.state(), self.state()
            self.edge(last, END, last)
            for low, high in wide:
                if high < 0x80:
                    self._escaped(first, low, high, last)
            self._utf8(first, [one for one in wide if one[1] >= 0x80], last)
            self.wide[name] = first
        self.edge(source, CALL - first, target)

    def _escaped(self, source: int, low: int, high: int, target: int) -> None:
        """Characters that a string of JSON has after a backslash."""
        for c in range(low, high + 1):
            slash = self.state()
            self.bytes(source, 0x5C, 0x5C, slash)
            if c in (0x22, 0x5C):
                self.bytes(slash, c, c, target)
                continue
            short = _SHORT.get(c, 0)
            if short:
                self.bytes(slash, short, short, target)
            for digit in "u00":
                after = self.state()
                self.bytes(slash, ord(digit), ord(digit), after)
                slash = after
            after = self.state()
            self._digit(slash, c // 16, after)
            self._digit(after, c % 16, target)

    def _digit(self, source: int, value: int, target: int) -> None:
        """A hexadecimal digit, in either case."""
        if value < 10:
            self.bytes(source, 48 + value, 48 + value, target)
        else:
            self.bytes(source, 55 + value, 55 + value, target)
            self.bytes(source, 87 + value, 87 + value, target)

    def _utf8(self, source: int, ranges: list[tuple[int, int]], target: int) -> None:
        """Characters of several bytes. Surrogates have none."""
        tails = [target]  # states that read so many bytes of any value
        for _ in range(3):
            tail = self.state()
            self.bytes(tail, 0x80, 0xBF, tails[-1])
            tails.append(tail)
        for low, high in ranges:
            for part in BY_LENGTH:
                start, end = max(low, part[0]), min(high, part[1])
                if start <= end:
                    length = 2 if end < 0x800 else 3 if end < 0x10000 else 4
                    self._tail(source, start, end, length, True, tails)

    def _tail(
        self, source: int, low: int, high: int, length: int, first: bool, tails: list[int]
    ) -> None:
        """The bytes of code points from `low` to `high` in so many bytes. first: whether the first
        of them is the first byte of the character.
        """
        lead = (0x80, 0, 0xC0, 0xE0, 0xF0)[length if first else 0]
        if length == 1:
            self.bytes(source, lead + low, lead + high, tails[0])
            return
        unit = 64 ** (length - 1)
        one, other = low // unit, high // unit
        if one == other:
            after = self.state()
            self.bytes(source, lead + one, lead + one, after)
            self._tail(after, low % unit, high % unit, length - 1, False, tails)
            return
        if low % unit:
            self._tail(source, low, one * unit + unit - 1, length, first, tails)
            one += 1
        if high % unit != unit - 1:
            self._tail(source, other * unit, high, length, first, tails)
            other -= 1
        if one <= other:
            self.bytes(source, lead + one, lead + other, tails[length - 1])
