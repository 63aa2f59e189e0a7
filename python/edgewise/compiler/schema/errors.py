"""Error codes of the engine and the texts that hosts show for them."""

from __future__ import annotations

from typing import NamedTuple


class Error(NamedTuple):
    """An error code.

    Attributes:
        name: `EW_E_<name>` in C.
        code: value that functions of the engine return.
        text: description of the error, as hosts show it.
        detail: documentation of the code and of `ew_error.detail`.
    """

    name: str
    code: int
    text: str
    detail: str


ERRORS = (
    Error("MEMORY", 1, "out of memory", "An allocation failed. detail: bytes requested."),
    Error(
        "FORMAT",
        2,
        "not a valid plan",
        "Not a plan, truncated, or sections out of bounds. detail: offset in the plan.",
    ),
    Error(
        "TABLE",
        3,
        "made for another version of the engine",
        "Compiled for another kernel table. detail: the plan's table hash.",
    ),
    Error(
        "KERNEL", 4, "unknown kernel", "Unknown kernel, or wrong parameter size or operand count."
    ),
    Error(
        "PARAM",
        5,
        "a parameter rule is violated",
        "A parameter rule of the kernel is violated. detail: index of the rule.",
    ),
    Error(
        "BOUNDS",
        6,
        "an operand reaches outside its buffer",
        "An operand extends beyond its buffer.",
    ),
    Error(
        "ALIAS",
        7,
        "an output overlaps another operand",
        "An output overlaps another operand in a way the kernel does not allow. Or, with step -1:"
        " slot `operand` overlaps slot `detail` and one of the two is writable, or it overlaps"
        " memory of the engine (detail: EW_ALIAS_ARENA or EW_ALIAS_PLAN).",
    ),
    Error(
        "READONLY",
        8,
        "an output in read-only memory",
        "An output lies in the constants or in a slot that is not writable.",
    ),
    Error("UNBOUND", 9, "a slot is not bound", "A slot is not bound. operand: slot."),
    Error(
        "REGISTER",
        10,
        "a register value out of range",
        "A register value is out of range. operand: register.",
    ),
    Error(
        "INDEX",
        11,
        "an index is out of range",
        "An index read from tensor data is out of range. detail: the index.",
    ),
    Error("ARGUMENT", 12, "an invalid argument", "An argument of the call is invalid."),
    Error(
        "ABSENT",
        13,
        "a kernel that this engine was built without",
        "This engine was built without the step's kernel (detail: -1) or without the code for a"
        " parameter's value (detail: the value).",
    ),
    Error(
        "STOPPED",
        14,
        "the run was stopped",
        "ew_stop ended the run before or during this step. detail: value of the stop word.",
    ),
    Error(
        "TRIPS",
        15,
        "its loops ran too many iterations",
        "The loops of a run exceeded the limit of ew_plan_trips. detail: the limit.",
    ),
    Error(
        "JUMP",
        16,
        "a jump leads out of the plan",
        "A step jumps to a place outside of the steps of a run, or its counter is none.",
    ),
)

# ew_error.detail of ALIAS where a slot overlaps memory of the engine itself.
ALIAS_ARENA, ALIAS_PLAN = -1, -2

# Texts by code.
TEXTS = {error.code: error.text for error in ERRORS}
