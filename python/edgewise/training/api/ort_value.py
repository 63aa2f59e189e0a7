"""OrtValue of edgewise.training.api."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays import Array, as_output
from ...declare.dtypes import NAME


class OrtValue:
    """A tensor with the methods of onnxruntime.OrtValue that training code uses.

    Args:
        dtype: ONNX element type.
        shape: dimensions.
        data: elements, little-endian.
    """

    def __init__(self, dtype: int, shape: Sequence[int], data: bytes) -> None:
        self._value = dtype, list(shape), data

    def numpy(self) -> Any:
        """The tensor as an array; without NumPy, an edgewise.Array."""
        return as_output(*self._value)

    def shape(self) -> list[int]:
        """The dimensions, as onnxruntime.OrtValue.shape()."""
        return list(self._value[1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return Array(self._value[1], NAME[self._value[0]], self._value[2]).__array__(dtype, copy)

    def __len__(self) -> int:
        return self._value[1][0]


__all__ = ["OrtValue"]
