"""Reductions: ReduceSum and its relatives, and the kernel under them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT8,
    INT32,
    INT64,
    RANGE,
    UINT8,
    UINT64,
    wrap,
)
from ...declare.op import Op, axis_of, indices, ints, product, strides_of, takes
from ...declare.symbolic import NotStatic, Sym
from .contracts import REDUCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Folded,
        Gradients,
        Graph,
        Inferred,
        Value,
    )

NAN, INF = float("nan"), float("inf")


def _mean(v: Sequence[Any]) -> Any:
    total = sum(v)
    return (
        total / len(v)
        if isinstance(total, float)
        else (
            total // len(v)
            if isinstance(total, Sym)
            else abs(total) // len(v) * (1 if total >= 0 else -1)
        )
    )


def _or_nan(f: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda v: next((x for x in v if x != x), None) or f(v)


_PY = {"sum": sum, "max": _or_nan(max), "min": _or_nan(min), "prod": math.prod, "mean": _mean}


def _reduce_axes(node: BoundNode) -> list[int]:
    """The axes to reduce, sorted: an input since opset 18 (ReduceSum: 13), before an attribute."""
    x = node.inputs[0]
    by_input = node.opset >= (13 if node.op == "ReduceSum" else 18)
    axes = ints(node, 1) if by_input else node.attr("axes")
    if not axes:
        if by_input and node.attr("noop_with_empty_axes", 0):
            return []
        return list(range(x.rank))
    return sorted({axis_of(node, a, x.rank) for a in axes})


def _of_nothing(op: str, dtype: int) -> float:
    """The result of a reduction of no elements."""
    if op in ("max", "min"):
        low, high = (0, 1) if dtype == BOOL else RANGE.get(dtype, (-math.inf, math.inf))
        return low if op == "max" else high
    return {
        "prod": 1,
        "mean": math.nan if dtype in FLOATS else 0,
        "log_sum": -math.inf,
        "log_sum_exp": -math.inf,
    }.get(op, 0)


def _reduce_gradient(op: str, node: BoundNode, graph: Gradients, dy: Value) -> Value:
    """The gradient of x."""
    x, axes = node.inputs[0], _reduce_axes(node)
    kept = [1 if i in axes else d for i, d in enumerate(x.shape)]
    dy, y = graph.reshape(dy, kept), node.outputs[0]
    if op in ("sum", "mean"):
        count = product([x.shape[a] for a in axes])
        return graph.op(
            "Expand",
            graph.scale(dy, 1 / max(count, 1)) if op == "mean" else dy,
            graph.ints(x.shape),
        )
    zero = graph.number(0.0)
    over, keep = graph.ints(axes), {"keepdims": 1, "noop_with_empty_axes": 1}
    if op in ("max", "min"):  # equal elements share the gradient, as in torch.amax
        mine = graph.op("Cast", graph.op("Equal", x, graph.reshape(y, kept)), to=FLOAT)
        return graph.mul(graph.div(dy, graph.op("ReduceSum", mine, over, **keep)), mine)
    if op == "prod":  # the product of the other elements, 0 where one of them is 0
        is_zero = graph.op("Equal", x, zero)
        others, zeros = (
            graph.op("Where", is_zero, graph.number(1.0), x),
            graph.op("Cast", is_zero, to=FLOAT),
        )
        rest = graph.div(graph.op("ReduceProd", others, over, **keep), others)
        other_zeros = graph.sub(graph.op("ReduceSum", zeros, over, **keep), zeros)
        return graph.mul(dy, graph.op("Where", graph.op("Equal", other_zeros, zero), rest, zero))
    if op == "l1":
        return graph.mul(dy, graph.op("Sign", x))
    if op == "l2":  # 0 at 0, as torch.linalg.vector_norm
        y = graph.reshape(y, kept)
        return graph.mul(graph.op("Where", graph.op("Equal", y, zero), zero, graph.div(dy, y)), x)
    if op == "sum_square":
        return graph.mul(graph.scale(dy, 2.0), x)
    if op == "log_sum":
        return graph.op(
            "Expand", graph.div(dy, graph.op("Exp", graph.reshape(y, kept))), graph.ints(x.shape)
        )
    return graph.mul(dy, graph.op("Exp", graph.sub(x, graph.reshape(y, kept))))


def signed(graph: Graph, v: Value) -> Value:
    """uint64 as int64, in the same order."""
    return graph.op("Add", graph.op("Cast", v, to=INT64), graph.constant(INT64, [], [-1 << 63]))


def unsigned(graph: Graph, v: Value) -> Value:
    """Undoes `signed`."""
    return graph.op("Cast", graph.op("Add", v, graph.constant(INT64, [], [-1 << 63])), to=UINT64)


def _decompose_uint64(node: BoundNode, graph: Binder, op: str) -> Decomposed:
    """The reductions of uint64 that the order or the sum of int64 gives."""
    x = node.inputs[0]
    if x.dtype != UINT64:
        return None
    if op == "l1":
        axes = _reduce_axes(node)
        return [
            graph.op(
                "ReduceSum",
                x,
                graph.constant(INT64, [len(axes)], axes),
                keepdims=node.attr("keepdims", 1),
                noop_with_empty_axes=1,
            )
        ]
    inputs, outputs = [signed(graph, x), *node.inputs[1:]], [graph.fresh(node.op)]
    (y,) = graph.node(node.op, "", node.name, inputs, outputs, node.attrs, node.opset)
    return [unsigned(graph, y)]


def _infer(node: BoundNode, op: str) -> Inferred:
    integers = () if "log" in op or op == "l2" else (INT32, INT64)
    small = (UINT8, INT8, BOOL) if op in ("max", "min") else ()
    takes(node, (FLOAT, DOUBLE, *integers, *small), 0)
    x, axes = node.inputs[0], _reduce_axes(node)
    keep = node.attr("keepdims", 1)
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
    return [(x.dtype, shape)]


def _fold(node: BoundNode, op: str) -> Folded:
    x, axes = node.inputs[0], _reduce_axes(node)
    strides = strides_of(x.shape)
    kept = [i for i in range(x.rank) if i not in axes]
    inner = indices([x.shape[a] for a in axes], [strides[a] for a in axes])
    if not inner:
        raise NotStatic("empty")
    out = [
        _PY[op]([x.numbers[o + i] for i in inner])
        for o in indices([x.shape[a] for a in kept], [strides[a] for a in kept])
    ]
    return [[r if isinstance(r, Sym) else wrap(x.dtype, r) for r in out]]


def _lower(node: BoundNode, builder: Builder, op: str) -> None:
    x, axes = builder.view(node.inputs[0]), _reduce_axes(node)
    y = builder.out(node.outputs[0])
    # the kernel takes [outer, n, inner]: the dimensions that are kept, in front of the reduced ones
    # and after them
    kept = [i for i in range(len(x.shape)) if i not in axes]
    before = [i for i in kept if not axes or i < axes[-1]]
    after = [i for i in kept if axes and i > axes[-1]]
    shape = [product([x.shape[i] for i in dims]) for dims in (before, axes, after)]
    x = builder.reshaped(x.transpose(before + axes + after), shape)
    if min(x.strides) < 0 or x.shape[1] != 1 and x.strides[1] == 0:
        x = builder.contiguous(x)  # the contract bounds the kernel's work by the memory it reads
    outer, n, inner = x.shape
    if not isinstance(n, Sym) and n == 0:
        builder.fill(y, _of_nothing(op, x.dtype))
        return
    builder.emit(
        "reduce",
        {"x": x, "y": y},
        op=REDUCE[op],
        type=x.dtype,
        outer=outer,
        n=n,
        inner=inner,
        x_outer=x.strides[0],
        x_n=x.strides[1],
        x_inner=x.strides[2],
        y_outer=inner,
    )


def _declare_reduce(name: str, op: str) -> None:
    """Declares a reduction; op: the kernel's operation, a name of REDUCE."""
    o = Op(name)
    if op in ("max", "min", "l1"):
        o.decompose(lambda node, graph: _decompose_uint64(node, graph, op))
    if op in _PY:
        o.fold(lambda node, outs: _fold(node, op))
    o.infer(lambda node: _infer(node, op))
    o.lower(lambda node, builder: _lower(node, builder, op))
    o.grad(lambda node, gradients, dy: [_reduce_gradient(op, node, gradients, dy)])


REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}
for _name, _op in REDUCTIONS.items():
    _declare_reduce(_name, _op)
