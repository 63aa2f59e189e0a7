"""The binary format of plans: little-endian structs, as the loader of the engine reads them.

The order of the sections is described in core/engine.h. `make gen` writes core/gen/plan_format.h
and web/src/gen/plan_format.ts, which also contain the error codes (errors.py).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MAGIC = b"EDGEPLN3"  # the last character is the version

# ew_operand.buffer: the arena, the constants, slot i as SLOT0 + i, or no operand.
ARENA, CONST, SLOT0, NONE = 0, 1, 2, 0xFFFFFFFF

# ew_register_entry.divisor of the counter of a loop.
COUNTER = -1

# Bits of ew_slot_entry.flags.
WRITABLE, GROWS = 1, 2

# Bits of ew_resolved_step.flags.
EMPTY, REGISTERS = 1, 2


class Field(NamedTuple):
    """A member of a struct. kind: u16, u32, u64, i32, i64 or magic (8 bytes)."""

    name: str
    kind: str
    comment: str


_CODES = {"u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q", "magic": "8s"}


class Struct(struct.Struct):
    """A packed little-endian struct with named members.

    Attributes:
        name: `ew_<name>` in C.
        comment: description.
        fields: members in order.
        at: offset of each member in bytes.
    """

    def __new__(cls, name: str, comment: str, fields: list[tuple[str, str, str]]) -> Struct:
        codes = "".join(_CODES[kind] for _, kind, _ in fields)
        return super().__new__(cls, "<" + codes)  # type: ignore[call-arg]

    def __init__(self, name: str, comment: str, fields: list[tuple[str, str, str]]) -> None:
        super().__init__("<" + "".join(_CODES[kind] for _, kind, _ in fields))
        self.name, self.comment = name, comment
        self.fields = [Field(*field) for field in fields]
        self.at: dict[str, int] = {}
        at = 0
        for field in self.fields:
            self.at[field.name] = at
            at += struct.calcsize("<" + _CODES[field.kind])


HEADER = Struct(
    "plan_header",
    "Beginning of a plan. Offsets are from the start of the plan, sizes in bytes.",
    [
        ("magic", "magic", "EW_PLAN_MAGIC without its terminating zero"),
        ("table_hash", "u32", "ew_table_hash() of the table that the plan was compiled for"),
        ("n_registers", "u32", "number of registers"),
        ("n_slots", "u32", "number of slots"),
        ("n_init_steps", "u32", "number of init steps, which come first"),
        ("n_steps", "u32", "number of other steps"),
        ("reserved", "u32", "0"),
        ("arena_bytes", "u64", "size of the arena during a run"),
        ("registers_at", "u64", "offset of ew_register_entry[n_registers]"),
        ("slots_at", "u64", "offset of ew_slot_entry[n_slots]"),
        ("const_at", "u64", "offset of the constants"),
        ("const_bytes", "u64", "size of the constants"),
        ("steps_at", "u64", "offset of the steps"),
        ("total_bytes", "u64", "size of the plan"),
    ],
)
REGISTER = Struct(
    "register_entry",
    "A register: a length that the host sets, where `divisor` is 0; a value that follows from"
    " registers before it and is set with them: (of_ab * [a] * [b] + of_a * [a] + of_b * [b] +"
    " add) / divisor, rounded down; or the counter of a loop, from 0 on, where `divisor` is"
    " EW_COUNTER. They come in this order.",
    [
        ("min", "i64", "smallest value"),
        ("max", "i64", "largest value"),
        ("a", "u32", "index of a register"),
        ("b", "u32", "index of a register"),
        ("of_ab", "i64", ""),
        ("of_a", "i64", ""),
        ("of_b", "i64", ""),
        ("add", "i64", ""),
        ("divisor", "i64", ""),
    ],
)
SLOT = Struct(
    "slot_entry",
    "A slot, which the host binds to memory.",
    [
        ("bytes", "u64", "minimum size of its memory; of one that grows, the most in use"),
        ("flags", "u32", "EW_SLOT_WRITABLE, EW_SLOT_GROWS"),
        ("reserved", "u32", "0"),
    ],
)
STEP = Struct(
    "step_header",
    "Beginning of a step.",
    [
        ("kernel", "u16", "id in the kernel table"),
        ("n_operands", "u16", "number of operands"),
        ("n_patches", "u16", "number of patches"),
        ("reserved", "u16", "0"),
        ("param_bytes", "u32", "size of the parameters, a multiple of 4"),
        ("step_bytes", "u32", "size of the whole step"),
    ],
)
PATCH = Struct(
    "patch",
    "A parameter that depends on a register. Before the step runs, params.i32[field] ="
    " registers[reg] * scale + add. The loader checks the step at both ends of the register's"
    " range.",
    [
        ("field", "u32", "index of a 32-bit word of the parameters"),
        ("reg", "u32", "index of the register"),
        ("scale", "i64", ""),
        ("add", "i64", ""),
    ],
)
OPERAND = Struct(
    "operand",
    "address = base(buffer) + offset + (reg ? registers[reg - 1] * scale : 0), in bytes.",
    [
        ("buffer", "u32", "EW_ARENA, EW_CONST, EW_SLOT0 + slot, or EW_NONE"),
        ("reg", "u32", "index of a register + 1, or 0"),
        ("offset", "i64", ""),
        ("scale", "i64", ""),
    ],
)
RESOLVED_STEP = Struct(
    "resolved_step",
    "Beginning of a step as ew_plan_resolve writes it, with the present values of the registers in"
    " its parameters and operands. Followed by the parameters (param_bytes, padded to 8) and"
    " ew_resolved_operand[n_operands].",
    [
        ("kernel", "u16", "id in the kernel table"),
        ("n_operands", "u16", "number of operands"),
        ("flags", "u32", "EW_STEP_EMPTY, EW_STEP_REGISTERS"),
        ("param_bytes", "u32", "size of the parameters, a multiple of 4"),
        ("step_bytes", "u32", "size of the whole record"),
    ],
)
RESOLVED_OPERAND = Struct(
    "resolved_operand",
    "An operand of a resolved step. Element 0 is at `offset` of its buffer; the step touches bytes"
    " begin to end - 1 of it and no others.",
    [
        ("buffer", "u32", "EW_ARENA, EW_CONST, EW_SLOT0 + slot, or EW_NONE: all others are 0"),
        ("element_bytes", "u32", "bytes per element"),
        ("offset", "i64", ""),
        ("begin", "i64", ""),
        ("end", "i64", "equal to begin in a step that is empty"),
    ],
)
ERROR = Struct(
    "error",
    "What ew_last_error returns.",
    [
        ("code", "i32", "ew_error_code"),
        ("step", "i32", "index of the step, init steps counted first; -1: none"),
        ("operand", "i32", "index of an operand, slot or register, as the code says; -1: none"),
        ("kernel", "i32", "id of the step's kernel; -1: none"),
        ("detail", "i64", "as the code says"),
    ],
)
STRUCTS = (HEADER, REGISTER, SLOT, STEP, PATCH, OPERAND, ERROR)
RESOLVED = (RESOLVED_STEP, RESOLVED_OPERAND)
