"""Public names of host/training/data.py, contrastive.py and distillation.py."""

from ..host.training.contrastive import ContrastiveRows
from ..host.training.data import read_data
from ..host.training.distillation import DistillationRows

__all__ = ["ContrastiveRows", "DistillationRows", "read_data"]
