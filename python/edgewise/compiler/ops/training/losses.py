"""Cross entropy against class indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import Op, fail, product, takes, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )

# Inputs: x [rows, classes], labels [rows], class weights [classes] or absent. Outputs, each [rows]:
# the loss, the weight of the label's class (0: ignored), log(sum(exp(x))). Attributes:
# ignore_index, label_smoothing, nll.
rows = Op("CrossEntropyRows", "edgewise")
# Inputs: x, labels, class weights or absent, log(sum(exp(x))), the gradient of the loss.
rows_grad = Op("CrossEntropyRowsGrad", "edgewise")


@rows.infer
def rows_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, [node.inputs[0].shape[0]])] * 3


@rows_grad.infer
def rows_grad_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, list(node.inputs[0].shape))]


def _operands(node: BoundNode, builder: Builder) -> tuple[dict[str, View | None], dict[str, Any]]:
    """Operands and parameters that both kernels have."""
    x = builder.as_rows(builder.view(node.inputs[0]))
    if x.shape[0] != 1 and x.strides[0] == 0:
        x = builder.contiguous(x)
    ignore, label = node.attrs.get("ignore_index"), node.inputs[1]
    if x.shape[0] and ignore is not None and not -(2**31) <= ignore < 2**31:
        unsupported(
            node, f"its ignore_index is {ignore}", "Use one that fits into 32 bits, such as -100."
        )
    return (
        {
            "x": x,
            "label": builder.contiguous(builder.view(label)),
            "weight": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
        },
        {
            "rows": x.shape[0],
            "classes": x.shape[1],
            "x_row": x.strides[0],
            "label_type": label.dtype,
            "nll": node.attr("nll", 0),
            "has_ignore": int(ignore is not None),
            "ignore_index": ignore or 0,
            "smoothing": float(node.attr("label_smoothing", 0.0)),
        },
    )


@rows.lower
def rows_lower(node: BoundNode, builder: Builder) -> None:
    operands, params = _operands(node, builder)
    outs = [
        builder.out(node.outputs[i]) if node.wants(i) else builder.temp(FLOAT, [params["rows"]])
        for i in range(3)
    ]
    builder.emit(
        "cross_entropy", {**operands, **dict(zip(("loss", "counted", "lse"), outs))}, **params
    )


@rows_grad.lower
def rows_grad_lower(node: BoundNode, builder: Builder) -> None:
    operands, params = _operands(node, builder)
    d = builder.view(node.inputs[4])
    if d.strides[0] < 0:
        d = builder.contiguous(d)
    builder.emit(
        "cross_entropy_grad",
        {
            **operands,
            "lse": builder.contiguous(builder.view(node.inputs[3])),
            "dloss": d,
            "dx": builder.out(node.outputs[0]),
        },
        **params,
        dloss_row=d.strides[0] if params["rows"] > 1 else 0,
    )


@rows.grad
def rows_grad_rule(
    node: BoundNode,
    gradients: Gradients,
    dloss: Value | None,
    dcounted: Value | None = None,
    dlse: Value | None = None,
) -> InputGradients:
    if dloss is None:
        return [None]
    lse = gradients.output(2, FLOAT, list(dloss.shape))
    return [
        gradients.op(
            "CrossEntropyRowsGrad",
            node.inputs[0],
            node.inputs[1],
            node.input(2),
            lse,
            dloss,
            domain="edgewise",
            **node.attrs,
        )
    ]


def _check_loss(node: BoundNode) -> None:
    """Raises ModelError or UnsupportedOp where inputs or attributes do not fit."""
    takes(node, (FLOAT,), 0, 2)
    takes(node, (INT32, INT64), 1)
    x, labels, weight = node.inputs[0], node.inputs[1], node.input(2)
    if x.rank < 2 or list(labels.shape) != [x.shape[0], *x.shape[2:]]:
        fail(node, f"labels {labels} do not fit scores {x}")
    if weight is not None and list(weight.shape) != [x.shape[1]]:
        fail(node, f"weights {weight} do not fit the {x.shape[1]} classes of {x}")
    reduction = node.attr("reduction", "mean")
    if reduction not in ("none", "mean", "sum"):
        fail(node, f"its reduction is {reduction!r}", "ONNX has none, mean and sum.")


def _decompose(node: BoundNode, graph: Binder, nll: int) -> list[Value | None]:
    """The outputs of a loss: the loss, reduced, and the logarithms of the probabilities.

    Opsets 12 and 13 of both operators differ in types only.

    Args:
        nll: 1: the input is logarithms of probabilities; 0: scores.
    """
    _check_loss(node)
    x, labels, weight = node.inputs[0], node.inputs[1], node.input(2)
    reduction = node.attr("reduction", "mean")
    classes, count = x.shape[1], product(labels.shape)
    flat = (
        x
        if x.rank == 2
        else graph.op(
            "Reshape",
            graph.op("Transpose", x, perm=[0, *range(2, x.rank), 1]),
            graph.constant(INT64, [2], [count, classes]),
            allowzero=1,
        )
    )
    one = (
        labels
        if labels.rank == 1
        else graph.op("Reshape", labels, graph.constant(INT64, [1], [count]), allowzero=1)
    )
    attrs = {k: v for k, v in node.attrs.items() if k in ("ignore_index", "label_smoothing")}
    loss, counted, _ = graph.op(
        "CrossEntropyRows", flat, one, weight, domain="edgewise", outputs=3, nll=nll, **attrs
    )
    if reduction == "none":
        out = (
            loss
            if labels.rank == 1
            else graph.op(
                "Reshape",
                loss,
                graph.constant(INT64, [labels.rank], list(labels.shape)),
                allowzero=1,
            )
        )
    else:
        out = graph.op("ReduceSum", loss, keepdims=0)
        if reduction == "mean":
            out = graph.op("Div", out, graph.op("ReduceSum", counted, keepdims=0))
    return [out, graph.op("LogSoftmax", x, axis=1) if node.wants(1) else None][
        : max(len(node.outputs), 1)
    ]


# SoftmaxCrossEntropyLoss with label_smoothing e, as torch.nn.CrossEntropyLoss: the target is
# (1 - e) * one-hot + e / classes, each class multiplied by its weight.
cross_entropy = Op("CrossEntropy", "edgewise")
softmax_cross_entropy = Op("SoftmaxCrossEntropyLoss")
nll = Op("NegativeLogLikelihoodLoss")


@cross_entropy.decompose
@softmax_cross_entropy.decompose
def cross_entropy_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    return _decompose(node, graph, 0)


@nll.decompose
def nll_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    return _decompose(node, graph, 1)
