"""Which shapes the graphs of a model get: the rules that run them are rehearsed at several lengths,
with a host that knows the shapes of tensors and computes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from ...logic.speech.graphs import FREE, Numbers, Port, Signature
from ..bind import bind
from ..declare.dtypes import NAME
from ..declare.registers import Registers
from ..declare.symbolic import Sym
from ..ir import Graph, Info

Found = TypeVar("Found")
Dims = dict[str, list[int]]
MAX_SCALE = 1 << 16  # of a dimension that is a multiple of another one


@dataclass(frozen=True)
class Fed:
    """What a graph was fed in a run.

    Attributes:
        shapes: of its inputs.
        numbers: of inputs of one number, such as a switch between branches.
    """

    shapes: Dims
    numbers: dict[str, list[float]]


@dataclass(frozen=True)
class Pattern:
    """Shapes that one plan may serve.

    Attributes:
        shapes: of inputs; a dimension is a number, or (lengths that are added, scale, what is
            added to them).
        ranges: (lowest, highest value) of each length.
        units: what each length was a multiple of.
        grows: of each length whether it is one more from run to run, while the others stay: it
            goes on so in longer calls.
        numbers: of inputs of one number, as far as all runs had the same.
        rows: the lengths of each run.
    """

    shapes: dict[str, list[int | tuple[tuple[int, ...], int, int]]]
    ranges: list[tuple[int, int]]
    units: list[int]
    grows: list[bool]
    numbers: dict[str, list[float]]
    rows: list[tuple[int, ...]]

    def at(
        self, ranges: Sequence[tuple[int, int]], units: Sequence[int]
    ) -> dict[str, list[int | Sym]]:
        """The shapes with lengths of these ranges, which are multiples of `units`."""
        registers = Registers([(-(-a // u), b // u) for (a, b), u in zip(ranges, units)])

        def dim(of: int | tuple[tuple[int, ...], int, int]) -> int | Sym:
            if isinstance(of, int):
                return of
            lengths, scale, add = of
            total: int | Sym = add
            for i in lengths:
                total = registers.length(i) * (units[i] * scale) + total
            return total

        return {name: [dim(d) for d in dims] for name, dims in self.shapes.items()}

    def below(self, lows: Sequence[int]) -> list[tuple[int, ...]]:
        """The lengths of runs of which one is below these."""
        found = [row for row in self.rows if any(x < low for x, low in zip(row, lows))]
        return list(dict.fromkeys(found))


@dataclass
class Rehearsal:
    """Answers the requests of logic/speech/graphs.py with shapes.

    Attributes:
        graphs: by name.
        value: what numbers that rules read are.
        fed: {name of a graph: what it was fed in each run}.
    """

    graphs: Mapping[str, Graph]
    value: float = 1.0
    fed: dict[str, list[Fed]] = field(default_factory=dict)
    _slots: Dims = field(default_factory=dict)
    _results: Dims = field(default_factory=dict)
    _made: dict[str, Dims] = field(default_factory=dict)

    def signature(self, name: str) -> Signature:
        """The inputs and outputs of a graph."""
        graph = self.graphs[name]
        return Signature(_ports(graph.input_names()), _ports(graph.outputs))

    def signatures(self) -> dict[str, Signature]:
        """Of all graphs."""
        return {name: self.signature(name) for name in self.graphs}

    def put(self, name: str, dims: Sequence[int]) -> None:
        """Keeps a value of a shape."""
        self._slots[name] = list(dims)

    def result(self, name: str) -> list[int]:
        """The shape of a result, which then begins anew."""
        return self._results.pop(name)

    def drive(self, steps: Generator[Any, Any, Found]) -> Found:
        """What a generator of requests returns."""
        answer = None
        try:
            while True:
                answer = self._answer(steps.send(answer))
        except StopIteration as end:
            return end.value

    def _answer(self, request: Any) -> dict[str, Numbers] | None:
        if request.kind == "run":
            return self._run(request)
        if request.kind == "append":
            part = request.part
            dims = [*self._dims(part.name)[:-1], part.count]
            self._add(request.to, part.dims or dims, request.axis == "first")
        else:
            self._add(request.to, request.numbers.dims, False)
        return None

    def _add(self, name: str, dims: Sequence[int], first: bool) -> None:
        before = self._results.get(name)
        axis = 0 if first or len(dims) < 2 else -1
        made = list(dims)
        if before is not None:
            made[axis] += before[axis]
        self._results[name] = made

    def _dims(self, name: str) -> list[int]:
        if name not in self._slots and "/" in name:  # one of the first axis
            return self._dims(name.rsplit("/", 1)[0])[1:]
        return self._slots[name]

    def _run(self, request: Any) -> dict[str, Numbers]:
        graph = self.graphs[request.graph]
        shapes, numbers = Dims(), dict[str, list[float]]()
        for name, feed in request.feeds.items():
            if feed.kind == "numbers":
                shapes[name] = list(feed.dims)
                if math.prod(feed.dims) == 1 and len(feed.data):
                    numbers[name] = list(feed.data)
            elif feed.kind == "part":
                shapes[name] = feed.dims or [*self._dims(feed.name)[:-1], feed.count]
            else:
                shapes[name] = feed.dims or self._dims(feed.name)
        made = self._outputs(request.graph, graph, shapes, numbers)
        self.fed.setdefault(request.graph, []).append(Fed(shapes, numbers))
        for name, slot in request.keep.items():
            self._slots[slot] = made[name]
        found = {name: Numbers(made[name], [], "") for name in request.keep}
        for name in request.read:
            count = math.prod(made[name])
            found[name] = Numbers(made[name], [self.value] * count)
        return found

    def _outputs(
        self, name: str, graph: Graph, shapes: Dims, numbers: Mapping[str, list[float]]
    ) -> Dims:
        """The shapes of a graph's outputs."""
        key = f"{name} {sorted(shapes.items())} {sorted(numbers.items())}"
        if key not in self._made:
            dtypes = {i.name: i.dtype for i in graph.input_names()}
            known = {n: _typed(x, dtypes[n]) for n, x in numbers.items()}
            bound = bind(graph, shapes, dtypes, known, run_seed=True, jumps=True)
            self._made[key] = {n: [int(d) for d in v.shape] for n, v in bound.outputs.items()}
        return self._made[key]


def _typed(numbers: Sequence[float], dtype: int) -> list[Any]:
    kind = NAME[dtype]
    if kind == "bool":
        return [bool(x) for x in numbers]
    return list(numbers) if "float" in kind else [int(x) for x in numbers]


def _ports(infos: Sequence[Info]) -> list[Port]:
    return [
        Port(
            info.name,
            NAME.get(info.dtype, ""),
            [d if type(d) is int and d >= 0 else FREE for d in info.shape or ()],
        )
        for info in infos
    ]


def patterns_of(runs: Sequence[Fed]) -> list[Pattern]:
    """The patterns that the shapes of runs follow: those of runs whose dimensions of 0 and 1 are
    the same, since these are broadcast by other rules.
    """
    groups: dict[str, list[Fed]] = {}
    for fed in runs:
        key = str([(n, [min(d, 2) for d in dims]) for n, dims in sorted(fed.shapes.items())])
        groups.setdefault(key, []).append(fed)
    return [_pattern(group) for group in groups.values()]


def _pattern(runs: Sequence[Fed]) -> Pattern:
    first = runs[0]
    places = [(name, axis) for name, dims in first.shapes.items() for axis in range(len(dims))]
    columns = {(n, a): [fed.shapes[n][a] for fed in runs] for n, a in places}
    lengths: list[list[int]] = []
    found: dict[tuple[str, int], int | tuple[tuple[int, ...], int, int]] = {}
    for place in sorted(places, key=lambda p: max(columns[p])):
        column = columns[place]
        if min(column) == max(column):
            found[place] = column[0]
            continue
        known = _follows(column, lengths)
        if known is None:
            known = ((len(lengths),), 1, 0)
            lengths.append(column)
        found[place] = known
    shapes = {n: [found[n, a] for a in range(len(dims))] for n, dims in first.shapes.items()}
    same = {n: x for n, x in first.numbers.items() if all(f.numbers.get(n) == x for f in runs)}
    rows = list(zip(*lengths))
    steps = [[y - x for x, y in zip(a, b)] for a, b in pairwise(rows)]
    single = [[i for i, d in enumerate(s) if d] if max(s, default=0) == 1 else [] for s in steps]
    grows = [any(a == b == [i] for a, b in pairwise(single)) for i in range(len(lengths))]
    units = [math.gcd(*of) for of in lengths]
    return Pattern(shapes, [(min(of), max(of)) for of in lengths], units, grows, same, rows)


def _follows(
    column: Sequence[int], lengths: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], int, int] | None:
    """How a dimension follows from lengths: a multiple of one, or the sum of two."""
    for i, of in enumerate(lengths):
        low, high = of.index(min(of)), of.index(max(of))
        scale, rest = divmod(column[high] - column[low], of[high] - of[low])
        add = column[low] - scale * of[low]
        if rest or not 0 < scale <= MAX_SCALE:
            continue
        if all(scale * x + add == y for x, y in zip(of, column)):
            return (i,), scale, add
    for i, of in enumerate(lengths):
        for j, other in enumerate(lengths[:i]):
            add = column[0] - of[0] - other[0]
            if all(x + y + add == z for x, y, z in zip(of, other, column)):
                return (j, i), 1, add
    return None
