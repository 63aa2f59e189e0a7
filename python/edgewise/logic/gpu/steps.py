"""Steps of a plan as their programs see them: numbers, operands, and the shader that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Linear:
    """A number that follows a register: registers[register] * scale + add."""

    register: int
    scale: int
    add: int

    def at(self, registers: Sequence[int]) -> int:
        """Its value."""
        return registers[self.register] * self.scale + self.add


Size = int | Linear
Param = int | float | Linear | list[Size]


class Operand(NamedTuple):
    """An operand of a step.

    Attributes:
        name: in the kernel's contract.
        output: whether the step writes it.
        present: whether the step has it.
        dims, strides: names of the parameters with its sizes and strides; "" where it has none.
        dtype: ONNX code of its elements, 0 where they are only moved.
        nbytes: of an element.
        register, scale: it begins registers[register] * scale bytes later; -1: it does not.
    """

    name: str
    output: bool
    present: bool
    dims: str
    strides: str
    dtype: int
    nbytes: int
    register: int
    scale: int


class Step(NamedTuple):
    """A step.

    Attributes:
        kernel: its name.
        params: by name.
        floats: names of those that are floats.
        operands: in the order of the contract.
    """

    kernel: str
    params: dict[str, Param]
    floats: set[str]
    operands: list[Operand]


class Shader(NamedTuple):
    """A shader of a kernel, for a step.

    Attributes:
        group: invocations in a workgroup.
        element: whether its body computes single elements, not what a workgroup does.
        total: threads or workgroups, an expression over the parameters.
        applied: {name in the body: the function that stands for it}.
        parts: {name: text} of its declarations.
        shared: the same of those that all shaders share.
        before, after, takes: names of the operands that another body computes, joins or gives.
        joins: two inputs and an output, which it makes of results of the two steps before it.
        paired: whether it takes two elements of an operand.
    """

    group: int
    element: bool
    total: str
    applied: dict[str, str]
    parts: dict[str, str]
    shared: dict[str, str]
    before: str = ""
    after: str = ""
    takes: str = ""
    joins: str = ""
    paired: bool = False


def follows(value: Param) -> bool:
    """Whether a parameter, or a number of it, follows a register."""
    if isinstance(value, list):
        return any(isinstance(x, Linear) for x in value)
    return isinstance(value, Linear)
