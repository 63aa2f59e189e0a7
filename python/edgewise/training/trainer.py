"""Public names of host/training/trainer/__init__.py."""

from ..host.training.trainer import Estimate, History, Progress, Trainer

__all__ = ["Estimate", "History", "Progress", "Trainer"]
