"""Plans: their bytes (schema.plan_format), and what a host must know to run them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, cast

from ...errors import UnsupportedOp
from ...logic.manifest.limits import WRITABLE_KINDS, Kind
from ...logic.manifest.schema import ManifestSlot
from ..declare.dtypes import NAME, bytes_for
from ..declare.kernel import KERNELS, Kernel
from ..declare.registers import Registers
from ..declare.symbolic import FIRST_COUNTER, Sym
from ..ir import Tensor
from ..ops.table import word_of
from ..schema.plan_format import (
    ARENA,
    CONST,
    COUNTER,
    GROWS,
    HEADER,
    MAGIC,
    NONE,
    OPERAND,
    PATCH,
    REGISTER,
    SLOT,
    SLOT0,
    STEP,
    WRITABLE,
)
from ..targets import CPU, Target
from .notes import StepNotes

if TYPE_CHECKING:
    from .builder import Builder, Register
    from .steps import Step
    from .view import View

SECTION_ALIGNMENT = 16  # bytes, of the sections of a plan


@dataclass
class Slot:
    """A tensor that the host binds.

    Attributes:
        name: of the tensor.
        kind: "weight", "computed" (filled by the init steps), "cache", "state" (parameters and what
            optimizers keep), "input", "output", or "temp" (an arena of a target with several,
            which the device binds itself).
        dtype: ONNX code.
        shape: the largest one.
        nbytes: its size; of one that grows the largest.
        tensor: of a weight: the constant of the model.
        grows: whether it may be bound to less memory (schema.plan_format.GROWS).
    """

    name: str
    kind: str
    dtype: int
    shape: list[int]
    nbytes: int
    tensor: Tensor | None = None
    grows: bool = False

    def describe(self) -> ManifestSlot:
        """A dict for a package's manifest."""
        return {
            "name": self.name,
            "kind": cast("Kind", self.kind),
            "dtype": NAME[self.dtype],
            "shape": self.shape,
            "bytes": self.nbytes,
        }


class Plan:
    """What the engine loads, and what its host has to know of it.

    Attributes:
        data: bytes for the engine.
        slots: in the order of their numbers.
        registers: names, in the order of their numbers.
        labels: the node of each step (init steps first), for errors.
        kernels: names of the kernels of the steps.
        arena_bytes: size of the arena, or of all arenas together.
        init_count: number of init steps.
        arena_least: a lower bound of the size of the arena: the most bytes that are alive at one
            step; 0: not known.
        notes: for profiles; may be empty.
        experts: {name of a weight's slot: the number of experts that it has weights of} of those
            that steps read in products of experts alone.
        name: of the file that it came from, for errors.
    """

    def __init__(
        self,
        data: bytes,
        slots: list[Slot],
        registers: list[str],
        labels: list[str],
        kernels: list[str],
        arena_bytes: int,
        init_count: int,
        arena_least: int = 0,
        notes: StepNotes | None = None,
        experts: Mapping[str, int] | None = None,
    ) -> None:
        self.data, self.slots, self.registers = data, slots, registers
        self.labels, self.kernels = labels, kernels
        self.arena_bytes, self.arena_least = arena_bytes, arena_least
        self.init_count, self.notes = init_count, notes or StepNotes()
        self.experts = experts or {}
        self.name = ""

    @property
    def loops(self) -> bool:
        """Whether it has loops."""
        return any(KERNELS[k].jumps == "begin" for k in self.kernels)

    def label(self, step: int) -> str:
        """The node of a step; "" where it is not known, as in packages."""
        return self.labels[step] if 0 <= step < len(self.labels) else ""

    @staticmethod
    def assemble(
        builder: Builder, registers: Sequence[Register], further: Registers | None = None
    ) -> Plan:
        """The Plan of a finished Builder.

        Args:
            builder: the builder.
            registers: that the host sets, in the order of their numbers.
            further: these and all that follow from them; None if none does.

        Raises:
            UnsupportedOp: a parameter does not fit in 32 bits.
        """
        for slot in builder.slots:
            slot.tensor = builder.slot_of[slot.name].tensor if slot.kind == "weight" else None
        steps = builder.init_steps + builder.steps
        data = _plan_bytes(builder, registers, further, steps)
        if builder.target.alike:  # which steps the device runs at once is a part of the plan
            from ..gpu.program import with_program

            data = with_program(data, [slot.kind for slot in builder.slots])
        return Plan(
            data,
            builder.slots,
            [name for name, _, _ in registers],
            [s.label.where if s.label is not None else "" for s in steps],
            [s.kernel.name for s in steps],
            builder.arena_bytes + sum(s.nbytes for s in builder.slots if s.kind == "temp"),
            len(builder.init_steps),
            builder.arena_least,
            StepNotes.of(builder.steps),
            _experts(builder),
        )


def _experts(builder: Builder) -> dict[str, int]:
    """Plan.experts."""
    found: dict[str, set[int]] = {}
    for step in builder.init_steps + builder.steps:
        for operand, v in zip(step.kernel.operands, step.operands):
            if v is not None and 0 <= v.buffer.index < len(builder.slots):
                slot = builder.slots[v.buffer.index]
                experts = step.params["experts"] if operand.pages else 0
                # all of the slot, one expert after the other
                whole = (
                    v.byte_offset() == v.buffer.offset == 0
                    and experts > 1
                    and bytes_for(v.dtype, v.strides[0] * experts) == slot.nbytes
                )
                found.setdefault(slot.name, set()).add(experts if whole else 0)
    return {
        slot.name: count
        for slot in builder.slots
        for count in found.get(slot.name, ())
        if slot.kind == "weight" and found[slot.name] == {count} and 0 < count
    }


# ---- writing
def _plan_bytes(
    builder: Builder,
    registers: Sequence[Register],
    further: Registers | None,
    steps: Sequence[Step],
) -> bytes:
    count = len(registers) if further is None else len(further.rules)
    table = builder.target.kernel_table()
    ids = {k.name: k.id for k in table.kernels}
    out = bytearray(HEADER.size)
    registers_at = _begin_section(out)
    for _, low, high in registers:
        out += REGISTER.pack(low, high, *[0] * 7)
    if further is not None:
        for (low, high), rule in zip(further.ranges, further.rules):
            if rule is not None:
                out += REGISTER.pack(low, high, *astuple(rule))
    for high in builder.counters:
        out += REGISTER.pack(0, high, *[0] * 6, COUNTER)
    slots_at = _begin_section(out)
    for s in builder.slots:
        writable = s.kind in WRITABLE_KINDS
        out += SLOT.pack(s.nbytes, WRITABLE * writable + GROWS * s.grows, 0)
    const_at = _begin_section(out)
    out += builder.constants
    steps_at = _begin_section(out)
    for step in steps:
        out += _step_bytes(step, ids[step.kernel.name], count)
    HEADER.pack_into(
        out,
        0,
        MAGIC,
        table.hash,
        count + len(builder.counters),
        len(builder.slots),
        len(builder.init_steps),
        len(builder.steps),
        0,
        builder.arena_bytes,
        registers_at,
        slots_at,
        const_at,
        len(builder.constants),
        steps_at,
        len(out),
    )
    return bytes(out)


def _begin_section(out: bytearray) -> int:
    out += bytes(-len(out) % SECTION_ALIGNMENT)
    return len(out)


def _step_bytes(step: Step, kernel_id: int, first_counter: int) -> bytes:
    """A step. first_counter: the register of the first counter."""
    numbers = step.params
    if step.kernel.jumps and numbers["counter"] >= FIRST_COUNTER:
        numbers = {**numbers, "counter": numbers["counter"] - FIRST_COUNTER + first_counter}
    params, patches = _parameters(step, numbers)
    size = len(params)
    out = bytearray(params + bytes(-size % 8))
    for at, x in patches:
        out += PATCH.pack(at, _register(x, first_counter), x.scale, x.add)
    for v in step.operands:
        out += _operand_bytes(v, first_counter) if v is not None else OPERAND.pack(NONE, 0, 0, 0)
    head = STEP.pack(kernel_id, len(step.operands), len(patches), 0, size, STEP.size + len(out))
    return head + bytes(out)


def _register(x: Sym, first_counter: int) -> int:
    return x.reg if x.reg < FIRST_COUNTER else x.reg - FIRST_COUNTER + first_counter


def _parameters(step: Step, numbers: Mapping[str, Any]) -> tuple[bytes, list[tuple[int, Sym]]]:
    """(parameters in the layout of the C struct, [(word, Sym)] of those that follow registers)"""
    params, patches = bytearray(), []
    for name, kind in step.kernel.params.items():
        value = numbers[name]
        if kind == "f32":
            params += struct.pack("<f", value)
            continue
        for x in value if isinstance(value, list) else [value]:
            low = high = x
            if isinstance(x, Sym):
                patches.append((len(params) // 4, x))
                low, high = x.min, x.max
            if low < -(1 << 31) or high >= 1 << 31:
                raise UnsupportedOp(
                    f"{step.kernel.name} with {name} = {low}: more than 2^31 elements",
                    step.where,
                    "Use a smaller batch, sequence or capacity.",
                )
            params += struct.pack("<i", int(low))
    return bytes(params), patches


def _operand_bytes(v: View, first_counter: int) -> bytes:
    buffer, offset, register, scale = v.buffer, v.byte_offset(), 0, 0
    if isinstance(offset, Sym):
        register, scale, offset = _register(offset, first_counter) + 1, offset.scale, offset.add
    # After planning, a buffer in an arena that is a slot has the slot's index and its offset there.
    fixed = {"arena": ARENA, "const": CONST}
    where = fixed[buffer.kind] if buffer.index < 0 else SLOT0 + buffer.index
    return OPERAND.pack(where, register, buffer.offset + offset, scale)


# ---- reading
def step_kernels(data: bytes, target: Target = CPU) -> tuple[list[str], int]:
    """The kernels of a plan.

    Returns:
        (names of the kernels of its steps, the number of init steps, which come first); ([], 0) for
        a damaged plan, which the engine refuses with a message.
    """
    names = [k.name for k in target.kernel_table().kernels]
    try:
        _, _, _, _, init, steps, *_, at, _ = HEADER.unpack_from(data)
        found = []
        for _ in range(min(init + steps, len(data) // STEP.size)):
            kernel, _, _, _, _, size = STEP.unpack_from(data, at)
            found.append(names[kernel])
            at += size
        return found, init
    except (struct.error, IndexError, OverflowError):
        return [], 0


def step_values(data: bytes, target: Target = CPU) -> dict[tuple[str, str], set[int] | None]:
    """Values of the parameters that CImplementation's `variants` name.

    Returns:
        {(kernel, parameter): the values that the plan's steps have, or None where a register
        decides}
    """
    kernels = target.kernel_table().kernels
    found: dict[tuple[str, str], set[int] | None] = {}
    _, _, _, _, init, steps, *_, at, _ = HEADER.unpack_from(data)
    for _ in range(init + steps):
        kernel, _, patches, _, size, step = STEP.unpack_from(data, at)
        k: Kernel = kernels[kernel]
        params = at + STEP.size
        patches_at = params + -(-size // 8) * 8
        patched = {PATCH.unpack_from(data, patches_at + i * PATCH.size)[0] for i in range(patches)}
        for parameter in k.c.variants:
            word, key = word_of(k, parameter), (k.name, parameter)
            value = struct.unpack_from("<i", data, params + 4 * word)[0]
            known = found.get(key, set())
            found[key] = (
                None if word in patched or known is None or not 0 <= value < 64 else known | {value}
            )
        at += step
    return found
