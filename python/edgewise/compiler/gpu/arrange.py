"""How the operands of a step are bound: which of them share a binding, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..schema.plan_format import ARENA
from .link import Binding, Role
from .steps import PlanStep, element_dtype

ALIGNMENT = 256  # bytes; bindings begin at multiples of it


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
        roles: of the operands; for each kernel, in the order in which they come.
        bindings: in order.
        ranges: (number, begin, end) of each binding; begin is a multiple of 256.
        offsets: of each step, those of element 0 of its operands from the beginning of their
            bindings, in elements.
        choices: of each step, which of the bindings of its role each operand lies in.
    """

    roles: tuple[tuple[Role, ...], ...]
    bindings: tuple[Binding, ...]
    ranges: tuple[tuple[int, int, int], ...]
    offsets: tuple[tuple[int, ...], ...]
    choices: tuple[tuple[int, ...], ...]


def arrange(
    steps: Sequence[PlanStep], spans: Sequence[Sequence[Span | None]], ends: Sequence[int] = ()
) -> Arrangement:
    """Groups the operands of steps that run in one dispatch into bindings.

    A GPUBuffer that is written may be bound once: all operands in it share the binding. In one that
    is only read, each range has a binding of its own; of several steps, each operand has one.

    Args:
        steps: the steps; neighbours of one kernel share their bindings.
        spans: of the operands of each; None where absent or not in memory, and for working memory
            of the C function.
        ends: behind the steps of each kind, where neighbours of one kernel may be several.
    """
    family = families_of(steps, ends)
    members = [
        (m, k, span) for m, of in enumerate(spans) for k, span in enumerate(of) if span is not None
    ]
    written = {span.number for m, k, span in members if steps[m].kernel.operands[k].output}
    groups: dict[tuple[int, int, int], list[tuple[int, int, Span]]] = {}
    for m, k, span in members:
        own = span[:3] if len(steps) == 1 else (span.number, -2 - family[m], k)
        if span.number in written:
            own = (span.number, -1, -1)
        groups.setdefault(own, []).append((m, k, span))
    used: dict[tuple[int, int], list[int]] = {}
    offsets = [[0] * len(step.operands) for step in steps]
    choices = [[0] * len(step.operands) for step in steps]
    bindings: list[Binding] = []
    ranges: list[tuple[int, int, int]] = []
    for (number, *_), of in groups.items():
        begin = min(span.begin for _, _, span in of) // ALIGNMENT * ALIGNMENT
        end = -(-max(span.end for _, _, span in of) // 4) * 4
        for m, k, span in of:
            ways = used.setdefault((family[m], k), [])
            if len(bindings) not in ways:
                ways.append(len(bindings))
            nbytes = element_dtype(steps[m].kernel, k, steps[m].params)[1]
            choices[m][k] = ways.index(len(bindings))
            offsets[m][k] = (span.zero - begin) // nbytes
        bindings.append(Binding(number in written, _stored(steps, of)))
        ranges.append((number, begin, end))
    firsts = [m for m in range(len(steps)) if m == 0 or family[m] != family[m - 1]]
    roles = tuple(
        tuple(
            Role(tuple(used.get((family[m], k), ())), o.output and (family[m], k) in used)
            for k, o in enumerate(steps[m].kernel.operands)
        )
        for m in firsts
    )
    return Arrangement(
        roles,
        tuple(bindings),
        tuple(ranges),
        tuple(map(tuple, offsets)),
        tuple(map(tuple, choices)),
    )


def families_of(steps: Sequence[PlanStep], ends: Sequence[int] = ()) -> list[int]:
    """For each step, how many other kinds come before its own."""
    family = [0] * len(steps)
    for m in range(1, len(steps)):
        family[m] = family[m - 1] + (m in ends or steps[m].kernel is not steps[m - 1].kernel)
    return family


def _stored(steps: Sequence[PlanStep], members: Sequence[tuple[int, int, Span]]) -> str:
    """What the operands with one binding are stored as."""
    types = {
        (steps[m].kernel.operands[k].output, *element_dtype(steps[m].kernel, k, steps[m].params))
        for m, k, _ in members
    }
    if any(output and nbytes < 4 for output, _, nbytes in types):
        return "atomic<u32>"
    return "f32" if all(dtype == 1 for _, dtype, _ in types) else "u32"


def is_scratch(step: PlanStep, index: int) -> bool:
    """Whether an operand is working memory of the C function, in the engine's own arena."""
    v = step.operands[index]
    return v is not None and v.buffer == ARENA and step.kernel.operands[index].scratch
