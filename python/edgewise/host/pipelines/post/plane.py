"""Outputs of graphs as numbers, with and without NumPy."""

from __future__ import annotations

import math
from typing import Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import FLOAT, pack, unpack

__all__ = ["Plane"]


class Plane:
    """An output of a graph as flat numbers.

    Attributes:
        shape: dimensions.
        numbers: elements in row-major order.
        code: of their type.
    """

    def __init__(self, value: Any) -> None:
        self.code, self.shape, data = as_input(value, "output")
        count = 1
        for d in self.shape:
            count *= d
        self.numbers: Any = (
            memoryview(data).cast("B").cast("f")
            if self.code == FLOAT and count
            else unpack(self.code, bytes(data), count)
        )

    def cut(self, rows: int) -> None:
        """Leaves out what follows the first `rows` of the second dimension; the first is 1."""
        self.shape = [1, rows, *self.shape[2:]]
        self.numbers = self.numbers[: math.prod(self.shape)]

    def crop(self, rows: int, columns: int) -> None:
        """Leaves out all but the first rows and columns of the last two dimensions."""
        height, width = self.shape[-2:]
        if (rows, columns) == (height, width):
            return
        count = math.prod(self.shape[:-2])
        starts = [(i * height + y) * width for i in range(count) for y in range(rows)]
        parts = [bytes(pack(FLOAT, self.numbers[at : at + columns])) for at in starts]
        self.code, self.shape = FLOAT, [*self.shape[:-2], rows, columns]
        self.numbers = memoryview(b"".join(parts)).cast("f")

    def row(self, *index: int) -> list[float]:
        """The numbers of the last dimension at an index of the others."""
        at, size = 0, self.shape[-1]
        for i, d in zip(index, self.shape):
            at = at * d + i
        return list(self.numbers[at * size : (at + 1) * size])

    @property
    def data(self) -> bytes:
        """The elements, of their type."""
        given = self.numbers
        return bytes(given) if isinstance(given, memoryview) else pack(self.code, given)

    def array(self, *shape: int) -> Any:
        """The elements as float32 of another shape."""
        given = self.numbers
        data = given.cast("B") if isinstance(given, memoryview) else pack(FLOAT, given)
        return Array(shape or self.shape, "float32", data)
