"""How much a GPU is given at once. A dispatch cannot be interrupted, and everything else that uses
the GPU waits behind it: other pages, other sessions, the screen. Drivers end a device that does not
answer for seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..declare.kernel import evaluate
from ..schema.plan_format import SLOT0
from .steps import PlanStep, Touched
from .variants import count_of, stages_of

# Operations of a dispatch, and of what is submitted without waiting: about a second of a slow GPU,
# and of one in software.
MAX = 1 << 40
MAX_IN_SOFTWARE = 1 << 33
# Operations of an invocation, which computes one after the other.
MAX_EACH = 1 << 28


def most_of(serial: bool) -> int:
    """Operations that are given to a GPU at once. serial: as of PlanStep."""
    return MAX_IN_SOFTWARE if serial else MAX


def operations_of(
    step: PlanStep, touched: Sequence[Touched | None], slots: Sequence[int], largest: Sequence[int]
) -> int:
    """The operations of a step: as its contract declares, or else one for each byte that it
    touches.

    Args:
        step: the step.
        touched: by its operands, with any registers.
        slots: bytes of the plan's slots.
        largest: the highest values of the registers.
    """
    cost = step.kernel.cost
    if cost is not None:
        return evaluate(cost.operations, step.values(largest))
    return sum(
        slots[v.buffer - SLOT0] if step.moves and v.buffer >= SLOT0 else v.end - v.begin
        for v in touched
        if v is not None
    )


def excess(steps: Sequence[PlanStep], operations: Sequence[int], largest: Sequence[int]) -> str:
    """Why steps are too much for one dispatch; "" if they are not.

    Args:
        steps: those of the dispatch; each has a shader.
        operations: of each.
        largest: the highest values of the registers.
    """
    most = most_of(steps[0].serial)
    if sum(operations) > most:
        return f"{sum(operations)} operations: at most {most} run in one dispatch"
    for step, n in zip(steps, operations):
        stage = stages_of(step, largest)[-1]
        count = max(1, count_of(stage, step.values(largest)) * stage.group)
        if n > MAX_EACH * count:
            return f"{n // count} operations of an invocation: at most {MAX_EACH} run"
    return ""
