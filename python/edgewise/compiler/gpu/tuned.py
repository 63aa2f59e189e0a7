"""The plans by which tunables of shaders are chosen (logic/gpu/tuning.py): of the sizes of small
language models, which fill no tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ...logic.gpu.self_test import TestSlot
from ..ir import Value
from ..plan import Plan
from .gen.shaders import TUNABLES
from .self_test import TestGraph, tested_plan

CASES: dict[str, Callable[[TestGraph], Value]] = {
    "WIDE": lambda of: of.product(1, 2080, 6142),
    "TILE": lambda of: of.product(125, 544, 2046),
}
"""{tunable: function that makes a node of its kernel}"""


@dataclass
class Tuning:
    """What is run to choose the value of a tunable.

    Attributes:
        name: of the tunable.
        kernel: that has it.
        values: the default first.
        plan, slots: the plan, and its slots.
    """

    name: str
    kernel: str
    values: tuple[int, ...]
    plan: Plan
    slots: list[TestSlot]


@cache
def tunings() -> list[Tuning]:
    """All tunables, in the order of CASES, in which they are chosen."""
    of = {name: (kernel, of[name]) for kernel, of in TUNABLES.items() for name in of}
    return [Tuning(name, *of[name], *_plan(name)) for name in CASES]


def _plan(name: str) -> tuple[Plan, list[TestSlot]]:
    return tested_plan(f"tuning of {name}", lambda of: {name: lambda: CASES[name](of)})
