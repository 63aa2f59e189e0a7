"""Public names of host/training/data.py and contrastive.py."""

from ..host.training.contrastive import ContrastiveRows
from ..host.training.data import read_data

__all__ = ["ContrastiveRows", "read_data"]
