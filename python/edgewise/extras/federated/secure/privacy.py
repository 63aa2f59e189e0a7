"""Differential privacy of a run: the budget that its rounds spend, and when it must end.

One client's part in a round is protected: the sum of clipped updates gets Gaussian noise of the
standard deviation noise * clip, and is divided by a number that depends on no client. If the
server adds the noise, it draws each client for a round with the probability `rate`, independently
of the others and secretly, and epsilon is computed by privacy loss distributions (PLD) with the
package dp-accounting. If the clients add it (with secure aggregation), the server knows whom it
draws, and nothing is gained from drawing. Without a draw rounds are one Gaussian mechanism, whose
epsilon is known exactly.

Neighbours are runs in which one client's updates are replaced by zeros.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import InputError
from ....logic.federated.budget import epsilon_of
from ..codec import Schema
from .noise import gaussian

MIN_DRAWN = 0.1
"""Least noise for which the accountant computes epsilon of draws in seconds (it is hundreds)."""


@dataclass(frozen=True)
class Privacy:
    """The mechanism of a run.

    Attributes:
        noise: standard deviation of the noise in a round's sum, in units of `clip`.
        clip: maximum L2 norm of an update.
        rate: probability with which a client is drawn; 1: all are.
        delta: the probability with which epsilon need not hold.
        epsilon: the budget of the run, or None.
        by: who adds the noise: "server" or "clients".
        amplified: whether the draw counts for epsilon. It must not where whom is drawn decides
            whether the updates of others are in the sum: groups of secure aggregation may have too
            few members.
    """

    noise: float
    clip: float
    rate: float
    delta: float
    epsilon: float | None
    by: str = "server"
    amplified: bool = True

    @functools.cache  # noqa: B019 (a few small objects)
    def spent(self, rounds: int) -> float:
        """Epsilon after a number of rounds.

        Raises:
            InputError: dp-accounting is not installed.
        """
        if rounds == 0:
            return 0.0
        if self.by == "clients" or self.rate == 1 or not self.amplified:
            # exact, and dp-accounting's to its grid
            return epsilon_of([self.noise] * rounds, self.delta)
        try:
            import dp_accounting
            from dp_accounting import pld
        except ImportError:
            raise InputError(
                "dp-accounting is not installed", "noise", "pip install edgewise[federated]"
            ) from None
        event = dp_accounting.GaussianDpEvent(self.noise)
        accountant = pld.PLDAccountant()
        accountant.compose(dp_accounting.PoissonSampledDpEvent(self.rate, event), rounds)
        return float(accountant.get_epsilon(self.delta))

    def affordable(self, most: int) -> int:
        """Rounds that the budget allows, at most `most`."""
        if self.epsilon is None or self.spent(most) <= self.epsilon:
            return most
        low, high = 0, most  # affordable, and not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.spent(middle) <= self.epsilon else (low, middle)
        return low

    def told(self, epsilon: float) -> dict[str, Any]:
        """What clients are told with a task, whose round leads to `epsilon`."""
        return {
            "by": self.by,
            "noise": self.noise,
            "clip": self.clip,
            "rate": self.rate,
            "delta": self.delta,
            "epsilon": epsilon if math.isfinite(epsilon) else None,
        }

    def release(self, total: dict[str, Any], schema: Schema, asked: float) -> dict[str, Any]:
        """The noised mean.

        Args:
            total: sum of clipped updates, float64 by name.
            schema: of the parameters.
            asked: by which it is divided: a number that depends on no client.
        """
        sigma = self.noise * self.clip
        return {
            name: (total[name] + gaussian(int(np.prod(shape)), sigma).reshape(shape)) / asked
            for name, shape in schema.shapes.items()
        }
