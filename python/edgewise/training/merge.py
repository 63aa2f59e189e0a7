"""Public names of host/training/merge.py."""

from ..host.training.merge import convert_adapter, merge_adapter

__all__ = ["convert_adapter", "merge_adapter"]
