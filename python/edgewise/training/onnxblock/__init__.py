"""Public names of extras/onnxruntime_training/onnxblock/__init__.py."""

from ...extras.onnxruntime_training.onnxblock import (
    Block,
    ForwardBlock,
    TrainingBlock,
    base,
    blocks,
    custom_op_library,
    empty_base,
    load_checkpoint_to_model,
    loss,
    optim,
    save_checkpoint,
)

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
