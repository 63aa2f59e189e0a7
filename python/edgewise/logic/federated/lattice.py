"""The lattice of a round of secure aggregation: which integers an update becomes.

extras/federated/secure/quantize.py says why; the numbers themselves are the host's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .layout import LEVELS

BLOCK = 4096  # most rows of the Hadamard matrix
SPREAD = {"int8": 6.0, "int4": 4.0}
"""Standard deviations of rotated numbers that the integers can express."""
TAIL = 6.5  # standard deviations of noise for which there is room
LESS = 1 - 2.0**-20
"""Factor that leaves room for what rounding adds to a norm."""


@dataclass(frozen=True)
class Grid:
    """Sizes of a lattice.

    Attributes:
        count: numbers of an update.
        block, columns: the rotated numbers as a matrix [block, columns]; Hadamard matrices act on
            its columns.
        levels: largest integer.
        step: the number that the integer 1 stands for.
        bound: largest L2 norm of the integers: clip / step.
    """

    count: int
    block: int
    columns: int
    levels: int
    step: float
    bound: float


def grid_of(count: int, codec: str, clip: float, members: int = 0, noise: float = 0.0) -> Grid:
    """The lattice of `count` numbers of norms up to `clip`.

    Args:
        count, codec, clip: of the updates.
        members, noise: the integers of so many clients, and noise of a standard deviation of
            `noise` times `bound`, must fit 16 bits; 0 without noise, where they always do.
    """
    block = 1
    while block * 2 <= min(BLOCK, count // 8):
        block *= 2
    columns = -(-count // block)
    root = math.sqrt(block * columns)
    bound = LEVELS[codec] * root / SPREAD[codec]
    if noise > 0:
        bound = min(bound, 32767 / (members * SPREAD[codec] / root + TAIL * noise))
    return Grid(count, block, columns, LEVELS[codec], clip / bound, bound)
