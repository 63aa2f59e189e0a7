"""A network without dead ends, checked and packed for the engine."""

from __future__ import annotations

from ...errors import InputError
from .network import CALL, END, SKIP, Network

Edges = list[list[tuple[int, int]]]


def program_of(network: Network, start: str, unsatisfiable: str) -> list[int]:
    """The words that core/sampling/grammar.c reads.

    Args:
        network: with all rules defined.
        start: the first rule.
        unsatisfiable: what is wrong if there is no text at all.

    Raises:
        InputError: no text is possible, or a rule begins with itself.
    """
    first = network.rules[start][0]
    useful = _useful(network.edges)
    if not useful[first]:
        raise InputError(unsatisfiable, network.where, "Loosen what contradicts itself.")
    edges: Edges = []
    for found in network.edges:
        edges.append(
            [
                (label, target)
                for label, target in found
                if label == END or (useful[target] and (label > CALL or useful[CALL - label]))
            ]
        )
    edges, first = _short(edges, first)
    _check_recursion(edges, network.where)
    at: list[int] = [0]
    flat: list[int] = []
    for some in edges:
        for label, target in some:
            flat.append(label)
            flat.append(target)
        at.append(len(flat) // 2)
    return [len(edges), first, len(flat) // 2, *at, *flat]


def _useful(edges: Edges) -> list[bool]:
    """Of each state, whether a text leads from it to the end of its rule."""
    before: list[list[tuple[int, int]]] = [[] for _one in edges]  # (state, the rule called or -1)
    useful = [False for _one in edges]
    waiting: list[int] = []
    for state, some in enumerate(edges):
        for label, target in some:
            if label == END:
                if not useful[state]:
                    useful[state] = True
                    waiting.append(state)
            elif label <= CALL:
                before[target].append((state, CALL - label))
                before[CALL - label].append((state, target))
            else:
                before[target].append((state, -1))
    while waiting:
        for state, other in before[waiting.pop()]:
            if not useful[state] and (other < 0 or useful[other]):
                useful[state] = True
                waiting.append(state)
    return useful


def _short(edges: Edges, first: int) -> tuple[Edges, int]:
    """The states that are reached from the first one, without those that do nothing but skip."""
    skips = [_skipped(edges, state) for state in range(len(edges))]
    number: dict[int, int] = {}
    order: list[int] = []

    def of(state: int) -> int:
        to = skips[state]
        if to not in number:
            number[to] = len(order)
            order.append(to)
        return number[to]

    start = of(first)
    made: Edges = []
    while len(made) < len(order):
        state = order[len(made)]
        some: list[tuple[int, int]] = []
        for label, target in edges[state]:
            if label <= CALL:
                label = CALL - of(CALL - label)
            one = (label, 0 if label == END else of(target))
            if one not in some:
                some.append(one)
        made.append(some)
    return made, start


def _skipped(edges: Edges, state: int) -> int:
    """The state after skips that are the only way."""
    steps = 0
    while len(edges[state]) == 1 and edges[state][0][0] == SKIP and steps < len(edges):
        state = edges[state][0][1]
        steps += 1
    return state


def _check_recursion(edges: Edges, where: str) -> None:
    """Raises InputError if a rule can call itself before anything is read."""
    empty = _empty(edges)
    after: list[list[int]] = []
    for some in edges:
        reached: list[int] = []
        for label, target in some:
            if label <= CALL:
                reached.append(CALL - label)
            if label < END and (label > CALL or empty[CALL - label]):
                reached.append(target)
        after.append(reached)
    # a cycle with a call in it: components of Tarjan's algorithm, without recursion
    component = _components(after)
    for state, some in enumerate(edges):
        for label, _target in some:
            if label <= CALL and component[CALL - label] == component[state]:
                raise InputError(
                    "a rule can call itself before it has read anything",
                    where,
                    "Write `list: item | list item` as `list: item+`.",
                )


def _empty(edges: Edges) -> list[bool]:
    """Of each state, whether its rule can end there without reading."""
    before: list[list[tuple[int, int]]] = [[] for _one in edges]
    empty = [False for _one in edges]
    waiting: list[int] = []
    for state, some in enumerate(edges):
        for label, target in some:
            if label == END:
                if not empty[state]:
                    empty[state] = True
                    waiting.append(state)
            elif label <= CALL:
                before[target].append((state, CALL - label))
                before[CALL - label].append((state, target))
            elif label < 0:
                before[target].append((state, -1))
    while waiting:
        for state, other in before[waiting.pop()]:
            if not empty[state] and (other < 0 or empty[other]):
                empty[state] = True
                waiting.append(state)
    return empty


def _components(after: list[list[int]]) -> list[int]:
    """The number of the strongly connected component of each state."""
    count = len(after)
    index = [-1 for _i in range(count)]
    low = [0 for _i in range(count)]
    component = [-1 for _i in range(count)]
    stack: list[int] = []
    found = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            state, at = work.pop()
            if at == 0:
                index[state] = low[state] = found
                found += 1
                stack.append(state)
            elif component[after[state][at - 1]] < 0:
                low[state] = min(low[state], low[after[state][at - 1]])
            entered = False
            while at < len(after[state]):
                other = after[state][at]
                at += 1
                if index[other] < 0:
                    work.append((state, at))
                    work.append((other, 0))
                    entered = True
                    break
                if component[other] < 0:
                    low[state] = min(low[state], index[other])
            if entered:
                continue
            if low[state] == index[state]:
                while component[state] < 0:
                    component[stack.pop()] = state
    return component
