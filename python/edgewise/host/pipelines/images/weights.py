"""Positions and weights of logic.images.taps as matrices, for graphs."""

from __future__ import annotations

from array import array

from ....compiler.arrays import Array
from ....logic.images.taps import Taps

__all__ = ["matrix"]


def matrix(taps: Taps, size: int, out: int, turned: bool = False) -> Array:
    """The weights of the source's positions for those of the result: float32 [out, size], or
    [size, out] if it is turned.
    """
    values = array("f", bytes(4 * size * out))
    for i, (at, weight) in enumerate(zip(taps.at, taps.weights)):
        to = i // taps.count
        values[at * out + to if turned else to * size + at] += weight
    return Array((size, out) if turned else (out, size), "float32", values.tobytes())
