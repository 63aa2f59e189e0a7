"""Checkpoints of ONNX Runtime's on-device training: FlatBuffers with the identifier ODTC, read and
written without the FlatBuffers library.

The schema is onnxruntime/core/flatbuffers/schema/ort_training_checkpoint.fbs, and of ort.fbs the
table Tensor (release 1.19.2, checkpoint version 2).
"""

from .checkpoint import Checkpoint, OptimizerGroup
from .read import read_checkpoint
from .write import checkpoint_parts, write_checkpoint

__all__ = [
    "Checkpoint",
    "OptimizerGroup",
    "checkpoint_parts",
    "read_checkpoint",
    "write_checkpoint",
]
