"""The plans by which a GPU is tested before it is used (logic/gpu/self_test.py): of kernels of
language models, which any GPU has to compute rightly, and of others, before the first plan that has
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ...logic.gpu.self_test import TestSlot
from ..bind import BoundGraph, Gradients
from ..declare.dtypes import FLOAT, INT64, UINT8
from ..ir import Graph, Value
from ..plan import Plan, compile_graph
from ..targets.webgpu import WEBGPU
from .batches import Group
from .grouped import Facts, Grouped
from .program import BINDING_BYTES, BINDINGS, groups_of
from .tested import CASES, FORMS, HELPERS

BLOCK = 32


class TestGraph:
    """Builds a plan whose inputs are states that a formula fills (logic/gpu/self_test.py).

    Attributes:
        g: makes nodes.
    """

    def __init__(self, bound: BoundGraph) -> None:
        self.g: Gradients = Gradients(bound)
        self.bound: BoundGraph = bound
        self.kinds: dict[str, tuple[str, int]] = {}

    def floats(self, name: str, *shape: int) -> Value:
        """Float32 numbers of a shape."""
        return self._state("numbers", 0, name, FLOAT, shape)

    def bytes(self, name: str, *shape: int) -> Value:
        """Uint8 integers of a shape."""
        return self._state("bytes", 0, name, UINT8, shape)

    def ids(self, name: str, limit: int, *shape: int) -> Value:
        """Int64 integers of a shape, below a limit."""
        return self._state("ids", limit, name, INT64, shape)

    def _state(self, kind: str, limit: int, name: str, dtype: Any, shape: tuple[int, ...]) -> Value:
        self.kinds[name] = (kind, limit)
        return self.bound.state(name, dtype, list(shape))

    def product(self, rows: int, k: int, n: int, **more: int) -> Value:
        """Rows times the plan's weight of k rows and n columns of 4 bits, in blocks of 32. more:
        attributes of the operator.
        """
        w = self.bytes("w4", n, k // BLOCK, BLOCK // 2)
        sizes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK, **more}
        x, scales = self.floats(f"n{rows}", rows, k), self.floats("s4", n * (k // BLOCK))
        return self.g.op("MatMulNBits", x, w, scales, domain="com.microsoft", **sizes)


def tested_plan(
    title: str, results: Callable[[TestGraph], dict[str, Callable[[], Value]]]
) -> tuple[Plan, list[TestSlot]]:
    """A plan of nodes, and its slots.

    Args:
        title: names the graph.
        results: function that returns {name: function that makes a node}.
    """
    graph = Graph(title, [], [], [], opsets={"": 23}, ours=True)
    made: list[TestGraph] = []

    def add(bound: BoundGraph) -> None:
        made.append(TestGraph(bound))
        bound.outputs = {name: make() for name, make in results(made[0]).items()}

    plan = compile_graph(graph, {}, {}, transform=add, target=WEBGPU)[0]
    slots = []
    for slot in plan.slots:
        other = {"temp": "temp", "output": "result"}.get(slot.kind, "zeros")
        kind, limit = made[0].kinds.get(slot.name, (other, 0))
        size = {"bytes": 1, "zeros": 1, "ids": 8}.get(kind, 4)
        slots.append(TestSlot(slot.name, kind, slot.nbytes // size, limit))
    return plan, slots


def self_test() -> tuple[Plan, list[TestSlot]]:
    """The plan that any GPU has to compute, and its slots."""
    return tested_plan("self test", _results)


@dataclass
class TestCase:
    """A test before the first plan with one of its kernels, or of its forms.

    Attributes:
        name: of an operator.
        kernels: that are not used where the result is wrong.
        forms: what it runs on a GPU in hardware, and on one in software, besides what `self_test`
            does (logic.gpu.self_test.forms_of).
        plan, slots: the plan, and its slots.
    """

    name: str
    kernels: list[str]
    forms: list[list[str]]
    plan: Plan
    slots: list[TestSlot]


def forms_in(plan: Plan, serial: bool, tuned: Mapping[str, int] | None = None) -> list[str]:
    """The forms that a GPU runs of a plan. tuned: values of tunables."""
    kinds = [slot.kind for slot in plan.slots]
    facts = Facts(plan.data, kinds, serial, BINDINGS, BINDING_BYTES, tuned)
    groups = groups_of(facts, plan.data)
    inside = {i for group in groups for i in range(group.first, group.end)}
    groups += [Group(i, i + 1) for i in range(len(facts.steps)) if i not in inside]
    launches = (Grouped(facts, group) for group in groups)
    forms = [form for launch in launches if not launch.reason for form in launch.forms]
    return list(dict.fromkeys(forms))


@cache
def test_cases() -> list[TestCase]:
    """The tests of kernels that are not in `self_test`, or run other shaders there; then those of
    forms that no test of a kernel runs.
    """
    first = self_test()[0]
    known = set(first.kernels)
    seen = [set(forms_in(first, serial)) for serial in (False, True)]

    def fresh_forms(plan: Plan) -> list[list[str]]:
        out = [
            [x for x in forms_in(plan, serial) if x not in seen[serial]] for serial in (False, True)
        ]
        for forms, more in zip(seen, out):
            forms.update(more)
        return out

    others = set(known)  # beside what a case is for
    for name in HELPERS:
        others |= set(tested_plan(name, lambda of: {name: partial(CASES[name], of)})[0].kernels)
    cases = []
    for name, make in CASES.items():
        plan, slots = tested_plan(name, lambda of: {name: partial(make, of)})
        own = list(dict.fromkeys(plan.kernels))
        fresh = [kernel for kernel in own if kernel not in known]
        kernels = fresh or [kernel for kernel in own if kernel not in others] or own
        known.update(kernels)
        cases.append(TestCase(name, kernels, fresh_forms(plan), plan, slots))
    for name, make in FORMS.items():
        plan, slots = tested_plan(name, lambda of: {name: partial(make, of)})
        cases.append(TestCase(name, [], fresh_forms(plan), plan, slots))
    return cases


def _results(of: TestGraph) -> dict[str, Callable[[], Value]]:
    """{name of an operator: its output}."""
    g, floats, ids = of.g, of.floats, of.ids
    more: dict[str, Any] = {"domain": "com.microsoft"}
    return {
        "MatMul of a row": lambda: g.op("MatMul", floats("m1", 1, 65), floats("mw", 65, 50)),
        "MatMul": lambda: g.op("MatMul", floats("m7", 7, 65), floats("mw", 65, 50)),
        "MatMulNBits of a row": lambda: of.product(1, 96, 50),
        "MatMulNBits": lambda: of.product(5, 96, 50),
        "RMSNormalization": lambda: g.op(
            "SimplifiedLayerNormalization",
            floats("r", 3, 77),
            floats("rw", 77),
            axis=-1,
            epsilon=1e-5,
        ),
        "LayerNormalization": lambda: g.op(
            "LayerNormalization", floats("l", 3, 77), floats("lw", 77), floats("lb", 77), axis=-1
        ),
        "Softmax": lambda: g.op("Softmax", floats("p", 5, 37), axis=-1),
        "MultiHeadAttention": lambda: g.op(
            "MultiHeadAttention",
            floats("q", 1, 5, 48),
            floats("k", 1, 9, 48),
            floats("v", 1, 9, 48),
            num_heads=3,
            **more,
        ),
        "Gelu": lambda: g.op("Gelu", floats("e", 3, 41)),
        "Exp": lambda: g.op("Exp", floats("x", 129)),
        "Sin": lambda: g.op("Sin", floats("y", 65)),
        "Mul": lambda: g.op("Mul", floats("b", 3, 1, 13), floats("c", 5, 1)),
        "Gather": lambda: g.op("Gather", floats("t", 19, 10), ids("i", 19, 7), axis=0),
        "Transpose": lambda: g.op("Transpose", floats("u", 5, 6, 7), perm=[2, 0, 1]),
        "Concat": lambda: g.op("Concat", floats("f", 3, 5), floats("h", 3, 6), axis=1),
    }
