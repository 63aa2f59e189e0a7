"""Tunables of shaders: which of their values is the fastest on a GPU.

A shader's first lines declare names with several values (`tune: TILE 0 32 64`); the first one is
the default. Before the first plan with one of their kernels, small plans run with each value, and
one of them in rounds, on a GPU that is none in software.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .self_test import TOLERANCE

INEXACT = 2e-2
"""Instead of TOLERANCE, of float products beside those of rows that the engine rounds to bytes."""
WORTH = 0.9
"""The part of the default's time that another value must not exceed."""
ABSURD = 1 / 64
"""A value that takes less than this part of the default's time was not measured."""
MAX_MS = 200
"""Milliseconds of measurements before a plan, after which no round begins, and no tunable."""
ROUNDS = 2
PASS_MS = 8
"""Milliseconds of a measurement, by which its runs are counted: clocks of pages have steps of 0.1.
"""
MAX_RUNS = 256


@dataclass
class Trial:
    """A value of a tunable that is tried.

    Attributes:
        value: of the tunable.
        tolerance: largest difference of a right result.
        refused: whether the GPU failed with it.
        difference: largest one from the engine's results, as a part of the largest number; infinite
            where it was not computed.
        ms: least milliseconds of a run; 0: not measured.
    """

    value: int
    tolerance: float
    refused: bool
    difference: float
    ms: float

    @property
    def right(self) -> bool:
        """Whether it computes what the engine does."""
        return self.difference <= self.tolerance


def untried(name: str, values: Sequence[int]) -> list[Trial]:
    """The values of a tunable, the default first, with no difference. The default of BYTES is more
    exact than the engine.
    """
    return [
        Trial(values[i], INEXACT if name == "BYTES" and i == 0 else TOLERANCE, False, 0.0, 0.0)
        for i in range(len(values))
    ]


def runs_of(ms: float) -> int:
    """Runs of a measurement. ms: milliseconds of one."""
    return max(1, min(MAX_RUNS, math.ceil(PASS_MS / max(ms, 0.001))))


def goes_on(rounds: int, runs: Sequence[int], left: float) -> bool:
    """Whether all values are measured in another round: while there is time, and until each was
    measured for PASS_MS.

    Args:
        rounds: those after a first one of one run each.
        runs: of the measurements of a round.
        left: milliseconds.
    """
    return rounds < ROUNDS and (left > 0 or (rounds == 0 and max([1, *runs]) > 1))


def fastest(trials: Sequence[Trial]) -> int:
    """The value to use: the fastest right one, or the first, the default, unless another one takes
    WORTH of its time or less, or the default is not right.
    """
    default = trials[0]
    found = default.value
    least = WORTH * default.ms if default.right else math.inf
    for trial in trials:
        if trial.right and trial.ms <= least and trial.ms > ABSURD * default.ms:
            found = trial.value
            least = trial.ms
    return found


def refusal(trials: Sequence[Trial]) -> str | None:
    """Why a kernel must not run on the GPU: its default computes wrongly, and other shapes have no
    other shader. None: it may.
    """
    default = trials[0]
    if default.right or default.refused:
        return None
    return f"this GPU computes it wrongly (by {default.difference:.2g})"
