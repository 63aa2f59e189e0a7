"""Passes over bound graphs: each takes a BoundGraph and improves it, meaning the same."""

from __future__ import annotations

from .activations import fuse_activations
from .attention import fuse_attention
from .common import common_subexpressions
from .epilogue import fuse_epilogues
from .normalization import fuse_normalization, fuse_residual_norm
from .padding import fuse_padding
from .qdq import fuse_quantized
from .quantization import fuse_quantized_products, pair_quantization
from .rotary import fuse_rotary
from .scaling import fold_scaling

RECOGNISE = [
    common_subexpressions,
    fuse_padding,
    fuse_normalization,
    fuse_activations,
    fuse_rotary,
    fuse_attention,
    fuse_quantized_products,
    pair_quantization,
]  # what exporters spelt out
COMBINE = [
    common_subexpressions,
    fuse_quantized,
    fold_scaling,
    fuse_epilogues,
    fuse_residual_norm,
]  # what one kernel does at once
PASSES = RECOGNISE + COMBINE


def optimize(bound, between=None):
    """Runs all passes in order; between(bound) runs once the ops are recognised, before they are
    combined. Returns the graph.
    """
    for p in RECOGNISE:
        p(bound)
    if between is not None:
        between(bound)
    for p in COMBINE:
        p(bound)
    return bound.prune()


__all__ = ["PASSES", "optimize", *[p.__name__ for p in PASSES]]
