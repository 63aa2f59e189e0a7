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


def _attention(of: TestGraph, queries: int, keys: int, causal: int) -> Value:
    q, k, v = (
        of.floats(name, 1, count, 512) for name, count in (("q", queries), ("k", keys), ("v", keys))
    )
    attrs = {"num_heads": 8, "unidirectional": causal, "domain": "com.microsoft"}
    return of.g.op("MultiHeadAttention", q, k, v, **attrs)


CASES: dict[str, Callable[[TestGraph], Value]] = {
    "WIDE": lambda of: of.product(1, 2080, 6142),
    "TILE": lambda of: of.product(125, 544, 2046),
    "BYTES": lambda of: of.product(125, 544, 2046, accuracy_level=4),
    "LANES": lambda of: _attention(of, 1, 2045, 0),
    "QUERIES": lambda of: _attention(of, 253, 253, 1),
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
