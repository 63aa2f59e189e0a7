"""The limits of a machine that the steps of a profile are compared with: what the engine reaches
with its threads.

    float32   10^9 operations per second in a matrix product of float32
    int8      10^9 operations per second in a matrix product of int8, accumulated in int32
    memory    10^9 bytes per second in summing 128 MB, the kernel that comes closest to reading only

They are measured with Edgewise's own kernels at sizes that suit them, not taken from a data sheet:
100 % of float32 is what the matrix product reaches, a little less than the processor could.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ...compiler.declare.dtypes import FLOAT, INT8, INT32
from ...compiler.ir import Graph, Info, Node
from ...errors import EdgewiseError

if TYPE_CHECKING:
    from ...compiler.plan import Plan
    from ..engine.browser import BrowserEngine
    from ..engine.native import NativeEngine

SECONDS = 0.03  # duration of each measurement
PATTERN = b"\x3d" * (1 << 20)  # small numbers
# Each of two threads reads half of it repeatedly, which must not fit into its cache.
ROWS, COLUMNS = 128, 1 << 18

TensorType = tuple[int, list[int]]  # dtype and shape


class Limit(NamedTuple):
    """A graph whose last step reaches a limit.

    Attributes:
        node: of the graph, with the output "y".
        inputs: types by name.
        output: type of y.
        work: operations or bytes of the plan's last step; a step before it may pack `b`.
    """

    node: Node
    inputs: dict[str, TensorType]
    output: TensorType
    work: int


def _product(op: str, dtype: int, out: int, m: int, k: int, n: int) -> Limit:
    return Limit(
        Node(op, ["a", "b"], ["y"]),
        {"a": (dtype, [m, k]), "b": (dtype, [k, n])},
        (out, [m, n]),
        2 * m * k * n,
    )


LIMITS = {
    "float32": _product("MatMul", FLOAT, FLOAT, 1024, 512, 256),
    "int8": _product("MatMulInteger", INT8, INT32, 1024, 512, 512),
    "memory": Limit(
        Node("ReduceSum", ["x"], ["y"], {"axes": [1]}),
        {"x": (FLOAT, [ROWS, COLUMNS])},
        (FLOAT, [ROWS, 1]),
        4 * ROWS * COLUMNS,
    ),
}


def limit_plan(name: str) -> Plan:
    """The plan of a limit."""
    from ...compiler.plan import compile_graph

    limit = LIMITS[name]
    graph = Graph(
        "limit",
        [limit.node],
        [Info(i, dtype, shape) for i, (dtype, shape) in limit.inputs.items()],
        [Info("y", *limit.output)],
        opsets={"": 11},
        ours=True,
    )
    shapes = {i: shape for i, (_, shape) in limit.inputs.items()}
    dtypes = {i: dtype for i, (dtype, _) in limit.inputs.items()}
    return compile_graph(graph, shapes, dtypes)[0]


def measure(engine: NativeEngine | BrowserEngine) -> dict[str, float | None]:
    """Measures "float32", "int8" and "memory" in 10^9 per second; None if the engine has no kernel
    or memory for one.
    """
    found: dict[str, float | None] = dict.fromkeys(LIMITS)
    for name, limit in LIMITS.items():
        try:
            found[name] = limit.work / _fastest(engine, limit_plan(name)) / 1e9
        except EdgewiseError:
            pass  # a profile without one of its limits is still useful
    return found


def _fastest(engine: NativeEngine | BrowserEngine, plan: Plan) -> float:
    """Seconds of the last step of a plan: the 12.5th percentile of runs within SECONDS. The minimum
    would be wrong where the clock is coarse.
    """
    device, held = engine.device, []
    loaded = device.load_plan(plan)
    try:
        for i, slot in enumerate(plan.slots):
            buffer = device.allocate(slot.nbytes)
            held.append(buffer)
            # Memory that was never written may be backed by one page.
            for at in range(0, slot.nbytes, len(PATTERN)):
                device.write(buffer, PATTERN[: slot.nbytes - at], at)
            loaded.bind(i, buffer)
        seconds: list[float] = []
        end = perf_counter() + SECONDS
        while perf_counter() < end or not seconds:
            seconds.append(max(loaded.run_timed()[-1], 1e-6))
        return sorted(seconds)[len(seconds) // 8]
    finally:
        loaded.free()
        for buffer in held:
            device.release(buffer)
