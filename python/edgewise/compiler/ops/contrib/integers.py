"""Products and sums of small integers, in 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT8, INT16, INT32, UINT8, UINT16, UINT32
from ...declare.op import MS, Op, fail, one_number, one_type, takes

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

mul = Op("MulInteger", MS)


@mul.decompose
def mul_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The product of bytes, less their zero points."""
    takes(node, (UINT8, INT8), 0, 2)
    one_type(node, 0, 2)
    factors = []
    for i in (0, 2):
        one_type(node, i, i + 1)
        y, zero = graph.op("Cast", node.inputs[i], to=INT32), node.input(i + 1)
        if zero is not None:
            if not one_number(zero.shape):
                fail(node, f"its zero point is {zero}; one number is expected")
            y = graph.op("Sub", y, graph.op("Cast", graph.reshape(zero, []), to=INT32))
        factors.append(y)
    return [graph.op("Mul", *factors)]


reduce_sum = Op("ReduceSumInteger", MS)


@reduce_sum.decompose
def reduce_sum_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (UINT8, INT8), 0)
    x, axes = node.inputs[0], list(node.attr("axes") or [])
    y = graph.op("Cast", x, to=UINT32 if x.dtype == UINT8 else INT32)
    axes = [graph.ints(axes)] if axes else []
    return [graph.op("ReduceSum", y, *axes, keepdims=node.attr("keepdims", 1))]


matmul = Op("MatMulInteger16", MS)


@matmul.decompose
def matmul_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (UINT16, INT16), 0, 1)
    unsigned = all(x.dtype == UINT16 for x in node.inputs)
    wide = (graph.op("Cast", x, to=UINT32 if unsigned else INT32) for x in node.inputs)
    return [graph.op("MatMul", *wide)]
