"""Which size of an input the plans of a package take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RANGE = 2  # numbers of a register that is a length: the lowest and the highest value


@dataclass
class PlanSize:
    """The size of an input's dimension in a plan.

    Attributes:
        dim: [scale, add] or [scale, add, register], as in manifests; [size] if it is fixed.
        registers: of the plan: [lowest, highest value], or the numbers of a rule.
    """

    dim: Sequence[int]
    registers: Sequence[Sequence[int]]


def fitting_size(sizes: Sequence[PlanSize], least: int) -> int:
    """The smallest size from `least` on that one of the plans takes; `least`, if none does."""
    found: list[int] = []
    for size in sizes:
        fitting = _smallest(size, least)
        if fitting is not None:
            found.append(fitting)
    return min(found, default=least)


def _smallest(size: PlanSize, least: int) -> int | None:
    """As `fitting_size`, of one plan; None: it takes none, or its size follows from others."""
    dim = size.dim
    if len(dim) == 1:
        return dim[0] if dim[0] >= least else None
    entry = size.registers[dim[2] if len(dim) > 2 else 0]
    if len(entry) != RANGE:
        return None
    scale, add = dim[0], dim[1]
    at = max(entry[0], -((add - least) // scale))
    return scale * at + add if at <= entry[1] else None
