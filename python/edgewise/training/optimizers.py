"""Public names of compiler/training/optimizers.py."""

from ..compiler.training.optimizers import (
    BLOCK,
    OPTIMIZERS,
    SGD,
    Adagrad,
    Adam,
    AdamW,
    AdamW8bit,
    Lion,
    Muon,
    Optimizer,
    RMSprop,
    language_model_optimizer,
    optimizer_of,
)

__all__ = [
    "Adagrad",
    "Adam",
    "AdamW",
    "AdamW8bit",
    "BLOCK",
    "Lion",
    "Muon",
    "OPTIMIZERS",
    "Optimizer",
    "RMSprop",
    "SGD",
    "language_model_optimizer",
    "optimizer_of",
]
