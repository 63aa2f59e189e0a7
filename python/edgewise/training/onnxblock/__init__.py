"""Building training graphs from blocks, with ONNX Runtime Training's names: `from edgewise.training
import onnxblock`. Needs the onnx package when blocks are used, not to import it.
"""

from . import blocks, loss, optim  # after onnxblock, which optim's blocks are made of
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
