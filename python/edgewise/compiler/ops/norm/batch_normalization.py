"""Normalizations over batches, instances, groups and neighbouring channels."""

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
    )


def is_training(node: BoundNode) -> int:
    """1 where the statistics are those of x, 0 where they are inputs."""
    if node.domain == "edgewise":
        return 1
    return (
        int(bool(node.attr("training_mode", 0)))
        if node.opset >= 14
        else int(any(node.wants(i) for i in range(1, 5)))
    )


def _parameters(node: BoundNode, shape: Sequence[int]) -> dict[str, Any]:
    """The parameters that both kernels have, for x of this shape."""
    return {
        "batch": shape[0],
        "channels": shape[1],
        "inner": product(shape[2:]),
        "train": is_training(node),
        "epsilon": node.attr("epsilon", 1e-5),
    }


# Inputs: x, scale, bias, mean, variance.
batch_norm = Op("BatchNormalization", parameters=(1, 2))
# Inputs: x, scale, bias. Always with the statistics of x.
channel_norm = Op("ChannelNorm", "edgewise")


@batch_norm.decompose
def batch_norm_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """One dimension is the batch, of one channel. Statistics of each position (spatial = 0, before
    opset 9) are those of channels, where each position is one.
    """
    x, per_position = node.inputs[0], node.opset < 9 and not node.attr("spatial", 1)
    if not (x.rank == 1 or per_position and x.rank > 2):
        return None
    positions = list(x.shape[1:])
    if per_position and any(list(v.shape) != positions for v in node.inputs[1:5] if v is not None):
        fail(node, f"its inputs are {node.inputs}; statistics of {positions} are expected")
    channels = product(positions)
    outs = graph.op(
        "BatchNormalization",
        graph.reshape(x, [x.shape[0], channels]),
        *(graph.reshape(v, [channels]) for v in node.inputs[1:5]),
        outputs=len(node.outputs),
        epsilon=node.attr("epsilon", 1e-5),
        momentum=node.attr("momentum", 0.9),
        training_mode=is_training(node),
    )
    outs = outs if isinstance(outs, list) else [outs]
    shapes = [list(x.shape)] + [positions if per_position else [channels]] * (len(outs) - 1)
    return [graph.reshape(v, shape) for v, shape in zip(outs, shapes)]


@batch_norm.infer
@channel_norm.infer
def batch_norm_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1, 2, 3, 4)
    x = node.inputs[0]
    if (
        x.rank < 2
        or len(node.inputs) != (3 if node.domain else 5)
        or any(v is None or list(v.shape) != [x.shape[1]] for v in node.inputs[1:])
    ):
        fail(
            node,
            f"its inputs are {node.inputs}; a tensor [batch, channels, ...] and vectors of its"
            " channels are expected",
        )
    if node.wants(3) or node.wants(4):
        unsupported(
            node,
            "outputs of the statistics of the batch",
            "Export it for inference, or with opset 14 or newer.",
        )
    if is_training(node) and x.shape[1] and not product(x.shape):
        fail(node, f"{x} has no elements to compute statistics from")
    return ([(FLOAT, list(x.shape))] + [(FLOAT, [x.shape[1]])] * 2)[: len(node.outputs)]


@batch_norm.lower
@channel_norm.lower
def batch_norm_lower(node: BoundNode, builder: Builder) -> None:
    x, scale, bias = (builder.contiguous(builder.view(v)) for v in node.inputs[:3])
    mean, variance = (
        builder.contiguous(builder.view(v)) if v is not None else None
        for v in (node.input(3), node.input(4))
    )
    y, new_mean, new_variance = (
        builder.out(node.outputs[i]) if node.wants(i) else None for i in range(3)
    )
    parameters = _parameters(node, x.shape)
    if not parameters["train"]:
        for out, v in ((new_mean, mean), (new_variance, variance)):
            if out is not None and v is not None:
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
        **parameters,
    )


@batch_norm.grad
@channel_norm.grad
def batch_norm_grad(
    node: BoundNode, gradients: Gradients, dy: Value | None, *_: Value | None
) -> InputGradients:
    if dy is None:
        return [None]
    train, x, scale = is_training(node), node.inputs[0], node.inputs[1]
    epsilon = node.attr("epsilon", 1e-5)
    dx, dscale, dbias = gradients.op(
        "BatchNormalizationGrad",
        x,
        scale,
        dy,
        *([] if train else node.inputs[3:5]),
        domain="edgewise",
        outputs=3,
        epsilon=epsilon,
    )
    if train or not (gradients.wants(3) or gradients.wants(4)):
        return [dx, dscale, dbias]
    dmean = dvariance = None
    variance = gradients.op("Add", node.inputs[4], gradients.number(epsilon))
    if gradients.wants(3):
        slope = gradients.div(scale, gradients.op("Sqrt", variance))
        dmean = gradients.neg(gradients.mul(dbias, slope))
    if gradients.wants(4):
        dvariance = gradients.scale(gradients.mul(dscale, gradients.div(scale, variance)), -0.5)
    return [dx, dscale, dbias, dmean, dvariance]


# Inputs: x, scale, dy, and unless the statistics are those of x mean and variance.
# Outputs: dx, dscale, dbias.
grad = Op("BatchNormalizationGrad", "edgewise")


@grad.infer
def grad_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    return [(FLOAT, list(x.shape)), (FLOAT, [x.shape[1]]), (FLOAT, [x.shape[1]])]


@grad.lower
def grad_lower(node: BoundNode, builder: Builder) -> None:
    x, scale, dy = (builder.contiguous(builder.view(v)) for v in node.inputs[:3])
    mean, variance = (
        builder.contiguous(builder.view(v)) if v is not None else None
        for v in (node.input(3), node.input(4))
    )
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
        **{**_parameters(node, x.shape), "train": int(mean is None)},
    )


def _over_groups(node: BoundNode, graph: Binder, groups: int, scale: Value, bias: Value) -> Value:
    """x normalized to mean 0 and variance 1 over each group of channels of each item of the batch,
    then multiplied by scale [groups], plus bias [groups].
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
    """Raises ModelError unless scale and bias have this many elements."""
    takes(node, (FLOAT,), 0, 1, 2)
    x = node.inputs[0]
    if (
        x.rank < 3
        or len(node.inputs) < 3
        or any(v is None or list(v.shape) != [vectors] for v in node.inputs[1:3])
    ):
        fail(
            node,
            f"its inputs are {node.inputs}; a tensor [batch, channels, ...] and two vectors of"
            f" {vectors} are expected",
        )


instance_norm = Op("InstanceNormalization", parameters=(1, 2))


@instance_norm.decompose
def instance_norm_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x = node.inputs[0]
    _check(node, x.shape[1] if x.rank > 1 else 0)
    return (
        [_over_groups(node, graph, x.shape[1], node.inputs[1], node.inputs[2])]
        if product(x.shape)
        else [x]
    )


group_norm = Op("GroupNormalization", parameters=(1, 2))


@group_norm.decompose
def group_norm_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    x, groups = node.inputs[0], node.attr("num_groups", 0)
    if x.rank < 3 or groups < 1 or x.shape[1] % groups:
        fail(node, f"the channels of {x} do not divide into {groups} groups")
    of_groups = node.opset < 21
    _check(node, groups if of_groups else x.shape[1])
    if not product(x.shape):
        return [x]
    if of_groups:
        return [_over_groups(node, graph, groups, node.inputs[1], node.inputs[2])]
    y = _over_groups(
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
    """x / (bias + alpha / size * sum of the squares of the `size` nearest channels) ^ beta.

    The sum is an average pool over the channels.
    """
    takes(node, (FLOAT,), 0)
    x, size = node.inputs[0], node.attr("size", 0)
    if x.rank < 3 or size < 1:
        fail(
            node,
            f"its size is {size} and its input {x}; a positive size and three dimensions or"
            " more are expected",
        )
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
        fail(node, f"its p is {p}; 1 or 2 is expected")
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
