"""Public names of compiler/training/losses.py."""

from ..compiler.training.contrastive import MultipleNegativesRankingLoss
from ..compiler.training.distillation import DistillationLoss
from ..compiler.training.losses import (
    LOSSES,
    BCEWithLogitsLoss,
    CausalLMLoss,
    CrossEntropyLoss,
    FunctionLoss,
    GraphLoss,
    HuberLoss,
    L1Loss,
    Loss,
    MSELoss,
    OutputLoss,
    Targets,
    Values,
    cross_entropy,
    loss_of,
)

__all__ = [
    "BCEWithLogitsLoss",
    "CausalLMLoss",
    "CrossEntropyLoss",
    "DistillationLoss",
    "FunctionLoss",
    "GraphLoss",
    "HuberLoss",
    "L1Loss",
    "LOSSES",
    "Loss",
    "MSELoss",
    "MultipleNegativesRankingLoss",
    "OutputLoss",
    "Targets",
    "Values",
    "cross_entropy",
    "loss_of",
]
