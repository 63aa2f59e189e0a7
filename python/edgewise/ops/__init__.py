"""The ops: each declared in one place, with its shape rule, its lowering and the kernels under it."""
from .op import OPS, Op
from . import attention, elementwise, matmul, movement, normalization, quantize, reduction

__all__ = ["OPS", "Op"]
