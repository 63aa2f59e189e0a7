"""The steps of a plan as a GPU runs them: parameters and offsets may be linear in registers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...logic.gpu.steps import Linear, Operand, Param, Size, Step
from ..declare.kernel import Kernel, dimensions, evaluate
from ..declare.registers import Rule
from ..ops.table import kernel_table
from ..schema.plan_format import ARENA, HEADER, NONE, OPERAND, PATCH, REGISTER, SLOT, STEP
from .gen.shaders import TUNABLES

Params = dict[str, Param]


@dataclass(frozen=True)
class StepOperand:
    """Where an operand lies.

    Attributes:
        buffer: schema.plan_format.ARENA or CONST, or SLOT0 + the number of a slot.
        offset: of element 0 in bytes.
        register, scale: the offset grows by registers[register] * scale bytes; -1: it does not.
    """

    buffer: int
    offset: int
    register: int
    scale: int

    @property
    def form(self) -> tuple[int, int, int]:
        """What a shader depends on of it."""
        return self.offset % 4, self.register, self.scale


@dataclass(frozen=True)
class PlanStep:
    """A step.

    Attributes:
        kernel: its contract.
        params: by name; numbers, Linear, or lists of them.
        operands: in the order of the contract, None where absent.
        serial: whether it runs on a GPU in software, which takes long for barriers.
        memo: what has been found out about it, shared by steps that differ in their memory alone.
    """

    kernel: Kernel
    params: Params
    operands: tuple[StepOperand | None, ...]
    serial: bool = False
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def dynamic(self) -> bool:
        """Whether a parameter follows a register."""
        if "dynamic" not in self.memo:
            self.memo["dynamic"] = any(
                isinstance(x, Linear)
                for value in self.params.values()
                for x in (value if isinstance(value, list) else [value])
            )
        return bool(self.memo["dynamic"])

    @property
    def moves(self) -> bool:
        """Whether a parameter or an operand follows a register."""
        return self.dynamic or any(v is not None and v.register >= 0 for v in self.operands)

    @property
    def linked(self) -> Step:
        """The step as its programs see it."""
        if "linked" not in self.memo:
            self.memo["linked"] = self._linked()
        found: Step = self.memo["linked"]
        return found

    def _linked(self) -> Step:
        operands = []
        for i, (o, v) in enumerate(zip(self.kernel.operands, self.operands)):
            dims, strides = dimensions(o.layout)[0] if o.layout else ("", "")
            types = element_dtype(self.kernel, i, self.params)
            register, scale = (v.register, v.scale) if v is not None else (-1, 0)
            operands.append(
                Operand(o.name, o.output, v is not None, dims, strides, *types, register, scale)
            )
        floats = {name for name, kind in self.kernel.params.items() if kind == "f32"}
        return Step(self.kernel.name, self.params, floats, operands)

    def values(self, registers: Sequence[int]) -> dict[str, int | float | list[int]]:
        """The parameters with these registers."""

        def value(x: int | float | Linear) -> int | float:
            return x.at(registers) if isinstance(x, Linear) else x

        return {
            name: [int(value(y)) for y in x] if isinstance(x, list) else value(x)
            for name, x in self.params.items()
        }

    def is_empty(self, values: dict[str, int | float | list[int]]) -> bool:
        """Whether a step with these values of its parameters does nothing."""
        counts = [values[name] for name in self.kernel.empty]
        return any(0 in c if isinstance(c, list) else c == 0 for c in counts)


def steps_of(
    data: bytes, serial: bool = False, tuned: Mapping[str, int] | None = None
) -> list[PlanStep]:
    """All steps of a plan, init steps first. The engine has checked it.

    Args:
        data: the plan.
        serial: as of PlanStep.
        tuned: values of tunables, which become parameters; others have their defaults.
    """
    kernels = kernel_table().kernels
    header = HEADER.unpack_from(data)
    out, at = [], header[HEADER_STEPS_AT]
    known: dict[Any, tuple[Params, dict[Any, Any]]] = {}
    for _ in range(header[HEADER_INIT] + header[HEADER_STEPS]):
        kernel, n_operands, n_patches, _, param_bytes, step_bytes = STEP.unpack_from(data, at)
        params_at = at + STEP.size
        patches_at = params_at + -(-param_bytes // 8) * 8
        operands_at = patches_at + n_patches * PATCH.size
        patches = {
            word: Linear(register, scale, add)
            for word, register, scale, add in (
                PATCH.unpack_from(data, patches_at + i * PATCH.size) for i in range(n_patches)
            )
        }
        unpacked = (
            OPERAND.unpack_from(data, operands_at + i * OPERAND.size) for i in range(n_operands)
        )
        operands = tuple(
            None if o[0] == NONE else StepOperand(o[0], o[2], o[1] - 1, o[3]) for o in unpacked
        )
        form = kernel, data[params_at:operands_at], *(v and v.form for v in operands)
        if form not in known:
            values = data[params_at : params_at + param_bytes]
            tunables = TUNABLES.get(kernels[kernel].name, {})
            given = {name: (tuned or {}).get(name, of[0]) for name, of in tunables.items()}
            known[form] = {**_params(kernels[kernel], values, patches), **given}, {}
        params, memo = known[form]
        out.append(PlanStep(kernels[kernel], params, operands, serial, memo))
        at += step_bytes
    return out


def end_of_steps(data: bytes) -> int:
    """The byte after the last step of a plan that the engine has checked."""
    header = HEADER.unpack_from(data)
    at: int = header[HEADER_STEPS_AT]
    for _ in range(header[HEADER_INIT] + header[HEADER_STEPS]):
        at += STEP.unpack_from(data, at)[-1]
    return at


HEADER_INIT, HEADER_STEPS, HEADER_REGISTERS_AT, HEADER_SLOTS_AT = 4, 5, 8, 9
HEADER_CONST_AT, HEADER_STEPS_AT = 10, 12


def constants_of(data: bytes) -> bytes:
    """The constant section of a plan."""
    header = HEADER.unpack_from(data)
    return data[header[HEADER_CONST_AT] : header[HEADER_CONST_AT] + header[HEADER_CONST_AT + 1]]


def register_ranges(data: bytes) -> list[tuple[int, int]]:
    """(lowest, highest value) of each register of a plan."""
    header = HEADER.unpack_from(data)
    count, at = header[2], header[HEADER_REGISTERS_AT]
    return [REGISTER.unpack_from(data, at + i * REGISTER.size)[:2] for i in range(count)]


def register_rules(data: bytes) -> dict[int, Rule]:
    """{register: how it follows from others} of a plan."""
    header = HEADER.unpack_from(data)
    count, at = header[2], header[HEADER_REGISTERS_AT]
    entries = (REGISTER.unpack_from(data, at + i * REGISTER.size)[2:] for i in range(count))
    return {i: rule for i, e in enumerate(entries) if (rule := Rule(*e)).divisor}


def slot_bytes(data: bytes) -> list[int]:
    """Bytes of each slot of a plan."""
    header = HEADER.unpack_from(data)
    count, at = header[3], header[HEADER_SLOTS_AT]
    return [SLOT.unpack_from(data, at + i * SLOT.size)[0] for i in range(count)]


def first_registers(data: bytes) -> list[int]:
    """The registers of a plan before one is set: what is next to 0, and what follows from it."""
    rules = register_rules(data)
    out: list[int] = []
    for i, (low, high) in enumerate(register_ranges(data)):
        out.append(rules[i].at(out) if i in rules else min(max(low, 0), high))
    return out


class Touched(NamedTuple):
    """Bytes of a buffer that a step may touch: of an arena, the constants or a slot, as numbered in
    StepOperand.
    """

    buffer: int
    begin: int
    end: int


def touched_by(step: PlanStep, registers: Sequence[int]) -> tuple[Touched | None, ...]:
    """What each operand of a step touches with these registers, by its contract; the rules are
    those of the engine in C (core/resolve.c).
    """
    values = step.values(registers)
    if step.is_empty(values):
        return tuple(None if v is None else Touched(v.buffer, 0, 0) for v in step.operands)
    out: list[Touched | None] = []
    for o, v in zip(step.kernel.operands, step.operands):
        if v is None:
            out.append(None)
            continue
        size = evaluate(o.size, values)
        at = v.offset + (registers[v.register] * v.scale if v.register >= 0 else 0)
        low, high = evaluate(o.lo, values), evaluate(o.hi, values)
        out.append(Touched(v.buffer, at + low * size, at + high * size))
    return tuple(out)


def _params(kernel: Kernel, data: bytes, patches: dict[int, Linear]) -> Params:
    out: Params = {}
    at = 0
    for name, kind in kernel.params.items():
        count = int(kind[4:-1]) if "[" in kind else 1
        numbers: list[Size] = []
        for i in range(at, at + count):
            numbers.append(patches.get(i) or struct.unpack_from("<i", data, 4 * i)[0])
        if kind == "f32":
            out[name] = float(struct.unpack_from("<f", data, 4 * at)[0])
        else:
            out[name] = numbers if "[" in kind else numbers[0]
        at += count
    return out


def element_dtype(kernel: Kernel, index: int, params: Params) -> tuple[int, int]:
    """(ONNX code of an operand's elements, or 0 where they are only moved; bytes per element)"""
    type_ = kernel.operands[index].type
    plain = {k: v for k, v in params.items() if not isinstance(v, Linear)}
    if type_.bool_if and evaluate(type_.bool_if, plain):
        return 9, 1
    if type_.parameter:
        code = params[type_.parameter]
        assert isinstance(code, int)
        return code, _SIZES.get(code, 1)
    if len(type_.codes) == 1:
        return type_.codes[0], _SIZES.get(type_.codes[0], 1)
    if type_.codes:
        return type_.codes[0], int(type_.size)
    return 0, int(evaluate(type_.size, plain))


def is_scratch(step: PlanStep, index: int) -> bool:
    """Whether an operand is working memory of the C function, in the engine's own arena."""
    v = step.operands[index]
    return v is not None and v.buffer == ARENA and step.kernel.operands[index].scratch


_SIZES = {1: 4, 4: 2, 5: 2, 6: 4, 7: 8, 10: 2, 11: 8, 12: 4, 13: 8, 16: 2}
