"""Passes over bound graphs. Each takes a BoundGraph and changes it in place; the graph computes the
same as before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .activations import fuse_activations
from .attention import fuse_attention
from .common import common_subexpressions
from .epilogue import fuse_epilogues
from .normalization import fuse_normalization, fuse_residual_norm
from .padding import fuse_padding
from .qdq import fuse_quantized
from .quantization import fuse_quantized_products, pair_quantization
from .rotary import fuse_rotary, lay_out_rotations
from .scaling import fold_scaling
from .weight_bytes import read_weight_bytes

if TYPE_CHECKING:
    from ..bind import BoundGraph

Pass = Callable[["BoundGraph"], Any]

# Passes that recognise what exporters spell out.
RECOGNISE: tuple[Pass, ...] = (
    common_subexpressions,
    fuse_padding,
    fuse_normalization,
    fuse_activations,
    fuse_rotary,
    fuse_attention,
    fuse_quantized_products,
    pair_quantization,
)
# Passes that merge what one kernel does at once.
COMBINE: tuple[Pass, ...] = (
    common_subexpressions,
    fuse_quantized,
    read_weight_bytes,
    fold_scaling,
    fuse_epilogues,
    fuse_residual_norm,
    lay_out_rotations,
)
PASSES = RECOGNISE + COMBINE


def optimize(
    bound: BoundGraph,
    between: Pass | None = None,
    recognise: Sequence[Pass] = RECOGNISE,
    combine: Sequence[Pass] = COMBINE,
) -> BoundGraph:
    """Runs passes in order, and drops nodes that no output needs.

    Args:
        bound: the graph.
        between: a change of the graph once the ops are recognised, before they are combined.
        recognise, combine: passes before and after it; a target chooses them.

    Returns:
        bound
    """
    for p in recognise:
        p(bound)
    if between is not None:
        between(bound)
    for p in combine:
        p(bound)
    for node in bound.nodes:
        for body in node.bodies:
            optimize(body.bound, None, recognise, combine)
    return bound.prune()


__all__ = [
    "COMBINE",
    "PASSES",
    "RECOGNISE",
    "Pass",
    "common_subexpressions",
    "fold_scaling",
    "fuse_activations",
    "fuse_attention",
    "fuse_epilogues",
    "fuse_normalization",
    "fuse_padding",
    "fuse_quantized",
    "fuse_quantized_products",
    "fuse_residual_norm",
    "fuse_rotary",
    "lay_out_rotations",
    "optimize",
    "pair_quantization",
    "read_weight_bytes",
]
