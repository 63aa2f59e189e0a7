"""Softmax and LogSoftmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT64
from ...declare.op import Op, axis_of, like, product, takes

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Dim,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
        View,
    )


def _axis(node: BoundNode) -> int:
    """The axis from 0; by default 1 before opset 13, then the last one."""
    return axis_of(node, node.attr("axis", 1 if node.opset < 13 else -1), node.inputs[0].rank)


def _flat(shape: Shape, axis: int) -> list[Dim]:
    """Two dimensions: before opset 13, softmax was over all dimensions from the axis on."""
    return [product(shape[:axis]), product(shape[axis:])]


def _last(axis: int, rank: int) -> list[int]:
    """The permutation that makes an axis the last one."""
    return [*(i for i in range(rank) if i != axis), axis]


def softmax_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """The formula, for float64."""
    x, old = node.inputs[0], node.opset < 13
    if x.dtype != DOUBLE:
        return None
    axis, v = _axis(node), x
    if old:
        shape = graph.constant(INT64, [2], _flat(x.shape, axis))
        v = graph.op("Reshape", x, shape, allowzero=1)
    axes = graph.constant(INT64, [1], [1 if old else axis])
    v = graph.op("Sub", v, graph.op("ReduceMax", v, axes))
    e = graph.op("Exp", v)
    total = graph.op("ReduceSum", e, axes)
    if node.op == "LogSoftmax":
        y = graph.op("Sub", v, graph.op("Log", total))
    else:
        y = graph.op("Div", e, total)
    return [graph.op("Reshape", y, graph.constant(INT64, [x.rank], x.shape), allowzero=1)]


def softmax_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    _axis(node)
    return [like(node, 0)]


def softmax_lower(node: BoundNode, builder: Builder) -> None:
    x, y = builder.view(node.inputs[0]), builder.out(node.outputs[0])
    rank, axis, log = len(x.shape), _axis(node), int(node.op == "LogSoftmax")
    if node.opset < 13:
        flat = _flat(x.shape, axis)
        x, y = builder.reshaped(x, flat), builder.reshaped(y, flat)
    elif axis != rank - 1:
        perm = _last(axis, rank)
        t = builder.temp(x.dtype, [x.shape[p] for p in perm])
        softmax_rows(builder, builder.contiguous(x.transpose(perm)), t, log)
        builder.copy(t.transpose([perm.index(i) for i in range(rank)]), y)
        return
    softmax_rows(builder, x, y, log)


def softmax_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    y, rank, axis = node.outputs[0], node.inputs[0].rank, _axis(node)

    def of_rows(dy: Value, y: Value) -> Value:
        return gradients.op(node.op + "Grad", dy, y, domain="edgewise")

    if node.opset < 13:
        shape = list(dy.shape)
        flat = _flat(shape, axis)
        d = of_rows(gradients.reshape(dy, flat), gradients.reshape(y, flat))
        return [gradients.reshape(d, shape)]
    perm = _last(axis, rank)
    d = of_rows(gradients.transpose(dy, perm), gradients.transpose(y, perm))
    return [gradients.transpose(d, [perm.index(i) for i in range(rank)])]


def softmax_rows(builder: Builder, x: View, y: View, log: int) -> None:
    """Softmax, or with log 1 its logarithm, of x over the last dimension into y."""
    x, y = builder.as_rows(x), builder.as_rows(y)
    builder.emit(
        "softmax",
        {"x": x, "y": y},
        rows=x.shape[0],
        cols=x.shape[1],
        x_row=x.strides[0],
        y_row=y.strides[0],
        log=log,
    )


def row_gradient_infer(node: BoundNode) -> Inferred:
    return [like(node, 0)]


def row_gradient_lower(node: BoundNode, builder: Builder) -> None:
    dy, y = (builder.as_rows(builder.view(v)) for v in node.inputs)
    builder.emit(
        "softmax_grad",
        {"dy": dy, "y": y, "dx": builder.as_rows(builder.out(node.outputs[0]))},
        rows=dy.shape[0],
        cols=dy.shape[1],
        dy_row=dy.strides[0],
        y_row=y.strides[0],
        log=int(node.op == "LogSoftmaxGrad"),
    )


for _name in ("Softmax", "LogSoftmax"):
    _op = Op(_name)
    _op.decompose(softmax_decompose)
    _op.infer(softmax_infer)
    _op.lower(softmax_lower)
    _op.grad(softmax_grad)
    _grad = Op(_name + "Grad", "edgewise")  # (dy, y) -> dx, over the last axis
    _grad.infer(row_gradient_infer)
    _grad.lower(row_gradient_lower)
