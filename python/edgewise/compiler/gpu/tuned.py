"""The plans by which tunables of shaders are chosen (logic/gpu/tuning.py): one of small odd shapes,
whose results are compared, and one of the sizes of small language models, which fill no tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ...logic.gpu.self_test import TestSlot
from ..ir import Value
from ..plan import Plan
from .gen.shaders import TUNABLES
from .self_test import TestGraph, tested_plan
from .tested import FORMS

Make = Callable[[TestGraph], Value]
Case = tuple[Plan, list[TestSlot]]


def _attention(of: TestGraph, queries: int, keys: int, causal: int) -> Value:
    q, k, v = (
        of.floats(name, 1, count, 512) for name, count in (("q", queries), ("k", keys), ("v", keys))
    )
    attrs = {"num_heads": 8, "unidirectional": causal, "domain": "com.microsoft"}
    return of.g.op("MultiHeadAttention", q, k, v, **attrs)


MEASURED: dict[str, Make] = {
    "WIDE": lambda of: of.product(1, 2080, 6142),
    "TILE": lambda of: of.product(125, 544, 2046),
    "BYTES": lambda of: of.product(125, 544, 2046, accuracy_level=4),
    "LANES": lambda of: _attention(of, 1, 2045, 0),
    "QUERIES": lambda of: _attention(of, 253, 253, 1),
}
"""{tunable: function that makes a node of its kernel}, in the order in which they are chosen."""


def _product(m: int, k: int, n: int, bits: int, block: int, **more: int) -> Make:
    """A product with zero points and a bias."""

    def make(of: TestGraph) -> Value:
        name, blocks = f"{m} {k} {n} {bits}", -(-k // block)
        x, w = of.floats(f"x{name}", m, k), of.bytes(f"w{name}", n, blocks, block * bits // 8)
        scales, zeros = of.floats(f"s{name}", n * blocks), -(-blocks * bits // 8)
        rest = of.bytes(f"z{name}", n * zeros), None, of.floats(f"b{name}", n)
        sizes: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": block, **more}
        return of.g.op("MatMulNBits", x, w, scales, *rest, domain="com.microsoft", **sizes)

    return make


def _grouped(queries: int, keys: int, dim: int, v_dim: int) -> Make:
    """Attention of two sequences, with a mask, and fewer heads of keys than of queries."""

    def make(of: TestGraph) -> Value:
        name = f"g{dim}"
        q, k = of.floats(f"{name}q", 2, 6, queries, dim), of.floats(f"{name}k", 2, 2, keys, dim)
        v, mask = of.floats(f"{name}v", 2, 2, keys, v_dim), of.floats(f"{name}m", queries, keys)
        return of.g.op("Attention", q, k, v, mask)

    return make


ODD: dict[str, list[Make]] = {
    "WIDE": [
        _product(1, 112, 70, 4, 32),
        _product(1, 160, 35, 8, 32),
        FORMS["a norm, products of 4 bits and their product"],
    ],
    "TILE": [_product(70, 112, 70, 4, 32), _product(35, 160, 35, 8, 32)],
    "BYTES": [
        _product(35, 96, 35, 4, 32, accuracy_level=4),
        _product(35, 256, 9, 4, 128, accuracy_level=4),
    ],
    "LANES": [_grouped(1, 37, 24, 17), _grouped(1, 261, 80, 68)],
    "QUERIES": [_grouped(11, 37, 24, 17), _grouped(9, 70, 80, 68)],
}
"""{tunable: functions that make results on which its values are tested}"""

NAMES = {
    name: (kernel, values)
    for name in MEASURED
    for kernel, of in TUNABLES.items()
    if (values := of.get(name))
}
"""{tunable: (the kernel that has it, its values, the default first)}"""


@dataclass
class Tuning:
    """What is run to choose the value of a tunable.

    Attributes:
        name: of the tunable.
        kernel: that has it.
        values: the default first.
        cases: plans, and their slots; the last one is measured.
    """

    name: str
    kernel: str
    values: tuple[int, ...]
    cases: list[Case]


@cache
def tuning_of(name: str) -> Tuning:
    """How a tunable is chosen."""

    def case(*makes: Make) -> Case:
        return tested_plan(
            f"tuning of {name}",
            lambda of: {f"{name} {i}": partial(make, of) for i, make in enumerate(makes)},
        )

    return Tuning(name, *NAMES[name], [case(*ODD[name]), case(MEASURED[name])])


def tunings() -> list[Tuning]:
    """All tunables, in the order in which they are chosen."""
    return [tuning_of(name) for name in NAMES]
