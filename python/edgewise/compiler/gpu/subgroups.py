"""Programs whose reductions use subgroups, where the GPU has them."""

from __future__ import annotations

from ...logic.gpu.variants import in_subgroups as replaced
from .gen.shaders import COMMON, SUBGROUPS
from .variants import parts_of

# What a compiler of WGSL must take: that of Chromium does since version 144.
TEST = (
    "enable subgroups;\n@compute @workgroup_size(64) fn main(@builtin(subgroup_id) a: u32,"
    " @builtin(num_subgroups) b: u32) {}"
)


def in_subgroups(text: str) -> str:
    """A program with the reductions of subgroups; the same text where it has none."""
    return replaced(text, parts_of(COMMON), parts_of(SUBGROUPS))
