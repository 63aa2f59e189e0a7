"""Public names of extras/onnxruntime_training/onnxblock/optim/__init__.py."""

from ...extras.onnxruntime_training.onnxblock.optim import SGD, AdamW, ClipGradNorm

__all__ = ["AdamW", "ClipGradNorm", "SGD"]
