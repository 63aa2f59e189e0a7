"""Answers what logic/speech/graphs.py asks for: runs graphs, keeps large values and results."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import CODE, FLOAT16, FLOATS, NAME, bits_of, pack, unpack
from ....compiler.ir import Info
from ....errors import InputError
from ....logic.speech.graphs import (
    FREE,
    Append,
    Feed,
    Give,
    Numbers,
    Part,
    Port,
    Request,
    Run,
    Signature,
)
from ....seeds import seed_of_run
from ...drive import drive
from ...session import RunOptions
from ...session.packaged import ProgramSession

Value = tuple[int, list[int], memoryview]
"""dtype code, shape and bytes of a value that is kept."""


def signature_of(session: Any) -> Signature:
    """The inputs and outputs of a session, or of a program of a package."""
    most = session.most if isinstance(session, ProgramSession) else {}
    return Signature(_ports(session.inputs, most), _ports(session.outputs, {}))


def _ports(infos: Mapping[str, Info], most: Mapping[str, int]) -> list[Port]:
    return [
        Port(
            info.name,
            NAME.get(info.dtype, ""),
            [d if type(d) is int and d >= 0 else FREE for d in info.shape or ()],
            most.get(info.name, 0),
        )
        for info in infos.values()
    ]


class GraphHost:
    """A call of logic that runs graphs.

    Args:
        session: gives the session of a graph by its name.
        check: is called before each run; raises Aborted.
        seed: of the random numbers of the runs; None: they are unpredictable.

    Attributes:
        slots: what is kept.
        results: {name: pieces} of what was appended.
    """

    def __init__(
        self,
        session: Callable[[str], Any],
        check: Callable[[], None] = lambda: None,
        seed: int | None = None,
    ) -> None:
        self.session, self.check, self.seed, self.runs = session, check, seed, 0
        self.slots: dict[str, Value] = {}
        self.readers: dict[str, Callable[[int, int], bytes]] = {}
        self.results: dict[str, list[tuple[Value, str]]] = {}

    def put(self, name: str, value: Any) -> list[int]:
        """Keeps a value; returns its shape."""
        dtype, shape, data = as_input(value, name)
        self.slots[name] = (dtype, list(shape), memoryview(data).cast("B"))
        return list(shape)

    def read(self, name: str, reader: Callable[[int, int], bytes]) -> None:
        """Keeps samples, float32 [n], that are read where they are needed.

        Args:
            reader: gives (start, count) of them, fewer at their end.
        """
        self.readers[name] = reader

    def drive(self, steps: Any) -> Any:
        """What a generator of requests returns."""
        return drive(steps, self.answer)

    def answer(self, request: Request) -> dict[str, Numbers] | None:
        """Does what a request asks for."""
        if request.kind == "run":
            return self._run(request)
        if request.kind == "append":
            self._append(request)
        else:
            self._give(request)
        return None

    def _run(self, request: Run) -> dict[str, Numbers]:
        self.check()
        session = self.session(request.graph)
        feeds = {
            name: self._fed(feed, session.inputs[name].dtype)
            for name, feed in request.feeds.items()
        }
        names = [*request.keep, *request.read]
        options = None
        if self.seed is not None:
            options = RunOptions()
            options.seed = seed_of_run(self.seed, self.runs)
            self.runs += 1
        made = dict(zip(names, session.run(names, feeds, options), strict=True))
        found: dict[str, Numbers] = {}
        for name, slot in request.keep.items():
            found[name] = Numbers(self.put(slot, made[name]), [], "")
        for name in request.read:
            dtype, shape, data = as_input(made[name], name)
            found[name] = Numbers(list(shape), numbers_of(dtype, shape, data), NAME[dtype])
        return found

    def _fed(self, feed: Feed, dtype: int) -> Array:
        """The value of an input of a type."""
        if feed.kind == "numbers":
            return Array(tuple(feed.dims), NAME[dtype], _packed(feed, dtype))
        own, shape, data = self._part(feed) if feed.kind == "part" else self._value(feed.name)
        shape = feed.dims or shape
        if own != dtype:
            own, data = dtype, memoryview(_cast(own, shape, data, dtype))
        return Array(tuple(shape), NAME[own], data)  # which nobody changes

    def _value(self, name: str) -> Value:
        if name not in self.slots and "/" in name:  # one of the first axis
            base, at = name.rsplit("/", 1)
            dtype, shape, data = self.slots[base]
            size = len(data) // max(1, shape[0])
            return dtype, shape[1:], data[int(at) * size : (int(at) + 1) * size]
        return self.slots[name]

    def _part(self, part: Part) -> Value:
        reader = self.readers.get(part.name)
        if reader is not None:
            data = reader(part.start, part.count).ljust(4 * part.count, b"\0")
            return CODE["float32"], [part.count], memoryview(data)
        dtype, shape, whole = self._value(part.name)
        shape, whole = cut(dtype, shape, whole, part.start, part.count)
        return dtype, shape, whole

    def _append(self, request: Append) -> None:
        part: Part = request.part
        dtype, shape, data = self._part(part)
        piece: Value = (dtype, part.dims or shape, memoryview(bytes(data)))
        self.results.setdefault(request.to, []).append((piece, request.axis))

    def _give(self, request: Give) -> None:
        numbers = request.numbers
        dtype = CODE[numbers.dtype]
        data = memoryview(_packed(numbers, dtype))
        self.results.setdefault(request.to, []).append(((dtype, numbers.dims, data), "last"))

    def result(self, name: str) -> Any:
        """A result as an array. Floats become float32."""
        pieces = self.results.get(name)
        if not pieces:
            return None
        axis = pieces[0][1]
        values = [_as_float(piece) for piece, _ in pieces]
        dtype, first, _ = values[0]
        shape = list(first)
        if axis == "first" or len(shape) < 2:
            shape[0] = sum(of[0] for _, of, _ in values)
            return as_output(dtype, shape, b"".join(data for _, _, data in values))
        shape[-1] = sum(of[-1] for _, of, _ in values)
        rows = _rows(shape)
        joined = []
        for row in range(rows):
            for _, of, data in values:
                size = of[-1] * bits_of(dtype) // 8
                joined.append(data[row * size : (row + 1) * size])
        return as_output(dtype, shape, b"".join(joined))


def numbers_of(dtype: int, shape: list[int], data: Any) -> array[float] | list[float]:
    """The numbers of a value."""
    count = 1
    for d in shape:
        count *= d
    raw = memoryview(data).cast("B") if count else memoryview(b"")
    if dtype == CODE["float32"]:
        return array("f", raw.tobytes())
    return unpack(dtype, raw, count)


def _packed(feed: Numbers, dtype: int) -> bytes:
    """The bytes of a tensor; without data zeros."""
    count = math.prod(feed.dims)
    return (
        pack(dtype, _numbers(feed, dtype)) if len(feed.data) else bytes(count * bits_of(dtype) // 8)
    )


def _numbers(feed: Numbers, dtype: int) -> list[Any]:
    if dtype == CODE["bool"]:
        return [bool(x) for x in feed.data]
    return [*feed.data] if dtype in FLOATS else [int(x) for x in feed.data]


def _rows(shape: list[int]) -> int:
    rows = 1
    for d in shape[:-1]:
        rows *= d
    return rows


def cut(
    dtype: int, shape: list[int], data: memoryview, start: int, count: int
) -> tuple[list[int], memoryview]:
    """A part of the last axis of a value, with zeros beyond its ends."""
    size, item = shape[-1], bits_of(dtype) // 8
    if start == 0 and count == size:
        return shape, data
    first, last = max(0, start), max(0, min(size, start + count))
    rows = []
    for row in range(_rows(shape)):
        at = row * size
        inner = bytes(data[(at + first) * item : (at + max(first, last)) * item])
        before = bytes(item * min(count, max(0, first - start)))
        rows.append((before + inner).ljust(count * item, b"\0"))
    return [*shape[:-1], count], memoryview(b"".join(rows))


def _cast(dtype: int, shape: list[int], data: memoryview, to: int) -> bytes:
    values = numbers_of(dtype, shape, data)
    if to in FLOATS:
        return pack(to, [*values])
    if dtype in FLOATS:
        raise InputError(f"it is {NAME[dtype]}, the graph takes {NAME[to]}", "codec", "Convert it.")
    return pack(to, [int(x) for x in values])


def _as_float(value: Value) -> Value:
    """float16 as float32."""
    dtype, shape, data = value
    if dtype != FLOAT16 and (dtype not in FLOATS or dtype == CODE["float32"]):
        return value
    return CODE["float32"], shape, memoryview(_cast(dtype, shape, data, CODE["float32"]))
