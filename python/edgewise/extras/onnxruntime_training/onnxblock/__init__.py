"""Builds training graphs from blocks, as onnxruntime.training.onnxblock (release 1.19.2).

The onnx package is needed to use blocks, not to import them.
"""

from . import blocks, loss, optim  # after onnxblock, which optim imports
from .blocks import Block
from .checkpoint_utils import load_checkpoint_to_model, save_checkpoint
from .model_accessor import base, custom_op_library, empty_base
from .onnxblock import ForwardBlock, TrainingBlock

__all__ = [
    "Block",
    "ForwardBlock",
    "TrainingBlock",
    "base",
    "blocks",
    "custom_op_library",
    "empty_base",
    "load_checkpoint_to_model",
    "loss",
    "optim",
    "save_checkpoint",
]
