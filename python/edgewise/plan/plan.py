"""Plans: their bytes (schema.plan_format), and what a host must know to run them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..declare.dtypes import NAME
from ..declare.symbolic import Sym
from ..errors import UnsupportedOp
from ..manifest_limits import WRITABLE_KINDS
from ..ops.table import kernel_table, word_of
from ..schema.plan_format import (
    ARENA,
    CONST,
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
from .notes import StepNotes


@dataclass
class Slot:
    """What the host binds. kind: weight, computed (filled by the init steps), cache, state
    (parameters and what optimizers keep), input, output.
    """

    name: str
    kind: str
    dtype: int
    shape: list
    nbytes: int
    tensor: object = None

    def describe(self):
        """A dict for a package's manifest."""
        return {
            "name": self.name,
            "kind": self.kind,
            "dtype": NAME[self.dtype],
            "shape": self.shape,
            "bytes": self.nbytes,
        }


def _align(data, to=16):
    data += bytes(-len(data) % to)


class Plan:
    """`data`: bytes for the engine.

    `slots`: in order. `labels`: node of each step (init steps first), for errors. `notes`:
    StepNotes, for profiles; may be empty. arena_bytes: of what flows between steps; arena_least:
    what no layout of it could be below, the most that is alive at any one step (0: not known).
    """

    def __init__(
        self,
        data,
        slots,
        registers,
        labels,
        kernels,
        arena_bytes,
        init_count,
        arena_least=0,
        notes=None,
    ):
        self.data, self.slots, self.registers, self.labels, self.kernels, self.arena_bytes = (
            data,
            slots,
            registers,
            labels,
            kernels,
            arena_bytes,
        )
        self.init_count, self.arena_least, self.notes = (
            init_count,
            arena_least,
            notes or StepNotes(),
        )
        self.name = ""  # of the file it came from, for errors

    @staticmethod
    def assemble(b, registers, name=""):
        """The Plan of what a Builder holds, after `finish`.

        registers: [(name, lowest, highest)] in the order of their numbers. Raises UnsupportedOp
        where a parameter does not fit in 32 bits.
        """
        table = kernel_table()
        ids, table_hash = {k.name: k.id for k in table.kernels}, table.hash
        for slot in b.slots:
            slot.tensor = b.slot_of[slot.name].key if slot.kind == "weight" else None
        out = bytearray(HEADER.size)
        _align(out)
        registers_at = len(out)
        for _, low, high in registers:
            out += REGISTER.pack(low, high)
        _align(out)
        slots_at = len(out)
        for s in b.slots:
            out += SLOT.pack(s.nbytes, WRITABLE if s.kind in WRITABLE_KINDS else 0, 0)
        _align(out)
        const_at = len(out)
        out += b.constants
        _align(out)
        steps_at = len(out)
        for step in b.init_steps + b.steps:
            out += _step_bytes(step, ids)
        HEADER.pack_into(
            out,
            0,
            MAGIC,
            table_hash,
            len(registers),
            len(b.slots),
            len(b.init_steps),
            len(b.steps),
            0,
            b.arena_bytes,
            registers_at,
            slots_at,
            const_at,
            len(b.constants),
            steps_at,
            len(out),
        )
        steps = b.init_steps + b.steps
        return Plan(
            bytes(out),
            b.slots,
            [r[0] for r in registers],
            [s.label.where if s.label is not None else "" for s in steps],
            [s.kernel.name for s in steps],
            b.arena_bytes,
            len(b.init_steps),
            b.arena_least,
            StepNotes.of(b.steps),
        )


def step_kernels(data):
    """(names of the kernels that a plan's steps call, how many of them are init steps, which come
    first); ([], 0) where it is damaged, which the engine has words for.
    """
    names = [k.name for k in kernel_table().kernels]
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


def step_values(data):
    """{(kernel, parameter): the values that a plan's steps have, or None where a register decides}
    of the parameters that CImplementation's `variants` name.
    """
    table, found = kernel_table(), {}
    _, _, _, _, init, steps, *_, at, _ = HEADER.unpack_from(data)
    for _ in range(init + steps):
        kernel, _, patches, _, size, step = STEP.unpack_from(data, at)
        k, params = table.kernels[kernel], at + STEP.size
        patched = {
            PATCH.unpack_from(data, params + -(-size // 8) * 8 + i * PATCH.size)[0]
            for i in range(patches)
        }
        for parameter in k.c.variants:
            word, key = word_of(k, parameter), (k.name, parameter)
            value = struct.unpack_from("<i", data, params + 4 * word)[0]
            found[key] = (
                None
                if word in patched or found.get(key, ()) is None or not 0 <= value < 64
                else found.get(key, set()) | {value}
            )
        at += step
    return found


def _step_bytes(step, ids):
    params, patches = bytearray(), []
    for name, kind in step.kernel.params.items():
        value = step.params[name]
        if kind == "f32":
            params += struct.pack("<f", value)
            continue
        for x in value if isinstance(value, list) else [value]:
            ends = (x, x)
            if isinstance(x, Sym):
                patches.append((len(params) // 4, x))
                ends = x.min, x.max
                x = x.min
            if ends[0] < -(1 << 31) or ends[1] >= 1 << 31:
                raise UnsupportedOp(
                    f"{step.kernel.name} with {name} = {x}: more than 2^31 elements",
                    step.label.where if step.label is not None else "graph outputs",
                    "Use a smaller batch, sequence or capacity.",
                )
            params += struct.pack("<i", int(x))
    size = len(params)
    params += bytes(-size % 8)
    out = bytearray(params)
    for at, x in patches:
        out += PATCH.pack(at, x.reg, x.scale, x.add)
    for v in step.operands:
        if v is None:
            out += OPERAND.pack(NONE, 0, 0, 0)
            continue
        b, offset, reg, scale = v.buffer, v.byte_offset(), 0, 0
        if isinstance(offset, Sym):
            reg, scale, offset = offset.reg + 1, offset.scale, offset.add
        base = b.offset if b.kind == "arena" else 0
        if b.owner is not None:
            base = b.offset
        out += OPERAND.pack(
            ARENA if b.kind == "arena" else CONST if b.kind == "const" else SLOT0 + b.index,
            reg,
            base + offset,
            scale,
        )
    return (
        STEP.pack(
            ids[step.kernel.name], len(step.operands), len(patches), 0, size, STEP.size + len(out)
        )
        + out
    )
