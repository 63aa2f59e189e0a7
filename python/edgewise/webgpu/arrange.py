"""How the operands of a step are bound: which of them share a binding, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..schema.plan_format import ARENA
from .memory import ALIGNMENT
from .steps import PlanStep, element_dtype
from .wgsl import Binding, Role


class Span(NamedTuple):
    """The memory of an operand.

    Attributes:
        number: of its GPUBuffer; until memory is bound, of its slot.
        begin, end: the bytes of the GPUBuffer that the step may touch, and more where that helps
            to share bindings.
        zero: where element 0 lies, without what follows a register.
    """

    number: int
    begin: int
    end: int
    zero: int


class Arrangement(NamedTuple):
    """What a dispatch binds.

    Attributes:
        roles: of the operands.
        bindings: in order.
        ranges: (number, begin, end) of each binding; begin is a multiple of 256.
        offsets: of each step, those of element 0 of its operands from the beginning of their
            bindings, in elements.
        choices: of each step, which of the bindings of its role each operand lies in.
    """

    roles: tuple[Role, ...]
    bindings: tuple[Binding, ...]
    ranges: tuple[tuple[int, int, int], ...]
    offsets: tuple[tuple[int, ...], ...]
    choices: tuple[tuple[int, ...], ...]


def arrange(steps: Sequence[PlanStep], spans: Sequence[Sequence[Span | None]]) -> Arrangement:
    """Groups the operands of steps that run in one dispatch into bindings.

    A GPUBuffer that is written may be bound once: all operands in it share the binding. In one that
    is only read, each range has a binding of its own; of several steps, each operand has one.

    Args:
        steps: of one kernel.
        spans: of the operands of each; None where absent, and for working memory of the C function.
    """
    operands = steps[0].kernel.operands
    members = [
        (m, k, span) for m, of in enumerate(spans) for k, span in enumerate(of) if span is not None
    ]
    written = {span.number for _, k, span in members if operands[k].output}
    groups: dict[tuple[int, int, int], list[tuple[int, int, Span]]] = {}
    for m, k, span in members:
        own = span[:3] if len(steps) == 1 else (span.number, -1, k)
        if span.number in written:
            own = (span.number, -1, -1)
        groups.setdefault(own, []).append((m, k, span))
    used: list[list[int]] = [[] for _ in operands]
    offsets = [[0] * len(operands) for _ in steps]
    choices = [[0] * len(operands) for _ in steps]
    bindings: list[Binding] = []
    ranges: list[tuple[int, int, int]] = []
    for (number, *_), of in groups.items():
        begin = min(span.begin for _, _, span in of) // ALIGNMENT * ALIGNMENT
        end = -(-max(span.end for _, _, span in of) // 4) * 4
        for m, k, span in of:
            if len(bindings) not in used[k]:
                used[k].append(len(bindings))
            choices[m][k] = used[k].index(len(bindings))
            offsets[m][k] = (span.zero - begin) // element_dtype(
                steps[m].kernel, k, steps[m].params
            )[1]
        bindings.append(Binding(number in written, _stored(steps[0], {k for _, k, _ in of})))
        ranges.append((number, begin, end))
    roles = [Role(tuple(of), bool(of) and o.output) for o, of in zip(operands, used)]
    return Arrangement(
        tuple(roles),
        tuple(bindings),
        tuple(ranges),
        tuple(map(tuple, offsets)),
        tuple(map(tuple, choices)),
    )


def _stored(step: PlanStep, members: set[int]) -> str:
    """What the operands with one binding are stored as."""
    types = [
        (step.kernel.operands[k].output, *element_dtype(step.kernel, k, step.params))
        for k in members
    ]
    if any(output and nbytes < 4 for output, _, nbytes in types):
        return "atomic<u32>"
    return "f32" if all(dtype == 1 for _, dtype, _ in types) else "u32"


def is_scratch(step: PlanStep, index: int) -> bool:
    """Whether an operand is working memory of the C function, in the engine's own arena."""
    v = step.operands[index]
    return v is not None and v.buffer == ARENA
