"""Public names of extras/onnxruntime_training/onnxblock/loss/__init__.py."""

from ...extras.onnxruntime_training.onnxblock.loss import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    L1Loss,
    MSELoss,
)

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "L1Loss", "MSELoss"]
