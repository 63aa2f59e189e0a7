"""What a client has spent of its privacy, computed by itself.

A round whose members add noise of the standard deviation `noise`, in units of the clip, to their
sum is a Gaussian mechanism. Several of them are one with 1 / noise^2 added up, whose epsilon is
known exactly (Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML
2018). The hub knows whom it asks, so nothing is gained from that being random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

DELTA = 1e-6
"""The probability with which epsilon need not hold."""
MAX = 1e4


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _delta(epsilon: float, mu: float) -> float:
    right = _normal(-mu / 2 - epsilon / mu)
    # what is 0 as a float is far below any delta, however large the factor
    right = math.exp(epsilon + math.log(right)) if right else 0.0
    return _normal(mu / 2 - epsilon / mu) - right


def epsilon_of(noises: Iterable[float], delta: float = DELTA) -> float:
    """The epsilon of rounds.

    Args:
        noises: of the rounds, each above 0.
        delta: see DELTA.

    Returns:
        Epsilon, at most 1e-9 too large; infinity above 10,000.
    """
    mu = math.sqrt(sum(1 / (noise * noise) for noise in noises))
    if not mu:
        return 0.0
    low, high = 0.0, MAX
    if _delta(low, mu) <= delta:
        return 0.0
    if _delta(high, mu) > delta:
        return math.inf
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(middle, mu) > delta else (low, middle)
        if middle in (low, high) and high - low <= math.ulp(high):
            break
    return high
