"""Programs whose reductions use subgroups, where the GPU has them.

A body names a reduction (core/kernels/common.wgsl) and nothing of how it is done. A program is
printed with the form that any GPU runs, in workgroup memory; here each one that it has is replaced
by the form of core/kernels/common.subgroups.wgsl, which takes fewer barriers.
"""

from __future__ import annotations

from .gen.shaders import COMMON, SUBGROUPS
from .variants import parts_of

# The twin in pages is web/src/device/webgpu/subgroups.ts.
ENTRY = "@builtin(local_invocation_index) lane: u32) { "
BUILT_IN = (
    "@builtin(local_invocation_index) lane: u32, @builtin(subgroup_id) subgroup_: u32,"
    " @builtin(num_subgroups) subgroups_: u32) { subgroup = subgroup_; subgroups = subgroups_; "
)
# What a compiler of WGSL must take: that of Chromium does since version 144.
TEST = (
    "enable subgroups;\n@compute @workgroup_size(64) fn main(@builtin(subgroup_id) a: u32,"
    " @builtin(num_subgroups) b: u32) {}"
)


def in_subgroups(text: str) -> str:
    """A program with the reductions of subgroups; the same text where it has none."""
    common, forms = parts_of(COMMON), parts_of(SUBGROUPS)
    found = text
    for name, form in forms.items():
        if name in common:
            found = found.replace(common[name], form)
    if found == text:
        return text
    private = "".join(f"{form}\n" for form in forms.values() if form.startswith("var<private>"))
    return f"enable subgroups;\n{private}{found.replace(ENTRY, BUILT_IN)}"
