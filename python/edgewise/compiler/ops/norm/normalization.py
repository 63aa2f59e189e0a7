"""LayerNormalization and RMSNormalization, and onnxruntime's forms that add a skip connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import (
    MS,
    Op,
    axis_of,
    broadcast,
    fail,
    like,
    product,
    same_shape,
    takes,
    unsupported,
    without_ones,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Dim,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )


def _check_floats(node: BoundNode) -> None:
    for v in node.inputs:
        if v is not None and v.dtype != FLOAT:
            fail(node, f"its input is {v}; float32 is expected")


def _broadcast(node: BoundNode, graph: Binder) -> list[Value | None] | None:
    """The outputs of a normalization whose scale or bias broadcasts to x in a way that the kernel
    does not have, which takes one number for each element of a row; None where it has it.

    Raises:
        ModelError: scale or bias does not broadcast to x.
    """
    x, scale, bias = node.inputs[0], node.input(1), node.input(2)
    row = x.shape[axis_of(node, node.attr("axis", -1), x.rank) :]
    takes(node, (FLOAT,), 0, 1, 2)
    for name, v in (("scale", scale), ("bias", bias)):
        if v is not None and broadcast(node, v.shape, x.shape) != list(x.shape):
            fail(node, f"its {name} {v} does not broadcast to {x}")
    if all(v is None or same_shape(v.shape, row) for v in (scale, bias)):
        return None

    def of_row(v: Value | None) -> Value | None:
        """v for each element of a row; None where it differs from row to row."""
        if v is None or len(without_ones(v.shape)) > len(row):
            return None
        return v if same_shape(v.shape, row) else graph.op("Expand", v, graph.ints(row))

    factor = of_row(scale)
    shift = of_row(bias) if scale is None or factor is not None else None
    names = [o.name if o and i else graph.fresh(node.op) for i, o in enumerate(node.outputs)]
    y, *statistics = graph.node(
        node.op,
        node.domain,
        node.name,
        [x, factor] if shift is None else [x, factor, shift],
        [n if o is not None else "" for n, o in zip(names, node.outputs)],
        node.attrs,
        node.opset,
    )
    if y is not None and scale is not None and factor is None:
        y = graph.op("Mul", y, scale)
    if y is not None and bias is not None and shift is None:
        y = graph.op("Add", y, bias)
    return [y, *statistics]


def emit_norm(
    builder: Builder,
    x: View,
    y: View,
    scale: View | None,
    bias: View | None = None,
    skip: View | None = None,
    skip_bias: View | None = None,
    total: View | None = None,
    rms: int = 0,
    epsilon: float = 1e-5,
    cols: Dim | None = None,
    scale_offset: float = 0.0,
    mean: View | None = None,
    inv_std: View | None = None,
) -> None:
    """Adds a call of the kernel "norm".

    Args:
        x, skip, y, total: Views with rows of `cols` trailing elements; total is the operand
            `sum`.
        cols: By default the last dimension.
        mean, inv_std: The statistics of each row, outputs.
    """
    x, y = builder.as_rows(x, cols), builder.as_rows(y, cols)
    skip = builder.as_rows(skip, cols) if skip is not None else None
    total = builder.as_rows(total, cols) if total is not None else None
    flat = [builder.contiguous(v) if v is not None else None for v in (scale, bias, skip_bias)]
    builder.emit(
        "norm",
        {
            "x": x,
            "scale": flat[0],
            "bias": flat[1],
            "skip": skip,
            "skip_bias": flat[2],
            "y": y,
            "sum": total,
            "mean": mean,
            "inv_std": inv_std,
        },
        rms=rms,
        rows=x.shape[0],
        cols=x.shape[1],
        x_row=x.strides[0],
        skip_row=skip.strides[0] if skip is not None and skip.shape[0] != 1 else 0,
        y_row=y.strides[0],
        epsilon=epsilon,
        scale_offset=scale_offset,
    )


# Inputs: x, dy, scale (optional), a gradient to add to that of x (optional).
# Outputs: the gradients of x, scale and bias.
# Attributes: rms, epsilon; cols: elements of a row; of_x: whether the gradient of x is computed.
grad = Op("NormGrad", "edgewise")


@grad.infer
def grad_infer(node: BoundNode) -> Inferred:
    row = (FLOAT, [node.attr("cols", 0)])
    return [like(node, 0), row, row]


@grad.lower
def grad_lower(node: BoundNode, builder: Builder) -> None:
    cols = node.attr("cols", 0)
    x, dy = (builder.as_rows(builder.view(v), cols) for v in node.inputs[:2])
    more = builder.as_rows(builder.view(node.inputs[3]), cols) if node.has(3) else None
    if more is not None and not more.plain:
        more = builder.contiguous(more)
    sums = {
        k: builder.out(node.outputs[i]) for i, k in ((1, "dscale"), (2, "dbias")) if node.wants(i)
    }
    rows = x.shape[0]
    if rows == 0:
        for v in sums.values():
            builder.fill(v, 0.0)
    parts = max(1, min(rows * cols // 16384, rows, 16 if sums else 1024))
    dx = builder.as_rows(builder.out(node.outputs[0]), cols) if node.attr("of_x", 1) else None
    builder.emit(
        "norm_grad",
        {
            "x": x,
            "dy": dy,
            "scale": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
            "more": more,
            "dx": dx,
            **sums,
        },
        scratch=bool(sums),
        rms=node.attr("rms", 0),
        rows=rows,
        cols=cols,
        x_row=x.strides[0],
        dy_row=dy.strides[0],
        parts=parts,
        epsilon=node.attr("epsilon", 1e-5),
        scale_offset=node.attr("scale_offset", 0.0),
    )


def norm_grad(
    node: BoundNode,
    graph: Gradients,
    x: Value | None,
    dy: Value | None,
    scale: Value | None,
    where: tuple[int | tuple[int, ...], int, int],
    rms: int,
    epsilon: float,
    cols: Dim,
    more: Value | None = None,
) -> tuple[Value | None, Value | None, Value | None]:
    """Adds a NormGrad node.

    Args:
        x: What was normalized, with the skip connection in it; None without dy.
        dy: The gradient of y, or None.
        where: Which inputs of the node x, scale and bias are; x may come from several.
        cols: Elements of a row.
        more: The gradient of the output `sum`, or None.
    Returns:
        The gradients of x, scale and bias, None where they are not needed.
    """
    of_x, of_scale, of_bias = (
        any(map(graph.wants, i)) if isinstance(i, tuple) else graph.wants(i) for i in where
    )
    if dy is None:  # only the output `sum` is used
        return more if of_x else None, None, None
    outs = graph.op(
        "NormGrad",
        x,
        dy,
        scale,
        more,
        domain="edgewise",
        outputs=3 if of_bias else 2 if of_scale else 1,
        rms=rms,
        epsilon=float(epsilon),
        cols=cols,
        of_x=int(of_x),
    )
    outs = (outs if isinstance(outs, list) else [outs]) + [None, None]
    return (
        outs[0] if of_x else None,
        graph.reshape(outs[1], scale.shape) if of_scale and scale is not None else None,
        graph.reshape(outs[2], node.inputs[where[2]].shape) if of_bias else None,
    )


def _declare_norm(name: str, rms: int, domain: str = "") -> None:
    """Declares a normalization of the dimensions from `axis` on.

    Args:
        rms: 1: by the root mean square; 0: by mean and variance.
    """
    op = Op(name, domain, parameters=(1,) if rms else (1, 2))

    @op.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value | None] | None:
        return _broadcast(node, graph)

    @op.infer
    def op_infer(node: BoundNode) -> Inferred:
        takes(node, (FLOAT,), 0, 1, 2)
        x = node.inputs[0]
        axis = axis_of(node, node.attr("axis", -1), x.rank)
        _check_floats(node)
        if rms and node.has(2):
            fail(node, f"it has no bias, but a third input {node.inputs[2]}")
        row = (FLOAT, [*x.shape[:axis], *[1] * (x.rank - axis)])
        # y, mean and inverse deviation; with rms: y and inverse deviation
        return [(x.dtype, list(x.shape)), row, row][: 2 if rms else 3]

    @op.lower
    def op_lower(node: BoundNode, builder: Builder) -> None:
        x = builder.view(node.inputs[0])
        axis = axis_of(node, node.attr("axis", -1), len(x.shape))
        mean, inv_std = (
            builder.out(node.outputs[i]) if i and node.wants(i) else None
            for i in ((0, 1) if rms else (1, 2))
        )
        emit_norm(
            builder,
            x,
            builder.out(node.outputs[0]),
            builder.view(node.inputs[1]) if node.has(1) else None,
            builder.view(node.inputs[2]) if node.has(2) else None,
            rms=rms,
            epsilon=node.attr("epsilon", 1e-5),
            cols=product(x.shape[axis:]),
            mean=mean,
            inv_std=inv_std,
        )

    @op.grad
    def op_grad(
        node: BoundNode, gradients: Gradients, dy: Value | None, *statistics: Value | None
    ) -> InputGradients:
        _check_statistics(node, statistics)
        x = node.inputs[0]
        return norm_grad(
            node,
            gradients,
            x,
            dy,
            node.input(1),
            (0, 1, 2),
            rms,
            node.attr("epsilon", 1e-5),
            product(x.shape[axis_of(node, node.attr("axis", -1), x.rank) :]),
        )


def _check_statistics(node: BoundNode, gradients: Sequence[Value | None]) -> None:
    """Raises UnsupportedOp where a gradient arrives at the outputs mean or inverse deviation."""
    if any(d is not None for d in gradients):
        unsupported(
            node, "the gradient of its outputs mean and deviation", "Compute them with ReduceMean."
        )


_declare_norm("LayerNormalization", 0)
_declare_norm("RMSNormalization", 1)
_declare_norm("SimplifiedLayerNormalization", 1)  # onnxruntime's name, in the default domain
_declare_norm("SimplifiedLayerNormalization", 1, MS)


def _skip_norm_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1, 2, 3, 4)
    x, skip = node.inputs[:2]
    if x.shape[-1] != skip.shape[-1]:
        fail(node, f"{x} and {skip} have different widths")
    _check_floats(node)
    if x.rank < 2 or broadcast(node, skip.shape, x.shape) != list(x.shape):
        fail(node, f"its skip {skip} does not fit {x}")
    for v in node.inputs[2:]:
        if v is not None and list(v.shape) != [x.shape[-1]]:
            fail(node, f"{v} does not fit the width of {x}")
    row = (FLOAT, [*x.shape[:-1], 1])
    # y, mean, inverse deviation, sum
    return [like(node, 0), row, row, like(node, 0)][: len(node.outputs)]


def _skip_norm_lower(node: BoundNode, builder: Builder, rms: int) -> None:
    x, skip = builder.view(node.inputs[0]), builder.view(node.inputs[1])
    if skip.shape != x.shape:
        skip = skip.broadcast(x.shape)
    scale = builder.view(node.inputs[2])
    beta, bias = (
        builder.view(node.inputs[i]) if i and node.has(i) else None
        for i in ((0, 3) if rms else (3, 4))
    )
    total, mean, inv_std = (
        builder.out(node.outputs[i]) if node.wants(i) else None for i in (3, 1, 2)
    )
    emit_norm(
        builder,
        x,
        builder.out(node.outputs[0]),
        scale,
        beta,
        skip,
        bias,
        total,
        rms,
        node.attr("epsilon", 1e-12),
        x.shape[-1],
        mean=mean,
        inv_std=inv_std,
    )


def _skip_norm_grad(
    node: BoundNode, gradients: Gradients, rms: int, dy: Value | None, *rest: Value | None
) -> InputGradients:
    _check_statistics(node, rest[:2])
    x, skip = node.inputs[:2]
    beta, bias = (9, 3) if rms else (3, 4)  # which inputs they are; there is no input 9
    total = gradients.output(3, FLOAT, list(x.shape)) if dy is not None else None
    d, dscale, dbeta = norm_grad(
        node,
        gradients,
        total,
        dy,
        node.inputs[2],
        ((0, 1, bias), 2, beta),
        rms,
        node.attr("epsilon", 1e-12),
        x.shape[-1],
        rest[2] if len(rest) > 2 else None,
    )
    out = [
        d if gradients.wants(0) else None,
        gradients.sum_to(d, skip.shape) if gradients.wants(1) else None,
        dscale,
        dbeta,
        None,
    ]
    out[bias] = gradients.sum_to(d, node.inputs[bias].shape) if gradients.wants(bias) else None
    return out[: len(node.inputs)]


# Inputs: x, skip, scale, (bias of the norm, unless rms,) bias that is added to x and skip.
for _name, _rms in (("SkipLayerNormalization", 0), ("SkipSimplifiedLayerNormalization", 1)):
    _op = Op(_name, MS, parameters=(2, 3) if _rms else (2, 3, 4))
    _op.infer(_skip_norm_infer)
    _op.lower(lambda node, builder, rms=_rms: _skip_norm_lower(node, builder, rms))
    _op.grad(lambda node, graph, *dy, rms=_rms: _skip_norm_grad(node, graph, rms, *dy))
