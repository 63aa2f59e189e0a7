"""The values of a run between plans: tensors in the memory of the engine or as bytes, tensors of
strings, sequences, optionals and maps.

They are the arguments and results of host operators (`@op.host`, op.py). A RunTensor has the fields
of a bound Value that rules read (dtype, shape, rank, numbers). All values are immutable, so that
they can be passed on without a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from ...errors import ModelError
from ..session_limits import MAX_COPIED_ITEMS
from .dtypes import BITS, BOOL, INT64, NAME, STRING, bytes_for, pack, unpack
from .symbolic import product


class RunTensor:
    """A tensor of numbers, in the memory of the engine, or as bytes of the host, or both.

    Attributes:
        key: (dtype, shape), by which plans are cached.
        data: Its bytes, or None.
        memory, offset: A session.memory.Memory and the offset in bytes, or None and 0.
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
        """A tensor from a flat list of numbers."""
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
        """Its bytes; they are read from the engine where the host does not have them."""
        if self.data is not None:
            return self.data
        n = self.nbytes
        return self.memory.read(self.offset, n) if n else b""

    @property
    def numbers(self) -> list[Any]:
        if self._numbers is None:
            self._numbers = unpack(self.dtype, bytes(self.bytes()), self.count)
        return self._numbers

    def scalar(self) -> Any:
        """Its only number; None where it has more or fewer."""
        return self.numbers[0] if self.count == 1 else None

    def reshaped(self, shape: Iterable[int]) -> Any:
        """The same elements with another shape."""
        return RunTensor(self.dtype, shape, self.data, self.memory, self.offset, self._numbers)

    def rows(self) -> list[Any]:
        """Its slices along the first dimension, in the same memory."""
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
    """A tensor of strings, which only the host can use.

    Attributes:
        strings: A flat list of str.
        held: The session.memory.HostBytes that counts its memory, or None.
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
    """A value that is not a tensor, with the fields of a bound Value that rules read."""

    __slots__ = ()
    key = producer = numbers = tensor = None
    constant, dtype, shape, rank, role = False, -1, (), 0, ""


class Sequence(NoTensor):
    """A sequence of tensors, of sequences or of maps; while a graph is bound, of Values.

    `with_last` takes constant time: both sequences share one list, and each has its own length.
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
        """Element i, from the end where i is negative."""
        if not -self._length <= i < self._length:
            raise IndexError(f"{i} of {self._length}")
        return self._items[i + self._length if i < 0 else i]

    def with_last(self, value: Any) -> Sequence:
        """The sequence with one more element at its end."""
        longer = Sequence.__new__(Sequence)
        longer._items = (
            self._items if len(self._items) == self._length else self._items[: self._length]
        )
        longer._items.append(value)
        longer._length, longer.held = self._length + 1, None
        return longer

    def shares_list_with(self, other: object) -> bool:
        """Whether both are prefixes of one list."""
        return isinstance(other, Sequence) and self._items is other._items

    def __repr__(self) -> str:
        return f"<a sequence of {self._length}>"


def check_copied(items: int, where: str) -> None:
    """Raises ModelError where operators of sequences have copied too many items in one run."""
    if items > MAX_COPIED_ITEMS:
        raise ModelError(
            f"its sequence operators copied more than {MAX_COPIED_ITEMS} items",
            where,
            "Append behind the last item, which copies none; if a loop of the model grows, check"
            " what ends it.",
        )


class Map(NoTensor, dict[Any, Any]):
    """A map of ONNX-ML, {int or str: number or str}.

    Attributes:
        key_type, value_type: ONNX codes of element types.
    """

    name = "a map"

    def __init__(self, entries: dict[Any, Any], key_type: int, value_type: int) -> None:
        super().__init__(entries)
        self.held = None
        self.key_type, self.value_type = key_type, value_type

    def __repr__(self) -> str:
        return f"<a map of {len(self)}>"


class Nothing(NoTensor):
    """An optional without a value. An optional with a value is represented by the value."""

    name = "an optional without a value"

    def __repr__(self) -> str:
        return "<nothing>"


NOTHING = Nothing()


def is_plain(v: Any) -> bool:
    """Whether a value is a tensor of numbers, with which plans compute, or absent."""
    return v is None or v.dtype != STRING and v.dtype != -1


def scalar(x: bool | int) -> RunTensor:
    """A scalar tensor: int64 of an int, bool of a bool."""
    return RunTensor.of(BOOL if isinstance(x, bool) else INT64, [], [x])
