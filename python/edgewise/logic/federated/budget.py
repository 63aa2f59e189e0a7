"""What a client has spent of its privacy, computed by itself.

A round whose members add noise of the standard deviation `noise`, in units of the clip, to their
sum is a Gaussian mechanism. Several of them are one with 1 / noise^2 added up, whose epsilon is
known exactly (Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML
2018). The hub knows whom it asks, so nothing is gained from that being random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

DELTA = 1e-6
"""The probability with which epsilon need not hold."""
MAX = 1e4
FAR = 2.0  # standard deviations from which on the continued fraction converges


def _log_tail(x: float) -> float:
    """ln of the normal distribution's function at -x, for x above 0: also where the function is 0
    as a float64.
    """
    ratio = 0.0  # the continued fraction of Mills' ratio, from inside out
    for k in range(400, 0, -1):
        ratio = k / (x + ratio)
    return -(x * x) / 2 - math.log(math.sqrt(2 * math.pi) * (x + ratio))


def _normal(x: float) -> float:
    """The normal distribution's function: a series near 0, the continued fraction elsewhere."""
    if x < -FAR:
        return math.exp(_log_tail(-x))
    if x > FAR:
        return 1 - math.exp(_log_tail(x))
    term = total = x
    for k in range(3, 80, 2):
        term *= x * x / k
        total += term
    return 0.5 + total * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _delta(epsilon: float, mu: float) -> float:
    far = -mu / 2 - epsilon / mu
    log = _log_tail(-far) if far < -FAR else math.log(_normal(far))
    return _normal(mu / 2 - epsilon / mu) - math.exp(epsilon + log)


def epsilon_of(noises: Sequence[float], delta: float = DELTA) -> float:
    """The epsilon of rounds.

    Args:
        noises: of the rounds, each above 0.
        delta: see DELTA.

    Returns:
        Epsilon, at most 1e-9 too large; infinity above 10,000.
    """
    total = 0.0
    for noise in noises:
        total += 1 / (noise * noise)
    mu = math.sqrt(total)
    if mu == 0 or _delta(0.0, mu) <= delta:
        return 0.0
    if _delta(MAX, mu) > delta:
        return math.inf
    low, high = 0.0, MAX
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _delta(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high
