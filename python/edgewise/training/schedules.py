"""Public names of logic/training/schedules.py."""

from ..logic.training.schedules import SCHEDULES, Schedule, factor

__all__ = ["SCHEDULES", "Schedule", "factor"]
