"""Public names of extras/onnxruntime_training/artifacts.py."""

from ..extras.onnxruntime_training.artifacts import (
    LOSS_OPSET,
    LossType,
    OptimType,
    generate_artifacts,
)

__all__ = ["LOSS_OPSET", "LossType", "OptimType", "generate_artifacts"]
