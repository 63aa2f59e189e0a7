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
    """What a step binds.

    Attributes:
        roles: of the operands.
        bindings: in order.
        ranges: (number, begin, end) of each binding; begin is a multiple of 256.
        offsets: of element 0 of each operand from the beginning of its binding, in elements.
    """

    roles: tuple[Role, ...]
    bindings: tuple[Binding, ...]
    ranges: tuple[tuple[int, int, int], ...]
    offsets: tuple[int, ...]


def arrange(step: PlanStep, spans: Sequence[Span | None]) -> Arrangement:
    """Groups the operands of a step into bindings.

    A GPUBuffer that is written may be bound once: all operands in it share the binding. In one that
    is only read, each range has a binding of its own.

    Args:
        step: the step.
        spans: of its operands; None where absent, and for working memory of the C function.
    """
    written = {
        span.number for o, span in zip(step.kernel.operands, spans) if span is not None and o.output
    }
    groups: dict[tuple[int, int, int], list[int]] = {}
    for i, span in enumerate(spans):
        if span is not None:
            own = (span.number, -1, -1) if span.number in written else span[:3]
            groups.setdefault(own, []).append(i)
    roles = [Role(-1, False)] * len(spans)
    offsets = [0] * len(spans)
    bindings: list[Binding] = []
    ranges: list[tuple[int, int, int]] = []
    for (number, *_), members in groups.items():
        of = [span for i in members if (span := spans[i]) is not None]
        begin = min(span.begin for span in of) // ALIGNMENT * ALIGNMENT
        end = -(-max(span.end for span in of) // 4) * 4
        stored = _stored(step, members)
        for i in members:
            span = spans[i]
            assert span is not None
            roles[i] = Role(len(bindings), step.kernel.operands[i].output)
            offsets[i] = (span.zero - begin) // element_dtype(step.kernel, i, step.params)[1]
        bindings.append(Binding(number in written, stored))
        ranges.append((number, begin, end))
    return Arrangement(tuple(roles), tuple(bindings), tuple(ranges), tuple(offsets))


def _stored(step: PlanStep, members: Sequence[int]) -> str:
    """What the operands with one binding are stored as."""
    types = [element_dtype(step.kernel, i, step.params) for i in members]
    outputs = [step.kernel.operands[i].output for i in members]
    if any(output and nbytes < 4 for output, (_, nbytes) in zip(outputs, types)):
        return "atomic<u32>"
    return "f32" if all(dtype == 1 for dtype, _ in types) else "u32"


def is_scratch(step: PlanStep, index: int) -> bool:
    """Whether an operand is working memory of the C function, in the engine's own arena."""
    v = step.operands[index]
    return v is not None and v.buffer == ARENA
