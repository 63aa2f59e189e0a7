"""Public names of host/training/data.py."""

from ..host.training.data import read_data

__all__ = ["read_data"]
