"""Outputs of graphs as numbers, with and without NumPy."""

from __future__ import annotations

from typing import Any

from ....compiler.arrays import Array, as_input
from ....compiler.declare.dtypes import FLOAT, pack, unpack

__all__ = ["Plane"]


class Plane:
    """An output of a graph as flat numbers.

    Attributes:
        shape: dimensions.
        numbers: elements in row-major order.
    """

    def __init__(self, value: Any) -> None:
        code, self.shape, data = as_input(value, "output")
        count = 1
        for d in self.shape:
            count *= d
        self.numbers: Any = (
            memoryview(data).cast("B").cast("f")
            if code == FLOAT and count
            else unpack(code, bytes(data), count)
        )

    def array(self, *shape: int) -> Any:
        """The elements as float32 of another shape."""
        given = self.numbers
        data = given.cast("B") if isinstance(given, memoryview) else pack(FLOAT, given)
        return Array(shape or self.shape, "float32", data)
