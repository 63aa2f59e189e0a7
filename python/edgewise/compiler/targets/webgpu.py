"""A GPU behind WebGPU, with the engine in C for the steps that it has no shader for."""

from __future__ import annotations

from ..gpu.gen.shaders import ALIKE
from ..ops.table import kernel_table
from ..passes import COMBINE, RECOGNISE
from .target import Alike, LoweringRules, MemoryRules, Target

WEBGPU = Target(
    name="webgpu",
    kernel_table=kernel_table,  # the same: C checks every plan, and runs steps without a shader
    recognise=RECOGNISE,
    combine=COMBINE,
    memory=MemoryRules(
        arena_alignment=256,  # minStorageBufferOffsetAlignment
        several_arenas=True,
    ),
    lowering=LoweringRules(),
    alike={name: Alike(*rule) for name, rule in ALIKE.items()},
)
