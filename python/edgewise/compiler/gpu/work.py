"""How much a GPU is given at once; logic.gpu.variants.excess says why."""

from __future__ import annotations

from collections.abc import Sequence

from ...logic.gpu.variants import excess as too_much
from ..declare.kernel import evaluate
from ..schema.plan_format import SLOT0
from .steps import PlanStep, Touched
from .variants import count_of, stages_of


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
    stages = [stages_of(step, largest)[-1] for step in steps]
    groups = [count_of(stage, step.values(largest)) for stage, step in zip(stages, steps)]
    counts = [count * stage.group for stage, count in zip(stages, groups)]
    alone = groups[0] if len(steps) == 1 else 1
    return too_much(operations, counts, alone, steps[0].serial)
