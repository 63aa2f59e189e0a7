"""The ops: each declared in one place, with its shape rule, its lowering and the kernels under it."""
from .op import OPS, Op
from . import attention, elementwise, indexing, matmul, movement, normalization, quantize, reduction, shape

__all__ = ["OPS", "Op"]
