"""What the compiler has to know of the device that a plan is compiled for.

A `Target` goes through all stages after binding. It chooses the passes; lowering rules ask it
which kernels and which layouts of weights pay; the memory planner takes its alignments; steps are
compared with its limits; and its table of kernels gives a plan the ids and the hash in its header.
Nothing else in the compiler may assume a device. docs/architecture/targets.md says what a second
target has to provide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import UnsupportedOp
from ..declare.kernel import KERNELS, Kernel, evaluate
from ..ops.table import KernelTable
from ..passes import Pass


@dataclass(frozen=True)
class MemoryRules:
    """How the memory of a plan is laid out.

    Attributes:
        arena_alignment: bytes; the offset of every buffer in the arena is a multiple of it.
        constant_alignment: bytes; the same in the plan's constant section.
        inline_bytes: a constant of the model with at most this many bytes goes into the constant
            section; a larger one is a weight, which the host binds to a slot.
        in_place: whether an output may take over the memory of an input that nothing reads
            afterwards, where the kernel's contract allows it.
        several_arenas: buffers lie in several arenas, slots of kind "temp", so that no step reads
            one of them and writes the same one. The engine's own arena then has the working memory
            of C functions only.
    """

    arena_alignment: int = 64
    constant_alignment: int = 16
    inline_bytes: int = 64
    in_place: bool = True
    several_arenas: bool = False


@dataclass(frozen=True)
class Limits:
    """What one step may bind. None: no limit.

    Attributes:
        operands: operands that are bound at the same time.
        buffer_bytes: bytes of one buffer: a slot, the arena, the constant section.
    """

    operands: int | None = None
    buffer_bytes: int | None = None


@dataclass(frozen=True)
class WinogradRange:
    """Convolutions 3 x 3 for which Winograd's algorithm is faster, bounds inclusive.

    Fewer multiplications have to pay for the transforms before and after them.

    Attributes:
        min_inputs, max_inputs: channels of the input.
        min_outputs: channels of the output.
        max_columns: columns of the output.
        min_positions: batch * rows * columns of the output.
        min_positions_of_halves: the same where the weights are halves, which each run transforms.
    """

    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_columns: int
    min_positions: int
    min_positions_of_halves: int

    def includes(
        self, inputs: int, outputs: int, batch: int, rows: int, columns: int, halves: bool
    ) -> bool:
        """Whether a convolution of this size is in the range; halves: with weights of them."""
        least = self.min_positions_of_halves if halves else self.min_positions
        return (
            self.min_inputs <= inputs <= self.max_inputs
            and outputs >= self.min_outputs
            and columns <= self.max_columns
            and batch * rows * columns >= least
        )


@dataclass(frozen=True)
class LoweringRules:
    """Sizes by which lowering rules choose between kernels and layouts.

    Attributes:
        winograd: convolutions that Winograd's algorithm is used for; None: none.
        recurrent_panel: columns of constant recurrent weights that are packed together; 0: the
            weights are read as the model stores them.
        attention_grad_rows: queries at a time in the gradient of causal attention.
        attention_grad_scores: floats of the scores of these queries, where 16 queries fit.
        integer_scratch: bytes of working memory of integer products.
    """

    winograd: WinogradRange | None = None
    recurrent_panel: int = 0
    attention_grad_rows: int = 64
    attention_grad_scores: int = 1 << 21
    integer_scratch: int = 1 << 18


@dataclass(frozen=True)
class Alike:
    """Steps of a kernel that a device can run at once.

    Attributes:
        vary: names of parameters in which they may differ.
        same: conditions over the parameters that hold for all of them or for none.
    """

    vary: tuple[str, ...] = ()
    same: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """A device that plans are compiled for.

    Attributes:
        name: for messages.
        kernel_table: gives the table of kernels: their ids, and the hash that a plan's header has
            and that an engine compares with its own.
        recognise: passes that recognise what exporters spell out, in order.
        combine: passes that merge what one kernel does at once, in order.
        memory: layout of the memory of a plan.
        limits: of bindings of a step.
        lowering: choices of lowering rules.
        lacks: names of kernels of the table that the target does not implement.
        has_c_scratch: whether kernels get the working memory that their C functions use.
        alike: {kernel: which of its steps the device runs at once}, with several arenas.
        jumps: whether plans may have loops and branches.
    """

    name: str
    kernel_table: Callable[[], KernelTable]
    recognise: tuple[Pass, ...]
    combine: tuple[Pass, ...]
    memory: MemoryRules = MemoryRules()
    limits: Limits = Limits()
    lowering: LoweringRules = LoweringRules()
    lacks: frozenset[str] = frozenset()
    has_c_scratch: bool = True
    alike: Mapping[str, Alike] = field(default_factory=dict)
    jumps: bool = False

    def has(self, kernel: str) -> bool:
        """Whether the target implements a kernel of this name."""
        return kernel in KERNELS and kernel not in self.lacks

    def kernel(self, name: str, where: str) -> Kernel:
        """The contract of a kernel.

        Args:
            name: of the kernel.
            where: the node that is lowered, for errors.

        Raises:
            UnsupportedOp: the target does not implement the kernel.
        """
        if name in self.lacks:
            raise UnsupportedOp(
                f"the device '{self.name}' has no kernel '{name}'",
                where,
                "Run the model on another device.",
            )
        return KERNELS[name]

    def scratch_bytes(self, kernel: Kernel, params: Mapping[str, Any], wanted: bool) -> int:
        """Bytes of working memory that a step needs; 0: none.

        Args:
            kernel: the step's kernel.
            params: the largest values of its parameters.
            wanted: whether a kernel that also works without working memory gets it.
        """
        c = kernel.c
        if not self.has_c_scratch or not c.scratch or not (wanted or not c.optional_scratch):
            return 0
        return 4 * evaluate(c.scratch, params)

    def check_operands(self, kernel: Kernel, count: int, where: str) -> None:
        """Raises UnsupportedOp where a step binds more operands than the target can."""
        if self.limits.operands is not None and count > self.limits.operands:
            raise UnsupportedOp(
                f"{kernel.name} with {count} operands: the device '{self.name}' binds at most"
                f" {self.limits.operands}",
                where,
                "Run the model on another device.",
            )

    def check_buffer(self, nbytes: int, where: str) -> None:
        """Raises UnsupportedOp where a buffer is larger than the target can bind."""
        if self.limits.buffer_bytes is not None and nbytes > self.limits.buffer_bytes:
            raise UnsupportedOp(
                f"{nbytes} bytes: a buffer of the device '{self.name}' has at most"
                f" {self.limits.buffer_bytes}",
                where,
                "Use a smaller batch, sequence or model, or another device.",
            )
