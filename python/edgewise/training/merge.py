"""Public names of host/training/merge.py."""

from ..host.training.merge import merge_adapter

__all__ = ["merge_adapter"]
