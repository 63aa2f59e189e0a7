"""Deterministic automata on characters: where texts have to fit several things at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import InputError
from .nodes import MAX_CHARACTER, Automaton, Node

MAX_STATES = 10_000


class _Nondeterministic:
    """Thompson's construction of an expression without calls."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.skips: list[list[int]] = []
        self.reads: list[list[tuple[int, int, int]]] = []

    def state(self) -> int:
        """A new state."""
        if len(self.skips) >= MAX_STATES:
            raise too_large(self.where)
        self.skips.append([])
        self.reads.append([])
        return len(self.skips) - 1

    def add(self, node: Node, source: int) -> int:
        """Adds an expression after a state. Returns the state after it."""
        if node.kind == "characters":
            target = self.state()
            for low, high in node.ranges:
                self.reads[source].append((low, high, target))
            return target
        if node.kind == "sequence":
            for part in node.parts:
                source = self.add(part, source)
            return source
        if node.kind == "choice":
            target = self.state()
            for part in node.parts:
                self.skips[self.add(part, source)].append(target)
            return target
        if node.automaton is not None:
            return self._embed(node.automaton, source)
        part = node.parts[0]
        for _ in range(node.least):
            source = self.add(part, source)
        if node.most < 0:
            first = self.state()
            self.skips[source].append(first)
            self.skips[self.add(part, first)].append(first)
            return first
        target = self.state()
        self.skips[source].append(target)
        for _ in range(node.most - node.least):
            source = self.add(part, source)
            self.skips[source].append(target)
        return target

    def _embed(self, automaton: Automaton, source: int) -> int:
        states = [self.state() for _ in automaton.edges]
        target = self.state()
        self.skips[source].append(states[0])
        for i, edges in enumerate(automaton.edges):
            for low, high, to in edges:
                self.reads[states[i]].append((low, high, states[to]))
            if automaton.accepts[i]:
                self.skips[states[i]].append(target)
        return target

    def closed(self, states: Sequence[int]) -> list[int]:
        """The states and those that follow by skips, in ascending order."""
        found = set(states)
        waiting = list(states)
        while waiting:
            for other in self.skips[waiting.pop()]:
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        return sorted(found)


def too_large(where: str) -> InputError:
    """The error of texts with too many states."""
    return InputError(
        f"the texts that are allowed need more than {MAX_STATES} states",
        where,
        "Lower minLength, maxLength or the repetitions of the pattern, or leave one of them out.",
    )


def automaton_of(node: Node, where: str) -> Automaton:
    """The automaton of an expression without calls."""
    if node.automaton is not None:
        return node.automaton
    loose = _Nondeterministic(where)
    first = loose.state()
    last = loose.add(node, first)
    start = loose.closed([first])
    sets = [start]
    numbers: dict[str, int] = {_name(start): 0}
    edges: list[list[tuple[int, int, int]]] = []
    at = 0
    while at < len(sets):
        made: list[tuple[int, int, int]] = []
        reads = [read for state in sets[at] for read in loose.reads[state]]
        for low, high in _pieces([(low, high) for low, high, _ in reads]):
            targets = loose.closed([to for one, two, to in reads if one <= low and high <= two])
            name = _name(targets)
            if name not in numbers:
                if len(sets) >= MAX_STATES:
                    raise too_large(where)
                numbers[name] = len(sets)
                sets.append(targets)
            made.append((low, high, numbers[name]))
        edges.append(made)
        at += 1
    return trimmed(Automaton(edges, [last in states for states in sets]))


def _name(states: Sequence[int]) -> str:
    return ",".join([str(state) for state in states])


def _pieces(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges cut at each other's ends, without what none of them has."""
    cuts = sorted({low for low, _ in ranges} | {high + 1 for _, high in ranges})
    made: list[tuple[int, int]] = []
    for i in range(len(cuts) - 1):
        if any(low <= cuts[i] <= high for low, high in ranges):
            made.append((cuts[i], cuts[i + 1] - 1))
    return made


def trimmed(automaton: Automaton) -> Automaton:
    """Without edges from which no text ends."""
    before: list[list[int]] = [[] for _ in automaton.edges]
    for state, edges in enumerate(automaton.edges):
        for _, _, to in edges:
            before[to].append(state)
    useful = list(automaton.accepts)
    waiting = [state for state, accepts in enumerate(useful) if accepts]
    while waiting:
        for state in before[waiting.pop()]:
            if not useful[state]:
                useful[state] = True
                waiting.append(state)
    kept = [[edge for edge in some if useful[edge[2]]] for some in automaton.edges]
    return Automaton(kept, automaton.accepts)


def is_empty(automaton: Automaton) -> bool:
    """Whether it has no text. automaton: trimmed."""
    return not automaton.accepts[0] and not automaton.edges[0]


def product(
    a: Automaton, b: Automaton, both: Callable[[bool, bool], bool], where: str
) -> Automaton:
    """The automaton that runs two at once.

    Args:
        a, b: automata.
        both: whether a text is accepted, given whether each of them accepts it.
        where: for errors.
    """
    pairs = [(0, 0)]
    numbers: dict[str, int] = {"0,0": 0}
    edges: list[list[tuple[int, int, int]]] = []
    accepts: list[bool] = []
    at = 0
    while at < len(pairs):
        one, two = pairs[at]
        at += 1
        accepts.append(both(one >= 0 and a.accepts[one], two >= 0 and b.accepts[two]))
        left = a.edges[one] if one >= 0 else []
        right = b.edges[two] if two >= 0 else []
        made: list[tuple[int, int, int]] = []
        for low, high in _pieces([(x, y) for x, y, _ in left] + [(x, y) for x, y, _ in right]):
            pair = (_target(left, low), _target(right, low))
            name = f"{pair[0]},{pair[1]}"
            if name not in numbers:
                if len(pairs) >= MAX_STATES:
                    raise too_large(where)
                numbers[name] = len(pairs)
                pairs.append(pair)
            made.append((low, high, numbers[name]))
        edges.append(made)
    return trimmed(Automaton(edges, accepts))


def _target(edges: Sequence[tuple[int, int, int]], c: int) -> int:
    for low, high, to in edges:
        if low <= c <= high:
            return to
    return -1


def intersection(a: Automaton, b: Automaton, where: str) -> Automaton:
    """The texts of both."""
    return product(a, b, lambda one, two: one and two, where)


def difference(a: Automaton, b: Automaton, where: str) -> Automaton:
    """The texts of the first that are not of the second."""
    return product(a, b, lambda one, two: one and not two, where)


def fits(automaton: Automaton, text: str) -> bool:
    """Whether a text is accepted."""
    state = 0
    for c in text:
        state = _target(automaton.edges[state], ord(c))
        if state < 0:
            return False
    return automaton.accepts[state]


def anything() -> Automaton:
    """All texts."""
    return Automaton([[(0, MAX_CHARACTER, 0)]], [True])


def counted(least: int, most: int, where: str) -> Automaton:
    """All texts of a length. most: -1: of any."""
    last = least if most < 0 else most
    if last >= MAX_STATES:
        raise too_large(where)
    edges: list[list[tuple[int, int, int]]] = []
    for i in range(last + 1):
        to = i + 1 if i < last else i
        edges.append([(0, MAX_CHARACTER, to)] if i < last or most < 0 else [])
    return Automaton(edges, [i >= least for i in range(last + 1)])


def texts(values: Sequence[str]) -> Automaton:
    """Some texts, as a tree of their characters."""
    children: list[dict[int, int]] = [{}]
    accepts = [False]
    for value in values:
        state = 0
        for c in value:
            found = children[state].get(ord(c))
            if found is None:
                found = len(children)
                children[state][ord(c)] = found
                children.append({})
                accepts.append(False)
            state = found
        accepts[state] = True
    return Automaton([[(c, c, to) for c, to in sorted(one.items())] for one in children], accepts)
