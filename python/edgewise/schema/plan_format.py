"""The binary format of plans: little-endian structs, as the loader of the engine reads them.

The order of the sections is described in core/engine.h. Generates core/gen/plan_format.h and
web/src/gen/plan_format.ts, which also contain the error codes (errors.py).
"""

from __future__ import annotations

import json
import struct
import textwrap
from typing import NamedTuple

from .errors import ALIAS_ARENA, ALIAS_PLAN, ERRORS

MAGIC = b"EDGEPLN2"  # the last character is the version

# ew_operand.buffer: the arena, the constants, slot i as SLOT0 + i, or no operand.
ARENA, CONST, SLOT0, NONE = 0, 1, 2, 0xFFFFFFFF

# Bits of ew_slot_entry.flags.
WRITABLE = 1

# Bits of ew_resolved_step.flags.
EMPTY, REGISTERS = 1, 2


class Field(NamedTuple):
    """A member of a struct. kind: u16, u32, u64, i32, i64 or magic (8 bytes)."""

    name: str
    kind: str
    comment: str


_CODES = {"u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q", "magic": "8s"}
_C_TYPES = {k: f"{'u' * (k[0] == 'u')}int{k[1:]}_t" for k in _CODES if k != "magic"}


class Struct(struct.Struct):
    """A packed little-endian struct with named members.

    Attributes:
        name: `ew_<name>` in C.
        comment: what it describes.
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
    "A register: a length that the host sets, where `divisor` is 0; or a value that follows from"
    " registers before it and is set with them: (of_ab * [a] * [b] + of_a * [a] + of_b * [b] +"
    " add) / divisor, rounded down.",
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
        ("bytes", "u64", "minimum size of the memory bound to the slot"),
        ("flags", "u32", "EW_SLOT_WRITABLE"),
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

_NOTE = "generated by `make gen` from python/edgewise/schema; do not edit"


def _comment(text: str, indent: str = "") -> list[str]:
    """A C comment, wrapped at 100 columns."""
    lines = textwrap.wrap(text, 94 - len(indent), break_on_hyphens=False)
    lines = [f"{indent}{' * ' if i else '/* '}{line}" for i, line in enumerate(lines)]
    return [*lines[:-1], lines[-1] + " */"]


def header(table: object) -> str:
    """core/gen/plan_format.h. table: of kernels, which the format does not depend on."""
    out = [
        f"/* {_NOTE} */",
        "#ifndef EDGEWISE_GEN_PLAN_FORMAT_H",
        "#define EDGEWISE_GEN_PLAN_FORMAT_H",
        "#include <stdint.h>",
        "",
        "/* The last character is the version. */",
        f'#define EW_PLAN_MAGIC "{MAGIC.decode()}"',
        "",
        "/* Values of ew_operand.buffer: the arena, the constants, slot i as EW_SLOT0 + i, or no"
        " operand. */",
        f"enum {{ EW_ARENA = {ARENA}, EW_CONST = {CONST}, EW_SLOT0 = {SLOT0},"
        f" EW_NONE = {NONE:#x}u }};",
        "",
        "/* Bits of ew_slot_entry.flags. */",
        f"enum {{ EW_SLOT_WRITABLE = {WRITABLE} }};",
        "",
        "/* Bits of ew_resolved_step.flags: the step touches no memory and need not run; it"
        " depends",
        " * on registers and must be resolved again after one has changed. */",
        f"enum {{ EW_STEP_EMPTY = {EMPTY}, EW_STEP_REGISTERS = {REGISTERS} }};",
    ]
    for item in (*STRUCTS, *RESOLVED):
        out += ["", *_comment(item.comment), "typedef struct {"]
        for field in item.fields:
            member = f"  {_C_TYPES[field.kind]} {field.name};" if field.kind in _C_TYPES else ""
            member = member or f"  char {field.name}[8];"
            out.append(f"{member} /* {field.comment} */" if field.comment else member)
        out += [
            f"}} ew_{item.name};",
            f'_Static_assert(sizeof(ew_{item.name}) == {item.size}, "ew_{item.name}");',
        ]
    out += ["", "enum ew_error_code {", "  EW_OK = 0,"]
    for error in ERRORS:
        out += [*_comment(error.detail, "  "), f"  EW_E_{error.name} = {error.code},"]
    out += [
        "};",
        "",
        "/* ew_error.detail of EW_E_ALIAS where a slot overlaps memory of the engine itself. */",
        f"enum {{ EW_ALIAS_ARENA = {ALIAS_ARENA}, EW_ALIAS_PLAN = {ALIAS_PLAN} }};",
        "#endif",
        "",
    ]
    return "\n".join(out)


def _layout(name: str, structs: tuple[Struct, ...]) -> list[str]:
    """A TypeScript table of structs."""
    out = [f"export const {name} = {{"]
    for item in structs:
        key = "".join(part.title() for part in item.name.split("_"))
        out += [f"  {key[0].lower()}{key[1:]}: {{", f"    bytes: {item.size},", "    at: {"]
        out += [f"      {field}: {at}," for field, at in item.at.items()]
        out += ["    },", "  },"]
    return [*out, "} as const;"]


def typescript(table: object) -> str:
    """web/src/gen/plan_format.ts. table: of kernels, which the format does not depend on."""
    out = [
        f"// {_NOTE}",
        f"export const MAGIC = {json.dumps(MAGIC.decode())};",
        "/** Values of an operand's buffer; slot i is SLOT0 + i. */",
        f"export const BUFFERS = {{ ARENA: {ARENA}, CONST: {CONST}, SLOT0: {SLOT0},"
        f" NONE: {NONE:#x} }} as const;",
        "/** Bit of a slot's flags. */",
        f"export const SLOT_WRITABLE = {WRITABLE};",
        "/** Bits of a resolved step's flags: it touches no memory; it depends on registers. */",
        f"export const STEP_FLAGS = {{ EMPTY: {EMPTY}, REGISTERS: {REGISTERS} }} as const;",
        "/** Structs of core/gen/plan_format.h: size in bytes and offset of each member. */",
        *_layout("LAYOUT", STRUCTS),
        "/** Layout of the steps that ew_plan_resolve writes. */",
        *_layout("RESOLVED_LAYOUT", RESOLVED),
    ]
    out += ["/** Error codes: name and text by code; 0 is success. */"]
    out += [
        "export const ERRORS: Readonly<Record<number, readonly [name: string, text: string]>> = {"
    ]
    out += [f"  {e.code}: [{json.dumps(e.name)}, {json.dumps(e.text)}]," for e in ERRORS]
    out += [
        "};",
        "/** Detail of ALIAS where a slot overlaps memory of the engine itself. */",
        f"export const ALIAS = {{ ARENA: {ALIAS_ARENA}, PLAN: {ALIAS_PLAN} }} as const;",
        "",
    ]
    return "\n".join(out)


GENERATED = {"core/gen/plan_format.h": header, "web/src/gen/plan_format.ts": typescript}
