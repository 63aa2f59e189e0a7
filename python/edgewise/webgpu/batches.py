"""Which neighbouring steps of a plan run in one dispatch.

The compiler has put them side by side (plan/batches.py). They are recognised here, so that nothing
depends on a package being right: steps are alike, and none writes what another one touches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..declare.kernel import evaluate
from ..targets.gen.alike import ALIKE
from .arrange import is_scratch
from .steps import Linear, PlanStep, element_dtype
from .wgsl import MOST_STEPS, MOST_VARIED, Variant, stages_of

if TYPE_CHECKING:
    from ..engine.resolved import ResolvedStep


def varied_in(steps: Sequence[PlanStep]) -> tuple[str, ...]:
    """Names of the parameters in which steps may differ; none for a step alone."""
    return ALIKE[steps[0].kernel.name][0] if len(steps) > 1 else ()


def batch_at(
    steps: Sequence[PlanStep],
    resolved: Sequence[ResolvedStep],
    first: int,
    end: int,
    largest: Sequence[int],
) -> int:
    """The step behind the batch that begins with step `first`; end: at most this one."""
    stages = stages_of(steps[first], largest)
    common = _common(steps[first], stages, largest)
    if common is None:
        return first + 1
    touched: list[_Range] = []
    last = first
    while last < min(end, first + MOST_STEPS):
        if last > first and _common(steps[last], stages, largest) != common:
            break
        if last > first and stages_of(steps[last], largest) != stages:
            break
        ranges = _ranges(steps[last], resolved[last])
        if any(_clash(a, b) for a in ranges for b in touched):
            break
        touched += ranges
        last += 1
    return max(last, first + 1)


_Range = tuple[int, int, int, bool]  # (buffer, first byte, end, whether it is written)


def _clash(a: _Range, b: _Range) -> bool:
    return a[0] == b[0] and (a[3] or b[3]) and a[1] < b[2] and b[1] < a[2]


def _ranges(step: PlanStep, resolved: ResolvedStep) -> list[_Range]:
    """What a step touches; all of a buffer where that follows registers."""
    out = []
    for i, (o, v, r) in enumerate(zip(step.kernel.operands, step.operands, resolved.operands)):
        if v is None or r is None or is_scratch(step, i):
            continue
        begin, end = (0, 1 << 62) if step.dynamic or v.register >= 0 else (r.begin, r.end)
        out.append((v.buffer, begin, end, o.output))
    return out


def _common(step: PlanStep, stages: Sequence[Variant], largest: Sequence[int]) -> object:
    """What steps of a batch agree in; None where a step runs alone."""
    rule = ALIKE.get(step.kernel.name)
    if rule is None or len(stages) != 1 or len(rule[0]) > MOST_VARIED:
        return None
    vary, same = rule
    count = stages[0].declared.get("threads") or stages[0].declared["groups"]
    counted = {*re.findall(r"[a-z]\w*", count), *step.kernel.empty, *vary}
    if any(_follows(step.params.get(name)) for name in counted):
        return None
    values = step.values(largest)
    return (
        step.kernel.name,
        [value for name, value in step.params.items() if name not in vary],
        [bool(evaluate(condition, values)) for condition in same],
        [
            None
            if v is None or is_scratch(step, i)
            else (element_dtype(step.kernel, i, step.params), v.register, v.scale)
            for i, v in enumerate(step.operands)
        ],
    )


def _follows(value: object) -> bool:
    return any(isinstance(x, Linear) for x in (value if isinstance(value, list) else [value]))
