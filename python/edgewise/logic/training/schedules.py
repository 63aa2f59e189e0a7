"""Learning rate schedules: the factors of transformers' get_scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from ...errors import InputError
from ..native import written

ScheduleName = Literal["constant", "linear", "cosine"]
SCHEDULES: tuple[ScheduleName, ...] = ("constant", "linear", "cosine")

Schedule = str | Callable[[int, int | None], float]


def check_schedule(value: object, where: str) -> None:
    """Raises InputError unless there is a schedule of this name."""
    if not isinstance(value, str) or value not in SCHEDULES:
        raise InputError(
            f"there is no schedule {written(value)}", where, f"Use one of {', '.join(SCHEDULES)}."
        )


def factor(schedule: Schedule, step: int, total: int | None, warmup: int = 0) -> float:
    """The factor of the learning rate at an update.

    Args:
        schedule: "constant", "linear" (down to 0 at `total`) or "cosine" (half a wave down to 0);
            or a function(step, total) that returns the factor.
        step: updates made so far.
        total: updates of the run; may be None for a function and for "constant".
        warmup: updates over which the factor rises linearly from 0 to 1; not for functions.

    Returns:
        The factor; 0 from `total` on for "linear" and "cosine".

    Raises:
        InputError: there is no such schedule, or `total` is None where it is needed.
    """
    if callable(schedule):
        return float(schedule(step, total))
    check_schedule(schedule, "schedule")
    if schedule == "constant":
        total = 1
    if total is None:
        raise InputError(
            f"the schedule {schedule!r} spans a number of updates that is not known",
            "total_steps",
            "Pass total_steps to Trainer, or call fit.",
        )
    if step < warmup:
        return step / max(1, warmup)
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return max(0.0, (total - step) / max(1, total - warmup))
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))
