"""Plans by which a page measures a GPU (`gpuReport` of pages): one for each class of kernel, at the
sizes of small language models, pictures and training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...logic.gpu.self_test import TestSlot
from ..declare.dtypes import INT64
from ..ir import Value
from ..plan import Plan
from .self_test import TestGraph, tested_plan

Make = Callable[[TestGraph], Value]
MICROSOFT: dict[str, Any] = {"domain": "com.microsoft"}


@dataclass
class ReportCase:
    """A measurement.

    Attributes:
        name: of the operator with its sizes.
        plan: computes it.
        slots: of the plan.
        operations: multiplications and additions of a run.
        bytes: that a run reads and writes, each element of each operand once.
    """

    name: str
    plan: Plan
    slots: list[TestSlot]
    operations: int
    bytes: int


def _attention(of: TestGraph, queries: int, keys: int, causal: int) -> Value:
    q, k, v = (
        of.floats(name, 1, count, 512) for name, count in (("q", queries), ("k", keys), ("v", keys))
    )
    return of.g.op("MultiHeadAttention", q, k, v, num_heads=8, unidirectional=causal, **MICROSOFT)


def _conv(of: TestGraph, channels: int, side: int, group: int) -> Value:
    x = of.floats("x", 1, channels, side, side)
    w = of.floats("w", channels, channels // group, 3, 3)
    return of.g.op("Conv", x, w, kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=group)


def _norm(of: TestGraph) -> Value:
    more = {"axis": -1, "epsilon": 1e-5}
    return of.g.op(
        "SimplifiedLayerNormalization", of.floats("x", 512, 1024), of.floats("w", 1024), **more
    )


CASES: dict[str, Make] = {
    "MatMul 1 x 2048 x 2048": lambda of: of.g.op(
        "MatMul", of.floats("x", 1, 2048), of.floats("w", 2048, 2048)
    ),
    "MatMul 128 x 1024 x 1024": lambda of: of.g.op(
        "MatMul", of.floats("x", 128, 1024), of.floats("w", 1024, 1024)
    ),
    "MatMul 1024 x 1024 x 1024": lambda of: of.g.op(
        "MatMul", of.floats("x", 1024, 1024), of.floats("w", 1024, 1024)
    ),
    "MatMulNBits, 4 bits, 1 x 2048 x 2048": lambda of: of.product(1, 2048, 2048),
    "MatMulNBits, 4 bits, 128 x 1024 x 1024": lambda of: of.product(128, 1024, 1024),
    "Attention, 256 tokens, 8 heads of 64": lambda of: _attention(of, 256, 256, 1),
    "Attention, 1 token, 2048 keys": lambda of: _attention(of, 1, 2048, 0),
    "RMSNormalization 512 x 1024": _norm,
    "LayerNormalization 512 x 1024": lambda of: of.g.op(
        "LayerNormalization",
        of.floats("x", 512, 1024),
        of.floats("w", 1024),
        of.floats("b", 1024),
        axis=-1,
    ),
    "Softmax 512 x 1024": lambda of: of.g.op("Softmax", of.floats("x", 512, 1024), axis=-1),
    "Gelu 1048576": lambda of: of.g.op("Gelu", of.floats("x", 1 << 20)),
    "Add 4194304": lambda of: of.g.op("Add", of.floats("x", 1 << 22), of.floats("y", 1 << 22)),
    "Transpose 1024 x 1024": lambda of: of.g.op(
        "Transpose", of.floats("x", 1024, 1024), perm=[1, 0]
    ),
    "Gather 1024 x 512": lambda of: of.g.op(
        "Gather", of.floats("x", 4096, 512), of.ids("i", 4096, 1024), axis=0
    ),
    "ReduceSum 1024 x 1024": lambda of: of.g.op(
        "ReduceSum", of.floats("x", 1024, 1024), of.g.constant(INT64, [1], [0]), keepdims=0
    ),
    "Conv 3 x 3, 64 channels, 56 x 56": lambda of: _conv(of, 64, 56, 1),
    "Conv 3 x 3 depthwise, 128 channels, 56 x 56": lambda of: _conv(of, 128, 56, 128),
    "MaxPool 3 x 3, 64 channels, 112 x 112": lambda of: of.g.op(
        "MaxPool", of.floats("x", 1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2]
    ),
    "SoftmaxCrossEntropyLoss 512 x 8192": lambda of: of.g.op(
        "SoftmaxCrossEntropyLoss", of.floats("x", 512, 8192), of.ids("i", 8192, 512)
    ),
}
"""{name: function that makes the node}. An operator becomes a kernel by its sizes."""


def report_cases() -> list[ReportCase]:
    """All measurements."""
    return [_case(name, make) for name, make in CASES.items()]


def _case(name: str, make: Make) -> ReportCase:
    plan, slots = tested_plan(name, lambda of: {name: lambda: make(of)})
    notes = plan.notes
    return ReportCase(
        name, plan, slots, sum(x for x, _ in notes.operations), sum(x for x, _ in notes.bytes)
    )
