"""Public names of host/training/session.py."""

from ..host.training.session import TrainingSession, seed_of_run

__all__ = ["TrainingSession", "seed_of_run"]
