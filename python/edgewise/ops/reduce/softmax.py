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
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )


def _declare_softmax(name, log):
    o = Op(name)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> Decomposed:
        """Of float64 by the formula."""
        x, old = node.inputs[0], node.opset < 13
        if x.dtype != DOUBLE:
            return None
        axis = axis_of(node, node.attr("axis", 1 if old else -1), x.rank)
        v = (
            graph.op(
                "Reshape",
                x,
                graph.constant(INT64, [2], [product(x.shape[:axis]), product(x.shape[axis:])]),
                allowzero=1,
            )
            if old
            else x
        )
        axes = graph.constant(INT64, [1], [1 if old else axis])
        v = graph.op("Sub", v, graph.op("ReduceMax", v, axes))
        e = graph.op("Exp", v)
        total = graph.op("ReduceSum", e, axes)
        y = graph.op("Sub", v, graph.op("Log", total)) if log else graph.op("Div", e, total)
        return [graph.op("Reshape", y, graph.constant(INT64, [x.rank], x.shape), allowzero=1)]

    @o.infer
    def op_infer(node: BoundNode) -> Inferred:
        takes(node, (FLOAT,), 0)
        axis_of(node, node.attr("axis", 1 if node.opset < 13 else -1), node.inputs[0].rank)
        return [like(node, 0)]

    @o.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        x, y = builder.view(node.inputs[0]), builder.out(node.outputs[0])
        rank = len(x.shape)
        axis = axis_of(node, node.attr("axis", 1 if node.opset < 13 else -1), rank)
        if node.opset < 13:  # older opsets flatten everything from the axis on
            flat = [product(x.shape[:axis]), product(x.shape[axis:])]
            x, y = builder.reshaped(x, flat), builder.reshaped(y, flat)
            axis = 1
        elif axis != rank - 1:
            perm = [i for i in range(rank) if i != axis] + [axis]
            t = builder.temp(x.dtype, [x.shape[p] for p in perm])
            softmax_rows(builder, builder.contiguous(x.transpose(perm)), t, log)
            back = [perm.index(i) for i in range(rank)]
            builder.copy(t.transpose(back), y)
            return
        softmax_rows(builder, x, y, log)

    @o.grad
    def op_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
        y, rank = node.outputs[0], node.inputs[0].rank
        axis, shape = (
            axis_of(node, node.attr("axis", 1 if node.opset < 13 else -1), rank),
            list(dy.shape),
        )
        if node.opset < 13:
            flat = [product(shape[:axis]), product(shape[axis:])]
            return [
                gradients.reshape(
                    gradients.op(
                        name + "Grad",
                        gradients.reshape(dy, flat),
                        gradients.reshape(y, flat),
                        domain="edgewise",
                    ),
                    shape,
                )
            ]
        perm = [*(i for i in range(rank) if i != axis), axis]
        d = gradients.op(
            name + "Grad",
            gradients.transpose(dy, perm),
            gradients.transpose(y, perm),
            domain="edgewise",
        )
        return [gradients.transpose(d, [perm.index(i) for i in range(rank)])]

    grad = Op(name + "Grad", "edgewise")  # (dy, y) -> dx, over the last axis

    @grad.infer
    def grad_infer(node: BoundNode) -> Inferred:
        return [like(node, 0)]

    @grad.lower
    def grad_lower(node: BoundNode, builder: Builder) -> None:
        dy, y = (
            builder.as_rows(builder.view(node.inputs[0])),
            builder.as_rows(builder.view(node.inputs[1])),
        )
        builder.emit(
            "softmax_grad",
            {"dy": dy, "y": y, "dx": builder.as_rows(builder.out(node.outputs[0]))},
            rows=dy.shape[0],
            cols=dy.shape[1],
            dy_row=dy.strides[0],
            y_row=y.strides[0],
            log=log,
        )


def softmax_rows(builder: Builder, x: View, y: View, log: int) -> None:
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


_declare_softmax("Softmax", 0)
_declare_softmax("LogSoftmax", 1)
