"""How the operands of steps are bound: which of them share a binding, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .link import Binding, Role
from .steps import Step

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
        ranges: (number, begin, end) of each binding; begin is a multiple of ALIGNMENT.
        offsets: of each step, those of element 0 of its operands from the beginning of their
            bindings, in elements.
        choices: of each step, which of the bindings of its role each operand lies in.
    """

    roles: list[list[Role]]
    bindings: list[Binding]
    ranges: list[tuple[int, int, int]]
    offsets: list[list[int]]
    choices: list[list[int]]


class _Member(NamedTuple):
    """An operand: the number of its step, its own, and its memory."""

    m: int
    k: int
    span: Span


def arrange(
    steps: Sequence[Step], spans: Sequence[Sequence[Span | None]], ends: Sequence[int] = ()
) -> Arrangement:
    """Groups the operands of steps that run in one dispatch into bindings.

    A GPUBuffer that is written may be bound once: all operands in it share the binding. In one that
    is only read, each range has a binding of its own; of several steps, each operand has one.

    Args:
        steps: the steps; neighbours of one kernel share their bindings.
        spans: of the operands of each; None where absent or not in memory, and for working memory
            of the C function.
        ends: after the steps of each kind, where neighbours of one kernel may be several.
    """
    family = families_of([step.kernel for step in steps], ends)
    written: set[int] = set()
    members: list[_Member] = []
    for m, of in enumerate(spans):
        for k, span in enumerate(of):
            if span is not None:
                members.append(_Member(m, k, span))
                if steps[m].operands[k].output:
                    written.add(span.number)
    groups: dict[str, list[_Member]] = {}
    for member in members:
        span = member.span
        key = f"{span.number}"
        if span.number not in written:
            one = len(steps) == 1
            own = f"{span.begin} {span.end}" if one else f"of {family[member.m]} {member.k}"
            key = f"{span.number} {own}"
        if key not in groups:
            groups[key] = []
        groups[key].append(member)
    used: dict[str, list[int]] = {}
    offsets = [[0 for _ in step.operands] for step in steps]
    choices = [[0 for _ in step.operands] for step in steps]
    bindings: list[Binding] = []
    ranges: list[tuple[int, int, int]] = []
    for found in groups.values():
        number = found[0].span.number
        begin = min([member.span.begin for member in found]) // ALIGNMENT * ALIGNMENT
        end = -(-max([member.span.end for member in found]) // 4) * 4
        for member in found:
            m, k = member.m, member.k
            role = f"{family[m]} {k}"
            if role not in used:
                used[role] = []
            ways = used[role]
            if len(bindings) not in ways:
                ways.append(len(bindings))
            choices[m][k] = ways.index(len(bindings))
            offsets[m][k] = (member.span.zero - begin) // steps[m].operands[k].nbytes
        bindings.append(Binding(number in written, _stored(steps, found)))
        ranges.append((number, begin, end))
    roles: list[list[Role]] = []
    for m, step in enumerate(steps):
        if m > 0 and family[m] == family[m - 1]:
            continue
        its: list[Role] = []
        for k, o in enumerate(step.operands):
            ways = used.get(f"{family[m]} {k}", [])
            its.append(Role(ways, o.output and len(ways) > 0))
        roles.append(its)
    return Arrangement(roles, bindings, ranges, offsets, choices)


def families_of(kernels: Sequence[str], ends: Sequence[int] = ()) -> list[int]:
    """For each step, how many other kinds come before its own. kernels: of the steps."""
    family: list[int] = []
    for m, kernel in enumerate(kernels):
        if m == 0:
            family.append(0)
        else:
            other = m in ends or kernel != kernels[m - 1]
            family.append(family[m - 1] + (1 if other else 0))
    return family


def _stored(steps: Sequence[Step], members: Sequence[_Member]) -> str:
    """What the operands with one binding are stored as."""
    floats = True
    for member in members:
        operand = steps[member.m].operands[member.k]
        if operand.output and operand.nbytes < 4:
            return "atomic<u32>"
        floats = floats and operand.dtype == 1
    return "f32" if floats else "u32"
