"""Noise from secure random bytes."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .crypto import stream

TAIL = 12  # standard deviations of the table; beyond it less than 2^-100 is left


def _uniform(raw: bytes) -> NDArray[np.float64]:
    """Numbers in (0, 1] of 53 bits each."""
    return ((np.frombuffer(raw, "<u8") >> 11) + 1.0) * 2.0**-53


def discrete_gaussian(count: int, sigma: float, key: bytes | None = None) -> NDArray[np.int64]:
    """Integers k with a probability in proportion to exp(-k^2 / (2 sigma^2)), by a table of the
    distribution in float64.

    Args:
        count: of the numbers.
        sigma: above 0.
        key: 32 secret bytes; the same give the same numbers. None: new ones.
    """
    raw = stream(secrets.token_bytes(32) if key is None else key, 8 * count)
    most = math.ceil(TAIL * sigma)
    k = np.arange(-most, most + 1, dtype=np.float64)
    table = np.cumsum(np.exp(-k * k / (2 * sigma * sigma)))
    return np.searchsorted(table, _uniform(raw) * table[-1]).astype(np.int64) - most


def gaussian(count: int, sigma: float) -> NDArray[Any]:
    """Numbers of a normal distribution, each half the sum of four.

    Who sees one number of Box and Muller's method can say more about the noise than the
    distribution does, since floats are few near its ends; of four added ones it cannot (Holohan and
    Braghin, Secure Random Sampling in Differential Privacy, 2021).
    """
    total = np.zeros(count)
    for _ in range(2):
        u, v = (_uniform(secrets.token_bytes(8 * count)) for _ in range(2))
        radius = np.sqrt(-2.0 * np.log(u))
        total += radius * (np.cos(2 * math.pi * v) + np.sin(2 * math.pi * v))
    return total * (sigma / 2)
