"""Steps of a plan that C has loaded and checked, in a form that another device can run."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from ...compiler.schema.plan_format import EMPTY, NONE, REGISTERS, RESOLVED_OPERAND, RESOLVED_STEP

if TYPE_CHECKING:
    from .base import LoadedPlan


class ResolvedOperand(NamedTuple):
    """Where an operand of a step lies.

    Attributes:
        buffer: schema.plan_format.ARENA or CONST, or SLOT0 + the number of a slot.
        element_bytes: bytes per element.
        offset: of element 0, in bytes from the beginning of the buffer.
        begin, end: the range of bytes that the step touches, `end` exclusive.
    """

    buffer: int
    element_bytes: int
    offset: int
    begin: int
    end: int


class ResolvedStep(NamedTuple):
    """A step with the registers' present values in its parameters and operands.

    Attributes:
        kernel: its name.
        params: its parameters as the C struct `ew_<kernel>_params`.
        operands: in the order of the contract, None where absent.
        empty: whether the step touches no memory and need not run.
        registers: whether it depends on registers, so that it must be resolved again after one of
            them has changed.
    """

    kernel: str
    params: bytes
    operands: tuple[ResolvedOperand | None, ...]
    empty: bool
    registers: bool


def resolve(loaded: LoadedPlan, first: int, count: int) -> list[ResolvedStep]:
    """See LoadedPlan.resolve."""
    engine = loaded.engine
    size = struct.Struct(engine.POINTER)

    def call(out: int, room: int) -> int:
        engine.write(engine.cell, size.pack(room))
        if engine.call("ew_plan_resolve", loaded.handle, first, count, out, engine.cell):
            raise engine.error(loaded.plan, "resolve")
        return size.unpack(engine.read(engine.cell, size.size))[0]

    with engine.lock:
        loaded.check_idle()
        needed = call(0, 0)
        out = engine.alloc(needed)
        try:
            call(out, needed)
            names = loaded.plan.kernels[first : first + count]
            return parse_steps(engine.read(out, needed), names)
        finally:
            engine.free(out)


def parse_steps(data: bytes, kernels: list[str]) -> list[ResolvedStep]:
    """The records that ew_plan_resolve writes. kernels: names of the steps' kernels."""
    steps, at = [], 0
    for kernel in kernels:
        _, n_operands, flags, param_bytes, step_bytes = RESOLVED_STEP.unpack_from(data, at)
        params_at = at + RESOLVED_STEP.size
        operands_at = at + step_bytes - n_operands * RESOLVED_OPERAND.size
        operands = [
            RESOLVED_OPERAND.unpack_from(data, operands_at + i * RESOLVED_OPERAND.size)
            for i in range(n_operands)
        ]
        steps.append(
            ResolvedStep(
                kernel,
                data[params_at : params_at + param_bytes],
                tuple(None if o[0] == NONE else ResolvedOperand(*o) for o in operands),
                bool(flags & EMPTY),
                bool(flags & REGISTERS),
            )
        )
        at += step_bytes
    return steps
