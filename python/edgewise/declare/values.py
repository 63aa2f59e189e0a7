"""What a run of a graph has in its hands between plans: tensors in engine memory or as bytes,
tensors of strings, sequences, optionals, maps.

Host operators (`@op.host`, op.py) take and give these. A RunTensor has the fields of a bound Value
that ops look at (dtype, shape, rank, numbers), so that rules for one read like rules for the other.
All of them are immutable: whoever gets one may pass it on as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ..errors import ModelError
from ..session_limits import MAX_COPIED_ITEMS
from .dtypes import BITS, BOOL, INT64, NAME, STRING, bytes_for, pack, unpack
from .symbolic import product


class RunTensor:
    """A tensor of numbers: `memory` (a session.memory.Memory, `offset` bytes into it), or bytes of
    the host in `data`, or both. key: what plans are cached by.
    """

    __slots__ = ("dtype", "shape", "key", "data", "memory", "offset", "_numbers")
    constant, producer, tensor, role, name = False, None, None, "", "a tensor"

    def __init__(
        self,
        dtype: int,
        shape: Iterable[int],
        data: Any = None,
        memory: Any = None,
        offset: int = 0,
        numbers: list[Any] | None = None,
    ) -> None:
        self.dtype, self.shape = dtype, list(shape)
        self.key = (dtype, tuple(shape))
        self.data, self.memory, self.offset, self._numbers = data, memory, offset, numbers

    @staticmethod
    def of(dtype: int, shape: Iterable[int], numbers: list[Any]) -> RunTensor:
        """Of a flat list of Python numbers."""
        return RunTensor(dtype, shape, pack(dtype, numbers), numbers=numbers)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> int:
        return product(self.shape)

    @property
    def nbytes(self) -> int:
        return bytes_for(self.dtype, product(self.shape))

    def bytes(self) -> Any:
        """Its bytes, read back from the engine where they are only there."""
        if self.data is not None:
            return self.data
        n = self.nbytes
        return self.memory.pool.engine.read(self.memory.address + self.offset, n) if n else b""

    @property
    def numbers(self) -> list[Any]:
        if self._numbers is None:
            self._numbers = unpack(self.dtype, bytes(self.bytes()), self.count)
        return self._numbers

    def scalar(self) -> Any:
        """Its one number, or None."""
        return self.numbers[0] if self.count == 1 else None

    def reshaped(self, shape: Iterable[int]) -> Any:
        """The same elements with another shape."""
        return RunTensor(self.dtype, shape, self.data, self.memory, self.offset, self._numbers)

    def rows(self) -> list[Any]:
        """Its slices along the first dimension: the same memory, nothing is copied."""
        shape = self.shape[1:]
        step = bytes_for(self.dtype, product(shape))
        if self.dtype in BITS and product(shape) * BITS[self.dtype] % 8:
            raise ModelError(
                f"rows of {self} do not begin at whole bytes",
                "",
                "Export the model with 8-bit elements.",
            )
        if self.memory is None and self.shape[0] > 1:
            data = memoryview(self.data).cast("B") if len(self.data) else memoryview(b"")
            return [
                RunTensor(self.dtype, shape, data[i * step : (i + 1) * step])
                for i in range(self.shape[0])
            ]
        return [
            RunTensor(
                self.dtype,
                shape,
                None if self.data is None else memoryview(self.data)[i * step : (i + 1) * step],
                self.memory,
                self.offset + i * step,
            )
            for i in range(self.shape[0])
        ]

    def __repr__(self) -> str:
        return f"<{NAME.get(self.dtype, self.dtype)}{self.shape}>"


class StringTensor:
    """A tensor of strings: a flat list of str, which only the host sees. held: what counts its
    memory (session.memory.HostBytes), or None.
    """

    __slots__ = ("shape", "strings", "held")
    key = producer = tensor = None
    dtype, constant, role, name = STRING, False, "", "a tensor of strings"

    def __init__(self, shape: Iterable[int], strings: list[str], held: Any = None) -> None:
        self.shape, self.strings, self.held = list(shape), strings, held

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> int:
        return len(self.strings)

    @property
    def numbers(self) -> list[Any]:
        raise ModelError(
            "strings where numbers are needed",
            "",
            "Check the element types that were fed; if they are right, export the model again.",
        )

    def reshaped(self, shape: Iterable[int]) -> Any:
        return StringTensor(shape, self.strings, self.held)

    def rows(self) -> list[Any]:
        step = product(self.shape[1:])
        return [
            StringTensor(self.shape[1:], self.strings[i * step : (i + 1) * step], self.held)
            for i in range(self.shape[0])
        ]

    def __repr__(self) -> str:
        return f"<string{self.shape}>"


class NoTensor:
    """A value that is no tensor: the fields of a bound Value that ops look at."""

    __slots__ = ()
    key = producer = numbers = tensor = None
    constant, dtype, shape, rank, role = False, -1, (), 0, ""


class Sequence(NoTensor):
    """A sequence of tensors (or of sequences or maps).

    Also what binding keeps of one, then of Values.

    Immutable, as all values; `with_last` takes constant time: the longer sequence shares the list
    of the shorter one, of which each sees its own length.
    """

    __slots__ = ("_items", "_length", "held")
    name = "a sequence"

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = list(items)
        self._length, self.held = len(self._items), None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return islice(self._items, self._length)

    def __getitem__(self, i: int) -> Any:
        """An element, counted from the end where i is negative."""
        if not -self._length <= i < self._length:
            raise IndexError(f"{i} of {self._length}")
        return self._items[i + self._length if i < 0 else i]

    def with_last(self, value: Any) -> Sequence:
        """The sequence with one element more at its end."""
        longer = Sequence.__new__(Sequence)
        longer._items = (
            self._items if len(self._items) == self._length else self._items[: self._length]
        )
        longer._items.append(value)
        longer._length, longer.held = self._length + 1, None
        return longer

    def shares_list_with(self, other: object) -> bool:
        """Whether both are beginnings of one list."""
        return isinstance(other, Sequence) and self._items is other._items

    def __repr__(self) -> str:
        return f"<a sequence of {self._length}>"


def check_copied(items: int, where: str) -> None:
    """Raises ModelError where operators of sequences have copied too many items in one run."""
    if items > MAX_COPIED_ITEMS:
        raise ModelError(
            f"its sequences were copied too often: more than {MAX_COPIED_ITEMS} items",
            where,
            "Insert behind the last item, which copies none; if a loop of the model grows, check"
            " what ends it.",
        )


class Map(NoTensor, dict):
    """A map of ONNX-ML: {int or str: number or str}. key_type, value_type: dtype codes."""

    name = "a map"

    def __init__(self, entries: dict[Any, Any], key_type: int, value_type: int) -> None:
        super().__init__(entries)
        self.held = None
        self.key_type, self.value_type = key_type, value_type

    def __repr__(self) -> str:
        return f"<a map of {len(self)}>"


class Nothing(NoTensor):
    """An optional without a value. One with a value is that value."""

    name = "an optional without a value"

    def __repr__(self) -> str:
        return "<nothing>"


NOTHING = Nothing()


def is_plain(v: Any) -> bool:
    """Whether it is a tensor of numbers (or absent): what plans compute with."""
    return v is None or v.dtype != STRING and v.dtype != -1


def scalar(x: bool | int) -> RunTensor:
    """An int as a scalar int64, a bool as a scalar bool."""
    return RunTensor.of(BOOL if isinstance(x, bool) else INT64, [], [x])
