"""Norms over batches, instances, groups and neighbouring channels, and the kernels under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import Op, axis_of, fail, product, takes, unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Dim,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )


def is_training(node: BoundNode) -> int:
    if node.domain == "edgewise":
        return 1
    if node.opset < 9 and not node.attr("spatial", 1):
        unsupported(node, "statistics of each position")
    return (
        int(bool(node.attr("training_mode", 0)))
        if node.opset >= 14
        else int(any(node.wants(i) for i in range(1, 5)))
    )


def _sizes(node: BoundNode, shape: Sequence[int]) -> dict[str, Any]:
    return {
        "batch": shape[0],
        "channels": shape[1],
        "inner": product(shape[2:]),
        "train": is_training(node),
        "epsilon": node.attr("epsilon", 1e-5),
    }


def _views(node: BoundNode, builder: Builder) -> list[View | None]:
    return [
        builder.contiguous(builder.view(v)) if v is not None else None
        for v in (*node.inputs, None, None)[:5]
    ]


def _statistics(op):
    """What BatchNormalization (x, scale, bias, mean, variance) and ChannelNorm (x, scale, bias),
    which always takes those of x, have in common.
    """

    @op.infer
    def op_infer(node: BoundNode) -> Inferred:
        takes(node, (FLOAT,), 0, 1, 2, 3, 4)
        x = node.inputs[0]
        if (
            x.rank < 2
            or len(node.inputs) != (3 if node.domain else 5)
            or any(v is None or list(v.shape) != [x.shape[1]] for v in node.inputs[1:])
        ):
            fail(
                node,
                "it wants a tensor [batch, channels, ...] and vectors of the channels, not"
                f" {node.inputs}",
            )
        if node.wants(3) or node.wants(4):
            unsupported(
                node,
                "outputs of the statistics of the batch",
                "Export it for inference, or with opset 14 or newer.",
            )
        if is_training(node) and x.shape[1] and not product(x.shape):
            fail(node, f"there is nothing to take statistics of in {x}")
        return ([(FLOAT, list(x.shape))] + [(FLOAT, [x.shape[1]])] * 2)[: len(node.outputs)]

    @op.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        x, scale, bias, mean, variance = _views(node, builder)
        y, (new_mean, new_variance) = (
            builder.out(node.outputs[0]),
            (builder.out(node.outputs[i]) if node.wants(i) else None for i in (1, 2)),
        )
        sizes = _sizes(node, x.shape)
        if not sizes["train"]:
            for out, v in ((new_mean, mean), (new_variance, variance)):
                if out is not None:
                    builder.copy(v, out)
            new_mean = new_variance = None
        builder.emit(
            "batch_norm",
            {
                "x": x,
                "scale": scale,
                "bias": bias,
                "mean": mean,
                "variance": variance,
                "y": y,
                "new_mean": new_mean,
                "new_variance": new_variance,
            },
            momentum=node.attr("momentum", 0.9),
            **sizes,
        )

    @op.grad
    def op_grad(
        node: BoundNode, gradients: Gradients, dy: Value | None, *_: Value | None
    ) -> InputGradients:
        if dy is None:
            return [None]
        train, x, scale = is_training(node), node.inputs[0], node.inputs[1]
        dx, dscale, dbias = gradients.op(
            "BatchNormalizationGrad",
            x,
            scale,
            dy,
            *([] if train else node.inputs[3:5]),
            domain="edgewise",
            outputs=3,
            epsilon=node.attr("epsilon", 1e-5),
        )
        grads = [dx, dscale, dbias]
        if not train and (gradients.wants(3) or gradients.wants(4)):
            variance = gradients.op(
                "Add", node.inputs[4], gradients.number(node.attr("epsilon", 1e-5))
            )
            grads += [
                (
                    gradients.neg(
                        gradients.mul(dbias, gradients.div(scale, gradients.op("Sqrt", variance)))
                    )
                    if gradients.wants(3)
                    else None
                ),
                (
                    gradients.scale(gradients.mul(dscale, gradients.div(scale, variance)), -0.5)
                    if gradients.wants(4)
                    else None
                ),
            ]
        return grads


batch_norm = Op("BatchNormalization", parameters=(1, 2))
_statistics(batch_norm)
_statistics(Op("ChannelNorm", "edgewise"))


grad = Op(
    "BatchNormalizationGrad", "edgewise"
)  # (x, scale, dy) or (x, scale, dy, mean, variance) -> dx, dscale, dbias


@grad.infer
def grad_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    return [(FLOAT, list(x.shape)), (FLOAT, [x.shape[1]]), (FLOAT, [x.shape[1]])]


@grad.lower
def grad_lower(node: BoundNode, builder: Builder) -> None:
    x, scale, dy, mean, variance = _views(node, builder)
    dx, dscale, dbias = (builder.out(node.outputs[i]) if node.wants(i) else None for i in range(3))
    if not product(x.shape):
        for v in (dscale, dbias):
            if v is not None:
                builder.fill(v, 0.0)
    builder.emit(
        "batch_norm_grad",
        {
            "x": x,
            "scale": scale,
            "mean": mean,
            "variance": variance,
            "dy": dy,
            "dx": dx,
            "dscale": dscale,
            "dbias": dbias,
        },
        **{**_sizes(node, x.shape), "train": int(mean is None)},
    )


def _over(node: BoundNode, graph: Binder, groups: int, scale: Value, bias: Value) -> Value:
    """x with mean 0 and variance 1 in each of `groups` groups of channels of each item, times scale
    [groups], plus bias.
    """
    x = node.inputs[0]
    batch = x.shape[0]

    def of_items(v: Value) -> Value:
        return graph.op(
            "Reshape",
            graph.op("Expand", v, graph.constant(INT64, [2], [batch, groups])),
            graph.constant(INT64, [1], [batch * groups]),
        )

    rows = graph.op("Reshape", x, graph.constant(INT64, [3], [1, batch * groups, -1]))
    y = graph.op(
        "ChannelNorm",
        rows,
        of_items(scale),
        of_items(bias),
        domain="edgewise",
        epsilon=node.attr("epsilon", 1e-5),
    )
    return graph.op("Reshape", y, graph.constant(INT64, [x.rank], list(x.shape)))


def _check(node: BoundNode, vectors: Dim) -> None:
    takes(node, (FLOAT,), 0, 1, 2)
    x = node.inputs[0]
    if (
        x.rank < 3
        or len(node.inputs) < 3
        or any(v is None or list(v.shape) != [vectors] for v in node.inputs[1:3])
    ):
        fail(
            node,
            f"it wants a tensor [batch, channels, ...] and two vectors of {vectors}, not"
            f" {node.inputs}",
        )


instance_norm = Op("InstanceNormalization", parameters=(1, 2))


@instance_norm.decompose
def instance_norm_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x = node.inputs[0]
    _check(node, x.shape[1] if x.rank > 1 else 0)
    return (
        [_over(node, graph, x.shape[1], node.inputs[1], node.inputs[2])]
        if product(x.shape)
        else [x]
    )


group_norm = Op("GroupNormalization", parameters=(1, 2))


@group_norm.decompose
def group_norm_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x, groups = node.inputs[0], node.attr("num_groups", 0)
    if x.rank < 3 or groups < 1 or x.shape[1] % groups:
        fail(node, f"{groups} groups of the channels of {x}")
    of_groups = node.opset < 21
    _check(node, groups if of_groups else x.shape[1])
    if not product(x.shape):
        return [x]
    if of_groups:
        return [_over(node, graph, groups, node.inputs[1], node.inputs[2])]
    y = _over(
        node,
        graph,
        groups,
        graph.constant(FLOAT, [groups], [1.0] * groups),
        graph.constant(FLOAT, [groups], [0.0] * groups),
    )
    column = graph.constant(INT64, [x.rank - 1], [x.shape[1]] + [1] * (x.rank - 2))
    return [
        graph.op(
            "Add",
            graph.op("Mul", y, graph.op("Reshape", node.inputs[1], column)),
            graph.op("Reshape", node.inputs[2], column),
        )
    ]


lrn = Op("LRN")


@lrn.decompose
def lrn_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """x / (bias + alpha / size * sum of the squares of the `size` nearest channels) ^ beta: an
    average pool over the channels.
    """
    takes(node, (FLOAT,), 0)
    x, size = node.inputs[0], node.attr("size", 0)
    if x.rank < 3 or size < 1:
        fail(node, f"a size of {size} over {x}")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    rows = graph.op(
        "Reshape",
        graph.op("Mul", x, x),
        graph.constant(INT64, [4], [x.shape[0], 1, x.shape[1], product(x.shape[2:])]),
    )
    mean = graph.op(
        "AveragePool", rows, kernel_shape=[size, 1], pads=[before, 0, after, 0], count_include_pad=1
    )
    mean = graph.op("Reshape", mean, graph.constant(INT64, [x.rank], list(x.shape)))
    base = graph.op(
        "Add",
        graph.op("Mul", mean, graph.constant(FLOAT, [], [node.attr("alpha", 1e-4)])),
        graph.constant(FLOAT, [], [node.attr("bias", 1.0)]),
    )
    return [
        graph.op(
            "Mul", x, graph.op("Pow", base, graph.constant(FLOAT, [], [-node.attr("beta", 0.75)]))
        )
    ]


lp_norm = Op("LpNormalization")


@lp_norm.decompose
def lp_norm_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    takes(node, (FLOAT,), 0)
    x, p = node.inputs[0], node.attr("p", 2)
    if p not in (1, 2):
        fail(node, f"a norm with p {p}")
    norm = graph.op(
        "ReduceL1" if p == 1 else "ReduceL2",
        x,
        graph.constant(INT64, [1], [axis_of(node, node.attr("axis", -1), x.rank)]),
        keepdims=1,
    )
    zero = graph.op("Equal", norm, graph.constant(FLOAT, [], [0.0]))
    return [graph.op("Div", x, graph.op("Where", zero, graph.constant(FLOAT, [], [1.0]), norm))]


mean_variance_norm = Op("MeanVarianceNormalization")


@mean_variance_norm.decompose
def mean_variance_norm_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    takes(node, (FLOAT,), 0)
    x = node.inputs[0]
    axes = [axis_of(node, a, x.rank) for a in node.attrs.get("axes", [0, 2, 3])]
    over = graph.constant(INT64, [len(axes)], axes)
    d = graph.op("Sub", x, graph.op("ReduceMean", x, over, keepdims=1))
    deviation = graph.op("Sqrt", graph.op("ReduceMean", graph.op("Mul", d, d), over, keepdims=1))
    return [graph.op("Div", d, graph.op("Add", deviation, graph.constant(FLOAT, [], [1e-9])))]
