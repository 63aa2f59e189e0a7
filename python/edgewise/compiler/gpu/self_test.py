"""The plan by which a GPU is tested before it is used (logic/gpu/self_test.py): the classes of
kernels of language models, on shapes that fill no tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...logic.gpu.self_test import TestSlot
from ..bind import BoundGraph, Gradients
from ..declare.dtypes import FLOAT, INT64, UINT8
from ..ir import Graph, Value
from ..plan import Plan, compile_graph
from ..targets.webgpu import WEBGPU

BLOCK = 32


def self_test() -> tuple[Plan, list[TestSlot]]:
    """The plan, and its slots."""
    graph = Graph("self test", [], [], [], opsets={"": 23}, ours=True)
    kinds: dict[str, tuple[str, int]] = {}

    def add(bound: BoundGraph) -> None:
        g = Gradients(bound)

        def floats(name: str, *shape: int) -> Value:
            kinds[name] = ("numbers", 0)
            return bound.state(name, FLOAT, list(shape))

        def ids(name: str, limit: int, *shape: int) -> Value:
            kinds[name] = ("ids", limit)
            return bound.state(name, INT64, list(shape))

        def product(rows: int) -> Value:
            kinds["w4"] = ("bytes", 0)
            w = bound.state("w4", UINT8, [50, 96 // BLOCK, BLOCK // 2])
            sizes = {"K": 96, "N": 50, "bits": 4, "block_size": BLOCK}
            x = floats(f"n{rows}", rows, 96)
            return g.op("MatMulNBits", x, w, floats("s4", 150), domain="com.microsoft", **sizes)

        bound.outputs = {name: make() for name, make in _results(g, floats, ids, product).items()}

    plan = compile_graph(graph, {}, {}, transform=add, target=WEBGPU)[0]
    slots = []
    for slot in plan.slots:
        kind, limit = kinds.get(slot.name, ("result", 0))
        size = {"bytes": 1, "ids": 8}.get(kind, 4)
        slots.append(TestSlot(slot.name, kind, slot.nbytes // size, limit))
    return plan, slots


Make = Callable[..., Value]


def _results(
    g: Gradients, floats: Make, ids: Make, product: Make
) -> dict[str, Callable[[], Value]]:
    """{name of an operator: its output}."""
    more: dict[str, Any] = {"domain": "com.microsoft"}
    return {
        "MatMul of a row": lambda: g.op("MatMul", floats("m1", 1, 65), floats("mw", 65, 50)),
        "MatMul": lambda: g.op("MatMul", floats("m7", 7, 65), floats("mw", 65, 50)),
        "MatMulNBits of a row": lambda: product(1),
        "MatMulNBits": lambda: product(5),
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
