"""Tunables of shaders: which of their values is the fastest on a GPU.

A shader's first lines declare names with several values (`tune: TILE 0 32 64`); the first one is
the default. Before the first plan with one of their kernels, a small plan runs with each value,
in rounds, on a GPU that is none in software.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .self_test import TOLERANCE

WORTH = 0.95
"""The part of the default's time that another value must not exceed."""
ABSURD = 1 / 64
"""A value that takes less than this part of the default's time was not measured."""
MAX_MS = 200
"""Milliseconds of all measurements before a plan; what has no time has its default."""
ROUNDS = 4
PASS_MS = 2
"""Milliseconds of a measurement, by which its runs are counted."""
MAX_RUNS = 64


@dataclass
class Trial:
    """A value of a tunable that was tried.

    Attributes:
        value: of the tunable.
        difference: largest one from the engine's results, as a part of the largest number; infinite
            where it was not computed.
        ms: least milliseconds of a run; 0: not measured.
    """

    value: int
    difference: float
    ms: float

    @property
    def right(self) -> bool:
        """Whether it computes what the engine does."""
        return self.difference <= TOLERANCE


def runs_of(ms: float) -> int:
    """Runs of a measurement. ms: milliseconds of one."""
    return max(1, min(MAX_RUNS, math.ceil(PASS_MS / max(ms, 0.001))))


def rounds_of(times: Sequence[float], left: float) -> int:
    """Rounds of measurements of all values. times: milliseconds of a run of each; left: to do."""
    one = sum([ms * runs_of(ms) for ms in times])
    return min(ROUNDS, math.floor(left / max(one, 0.001)))


def fastest(trials: Sequence[Trial]) -> int:
    """The value to use: the fastest right one, or the first, the default, unless another one takes
    WORTH of its time or less. The default was tested before.
    """
    default = trials[0]
    found = default.value
    least = WORTH * default.ms
    for trial in trials:
        if trial.right and trial.ms <= least and trial.ms > ABSURD * default.ms:
            found = trial.value
            least = trial.ms
    return found
