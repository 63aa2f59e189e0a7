"""Learning rate schedules: factors of the optimizer's learning rate by step, as transformers'
get_scheduler gives them.
"""

from __future__ import annotations

import math

from ..errors import InputError

SCHEDULES = ("constant", "linear", "cosine")


def factor(schedule, step, total, warmup=0):
    """The factor at update `step`, counting from 0.

    Args:
        schedule: "constant", "linear" (down to 0 at `total`) or "cosine" (half a wave, down to 0);
        each after `warmup` steps that rise from 0.
            Or a function(step, total) -> factor.
        total: updates in all; None, for a function alone, where nobody said.
    """
    if callable(schedule):
        return float(schedule(step, total))
    if schedule not in SCHEDULES:
        raise InputError(
            f"there is no schedule {schedule!r}",
            "schedule",
            f"Use one of {', '.join(SCHEDULES)}, or a function(step, total).",
        )
    if step < warmup:
        return step / max(1, warmup)
    if schedule == "constant":
        return 1.0
    rest = max(0.0, (total - step) / max(1, total - warmup))
    return rest if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * (1 - rest)))
