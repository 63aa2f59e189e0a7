"""The engine in C, natively and as WebAssembly."""

from __future__ import annotations

from ..ops.table import kernel_table
from ..passes import COMBINE, RECOGNISE
from .target import LoweringRules, MemoryRules, Target, WinogradRange

CPU = Target(
    name="cpu",
    kernel_table=kernel_table,
    recognise=RECOGNISE,
    combine=COMBINE,
    memory=MemoryRules(arena_alignment=64, constant_alignment=16),  # a cache line, a vector
    lowering=LoweringRules(
        winograd=WinogradRange(
            min_inputs=16,
            max_inputs=512,
            min_outputs=16,
            max_columns=1500,
            min_positions=36,
            min_positions_of_halves=160,
        ),
        recurrent_panel=32,  # PANEL in core/kernels/recurrent/recurrent.c
        attention_grad_rows=64,
        attention_grad_scores=1 << 21,
        integer_scratch=1 << 18,
    ),
    jumps=True,
)
