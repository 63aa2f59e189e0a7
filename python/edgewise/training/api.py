"""Public names of extras/onnxruntime_training/api/__init__.py."""

from ..extras.onnxruntime_training.api import (
    CheckpointState,
    LinearLRScheduler,
    Module,
    Optimizer,
    OrtValue,
    Parameter,
    Parameters,
    Properties,
    set_seed,
)

__all__ = [
    "CheckpointState",
    "LinearLRScheduler",
    "Module",
    "Optimizer",
    "OrtValue",
    "Parameter",
    "Parameters",
    "Properties",
    "set_seed",
]
