"""What an engine reaches on this machine, by two plans: a square float32 product, which the arithmetic limits, and a vector times a large matrix, which reading the matrix limits."""
from __future__ import annotations

from time import perf_counter

from ..ir import Graph, Info, Node
from ..ops.dtypes import FLOAT

SIZES = {"gflops": (512, 512, 512), "gbs": (1, 4096, 4096)}  # m, k, n of A [m, k] @ B [k, n]
SECONDS = 0.1  # for each


def limit_plan(m, k, n):
    """A Plan of the product, both operands fed."""
    from ..plan import compile_graph
    graph = Graph("limit", [Node("MatMul", ["a", "b"], ["y"])], [Info("a", FLOAT, [m, k]), Info("b", FLOAT, [k, n])], [Info("y", FLOAT, [m, n])], opsets={"": 20}, ours=True)
    return compile_graph(graph, {"a": [m, k], "b": [k, n]}, {"a": FLOAT, "b": FLOAT})[0]


def measure(engine):
    """{"gflops", "gbs"}: the best of some runs, with the engine's threads."""
    return {name: work(name) / _least(engine, limit_plan(*size)) / 1e9 for name, size in SIZES.items()}


def work(name):
    m, k, n = SIZES[name]
    return 2 * m * k * n if name == "gflops" else 4 * (m * k + k * n + m * n)


def _least(engine, plan):
    """Seconds of the quickest run within SECONDS."""
    loaded, held = engine.load(plan), []
    try:
        for i, slot in enumerate(plan.slots):
            held.append(engine.alloc(slot.nbytes))
            engine.write(held[-1], b"\x3d" * slot.nbytes)  # small numbers: pages that nobody has written may all be one
            loaded.bind(i, held[-1])
        best, end = float("inf"), perf_counter() + SECONDS
        while perf_counter() < end or best == float("inf"):
            begin = perf_counter()
            loaded.run()
            best = min(best, perf_counter() - begin)
        return best
    finally:
        loaded.free()
        for address in held:
            engine.free(address)
