"""Conv, ConvTranspose, their gradients, and onnxruntime's FusedConv."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...declare.dtypes import BFLOAT16, FLOAT, FLOAT16
from ...declare.op import MS, Epilogue, Op, Weight, fail, product, takes, unsupported
from ...declare.symbolic import registers_of
from ..product.contracts import ACTIVATION
from ..product.gemm_kernel import emit_gemm
from .window import Window, transposed_window, window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Gradients,
        Inferred,
        InputGradients,
        Operands,
        Value,
        View,
    )


def weight_channels(node: BoundNode, x: Value, w: Value, of_w: int) -> tuple[int, int, int]:
    """(groups, m, c) of w [groups * m, c, ...].

    Args:
        of_w: The dimension of w that the channels of x are: 1 in Conv, 0 in ConvTranspose.
    """
    if x.rank < 3 or w.rank != x.rank:
        fail(
            node,
            f"its input is {x} and its weights are {w}; [batch, channels, ...] and weights of as"
            " many dimensions are expected",
        )
    groups = node.attr("group", 1)
    if groups < 1 or w.shape[0] % groups or x.shape[1] != w.shape[of_w] * (groups if of_w else 1):
        fail(node, f"{x}, {w} and {groups} groups are incompatible")
    return groups, w.shape[0] // groups, w.shape[1]


def _emit(
    builder: Builder,
    kernel: str,
    operands: Operands,
    win: Window,
    batch: int,
    channels: tuple[int, int, int],
    x_batch: int,
    **params: int,
) -> None:
    groups, m, c = channels
    builder.emit(
        kernel,
        operands,
        batch=batch,
        groups=groups,
        m=m,
        c=c,
        x_batch=x_batch,
        **win.params(),
        **params,
    )


def _x_view(builder: Builder, value: Value) -> tuple[View, int]:
    """(view with contiguous channels, stride of the batch)."""
    v = builder.view(value)
    v = v if v.plain_from(1) and v.strides[0] >= 0 else builder.contiguous(v)
    return v, v.strides[0] if v.shape[0] != 1 else product(v.shape[1:])


# Types of weights, and the fewest halves that stay halves in memory: fewer become float32 once,
# because a step of each run costs more than they take.
_WEIGHTS = (FLOAT, FLOAT16, BFLOAT16)
MIN_HALVES = 1 << 15


def _stay_halves(builder: Builder, w: View) -> bool:
    """Whether constant weights stay halves in memory, and are widened by a step of each run, which
    writes to memory that the weights of all convolutions share.
    """
    return w.dtype != FLOAT and builder.is_constant(w.buffer) and product(w.shape) >= MIN_HALVES


def _floats(builder: Builder, w: View) -> View:
    """Weights as float32."""
    if w.dtype == FLOAT:
        return w
    key = "floats", w.layout
    if key not in builder.laid_out:
        was = builder.init
        builder.init = was or builder.is_constant(w.buffer) and not _stay_halves(builder, w)
        builder.laid_out[key] = builder.cast(w, FLOAT)
        builder.init = was
    return builder.laid_out[key]


# Input 3 (residual) and the attribute `activation` are added by passes/epilogue.py.
conv = Op(
    "Conv",
    half=[1],
    file_inputs=3,
    epilogue=Epilogue(bias=2, residual=3, bias_along_channels=True),
    weight=Weight(1, "conv"),
    parameters=(1, 2),
)


@conv.infer
def conv_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 2)
    takes(node, _WEIGHTS, 1)
    x, w = node.inputs[:2]
    groups, m, _ = weight_channels(node, x, w, 1)
    if node.has(2) and list(node.inputs[2].shape) != [groups * m]:
        fail(node, f"bias {node.inputs[2]} does not fit {groups * m} channels")
    return [(FLOAT, [x.shape[0], groups * m] + window(node, x.shape[2:], w.shape[2:]).y)]


@conv.lower
def conv_lower(node: BoundNode, builder: Builder) -> None:
    xv, wv = node.inputs[:2]
    win, channels = window(node, xv.shape[2:], wv.shape[2:]), weight_channels(node, xv, wv, 1)
    y, w = builder.out(node.outputs[0]), builder.contiguous(builder.view(wv))
    x, x_batch = _x_view(builder, xv)
    bias = builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None
    residual = builder.view_like(node.inputs[3], y) if node.has(3) else None
    groups, m, c = channels
    if c == 0:
        fail(node, "its weights have no channels")
    activation = node.attr("activation", "none")
    if win.pointwise and groups == 1 and m > 4:
        x, y, *more = (
            v.reshape([v.shape[0], v.shape[1], product(v.shape[2:])])
            for v in (x, y, residual)
            if v is not None
        )
        emit_gemm(
            builder,
            _floats(builder, w).reshape([1, m, c]).broadcast([x.shape[0], m, c]),
            x,
            y,
            bias.unsqueeze(1) if bias is not None else None,
            more[0] if more else None,
            activation=activation,
        )
        return
    if groups == 1 and _worth_winograd(builder, w, win, x.shape[0], m, c):
        three = {k: v for k, v in win.params().items() if k in ("x_size", "y_size", "pad")}
        builder.emit(
            "conv_winograd",
            {
                "x": x,
                "u": _winograd_weights(builder, w, m, c),
                "bias": bias,
                "residual": residual,
                "y": y,
            },
            batch=x.shape[0],
            m=m,
            c=c,
            x_batch=x_batch,
            **three,
            activation=ACTIVATION[activation],
        )
        return
    _emit(
        builder,
        "conv",
        {"x": x, "w": _floats(builder, w), "bias": bias, "residual": residual, "y": y},
        win,
        x.shape[0],
        channels,
        x_batch,
        activation=ACTIVATION[activation],
    )


def _worth_winograd(builder: Builder, w: View, win: Window, batch: int, m: int, c: int) -> bool:
    """Whether the target uses Winograd's transform here: the weights must be constant, to be
    transformed only once, and the tensors large enough.
    """
    winograd = builder.target.lowering.winograd
    plain = (
        list(win.kernel) == [3, 3] and list(win.stride) == [1, 1] and list(win.dilation) == [1, 1]
    )
    return (
        winograd is not None
        and plain
        and registers_of([win.y]) is None
        and builder.is_constant(w.buffer)
        and winograd.includes(c, m, batch, win.y[0], win.y[1], _stay_halves(builder, w))
    )


def _winograd_weights(builder: Builder, w: View, m: int, c: int) -> View:
    """G w G' of every 3 x 3 kernel, [16, m, c]: computed once, by an init step. Of halves it is
    computed in each run, since it has 3.6 times as many bytes as they have.
    """
    key = "winograd", w.layout
    if key not in builder.laid_out:
        was = builder.init
        builder.init = was or not _stay_halves(builder, w)
        u = builder.laid_out[key] = builder.temp(FLOAT, [16, m * c])
        row = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
        both = [p * q for i in row for j in row for p in i for q in j]
        emit_gemm(
            builder,
            builder.const_bytes(struct.pack("<144f", *both), FLOAT, [16, 9]),
            w.reshape([m * c, 9]).transpose([1, 0]),
            u,
        )
        builder.init = was
    return builder.laid_out[key].reshape([16, m, c])


def _transposed(
    graph: Gradients, y: Value, w: Value, win: Window, groups: int, shape: Sequence[int]
) -> Value:
    """The ConvTranspose that reverses a window.

    Args:
        shape: The shape of the result, [batch, channels, ...].
    """
    attrs = win.attrs()
    whole = [
        (d - 1) * s + (k - 1) * dil + 1 - p - t
        for d, s, k, dil, p, t in zip(
            win.y, win.stride, win.kernel, win.dilation, win.pad, win.tail
        )
    ]
    extra = [d - o for d, o in zip(shape[2:], whole)]
    rank = len(extra)
    # where the last window ends before the padded end, more is cut off
    attrs["pads"] = attrs["pads"][:rank] + [t - min(e, 0) for t, e in zip(win.tail, extra)]
    return graph.op(
        "ConvTranspose", y, w, group=groups, output_padding=[max(e, 0) for e in extra], **attrs
    )


def _weight_grad(
    graph: Gradients, x: Value, dy: Value, win: Window, groups: int, w: Value
) -> Value:
    return graph.op(
        "ConvWeightGrad", x, dy, domain="edgewise", group=groups, **win.attrs(), shape=list(w.shape)
    )


def _bias_grad(graph: Gradients, dy: Value) -> Value:
    return graph.op("ReduceSum", dy, graph.ints([0, *range(2, dy.rank)]), keepdims=0)


@conv.grad
def conv_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    x, w = node.inputs[:2]
    win, groups = window(node, x.shape[2:], w.shape[2:]), node.attr("group", 1)
    return [
        _transposed(gradients, dy, w, win, groups, x.shape) if gradients.wants(0) else None,
        _weight_grad(gradients, x, dy, win, groups, w) if gradients.wants(1) else None,
        _bias_grad(gradients, dy) if gradients.wants(2) else None,
    ]


conv_transpose = Op("ConvTranspose", half=[1], parameters=(1, 2))


@conv_transpose.infer
def conv_transpose_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 2)
    takes(node, _WEIGHTS, 1)
    y, w = node.inputs[:2]
    groups, _, c = weight_channels(node, y, w, 0)
    if node.has(2) and list(node.inputs[2].shape) != [groups * c]:
        fail(node, f"bias {node.inputs[2]} does not fit {groups * c} channels")
    return [(FLOAT, [y.shape[0], groups * c] + transposed_window(node, y.shape[2:], w.shape[2:]).x)]


@conv_transpose.lower
def conv_transpose_lower(node: BoundNode, builder: Builder) -> None:
    yv, wv = node.inputs[:2]
    win, channels = (
        transposed_window(node, yv.shape[2:], wv.shape[2:]),
        weight_channels(node, yv, wv, 0),
    )
    x, w, y = (
        builder.out(node.outputs[0]),
        builder.contiguous(builder.view(wv)),
        builder.contiguous(builder.view(yv)),
    )
    bias = builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None
    groups, m, c = channels
    if win.pointwise and groups == 1 and c > 4 and m:
        x, y = (v.reshape([v.shape[0], v.shape[1], product(v.shape[2:])]) for v in (x, y))
        emit_gemm(
            builder,
            _floats(builder, w)
            .reshape([m, c])
            .transpose([1, 0])
            .unsqueeze(0)
            .broadcast([x.shape[0], c, m]),
            y,
            x,
            bias.unsqueeze(1) if bias is not None else None,
        )
        return
    if y.shape[0] == 0:
        return  # nothing to compute
    if product(y.shape) == 0 or product(w.shape) == 0:
        fail(node, "its inputs have no elements")
    if all(s == 1 for s in win.stride):  # a convolution with the reversed kernel, which is faster
        rank = len(win.kernel)
        reverse = w.reshape([groups, m, c, *win.kernel]).transpose([0, 2, 1, *range(3, 3 + rank)])
        for i, k in enumerate(win.kernel):
            reverse = reverse.slice(3 + i, k - 1, k, -1)
        back = [(k - 1) * dil - p for k, dil, p in zip(win.kernel, win.dilation, win.pad)]
        _emit(
            builder,
            "conv",
            {"x": y, "w": _floats(builder, builder.contiguous(reverse)), "bias": bias, "y": x},
            Window(win.y, win.x, win.kernel, win.stride, win.dilation, back, back),
            x.shape[0],
            (groups, c, m),
            product(y.shape[1:]),
            activation=0,
        )
        return
    _emit(
        builder,
        "conv_transpose",
        {"y": y, "w": _floats(builder, w), "bias": bias, "x": x},
        win,
        x.shape[0],
        channels,
        product(x.shape[1:]),
    )


@conv_transpose.grad
def conv_transpose_grad(node: BoundNode, gradients: Gradients, dx: Value) -> InputGradients:
    y, w = node.inputs[:2]
    win, groups = transposed_window(node, y.shape[2:], w.shape[2:]), node.attr("group", 1)
    exact = [
        (d - 1) * s + (k - 1) * dil + 1 - p - o
        for d, s, k, dil, p, o in zip(win.y, win.stride, win.kernel, win.dilation, win.pad, win.x)
    ]
    # with output_padding the last window ends before the end: a smaller pad in a convolution
    win.tail = exact
    dy = gradients.op("Conv", dx, w, group=groups, **win.attrs()) if gradients.wants(0) else None
    return [
        dy,
        _weight_grad(gradients, dx, y, win, groups, w) if gradients.wants(1) else None,
        _bias_grad(gradients, dx) if gradients.wants(2) else None,
    ]


# Inputs: x, dy. Output: dw of the attribute `shape`. The other attributes are those of Conv, with
# pads at the end that may be smaller.
weight_grad = Op("ConvWeightGrad", "edgewise")


@weight_grad.infer
def weight_grad_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, list(node.attr("shape")))]


def _weight_grad_window(node: BoundNode) -> Window:
    x, dy, shape = node.inputs[0], node.inputs[1], node.attr("shape")
    pads, rank = node.attr("pads"), x.rank - 2
    return Window(
        list(x.shape[2:]),
        list(dy.shape[2:]),
        shape[2:],
        node.attr("strides", []),
        node.attr("dilations", []),
        pads[:rank],
        pads[rank:],
    )


@weight_grad.lower
def weight_grad_lower(node: BoundNode, builder: Builder) -> None:
    win, groups, (m, c) = _weight_grad_window(node), node.attr("group", 1), node.attr("shape")[:2]
    x, x_batch = _x_view(builder, node.inputs[0])
    dw = builder.out(node.outputs[0])
    if product(dw.shape) and (product(x.shape) == 0 or product(node.inputs[1].shape) == 0):
        builder.fill(dw, 0.0)
        return
    # the sum is over items and positions: contiguous, they are one dimension of a matrix product
    dy = builder.contiguous(builder.view(node.inputs[1]).transpose([1, 0, *range(2, len(x.shape))]))
    _emit(
        builder,
        "conv_weight_grad",
        {"x": x, "dy": dy, "dw": dw},
        win,
        x.shape[0],
        (groups, m // groups, c),
        x_batch,
    )


@weight_grad.grad
def weight_grad_grad(node: BoundNode, gradients: Gradients, dw: Value) -> InputGradients:
    x, dy = node.inputs
    win, groups = _weight_grad_window(node), node.attr("group", 1)
    return [
        _transposed(gradients, dy, dw, win, groups, x.shape) if gradients.wants(0) else None,
        gradients.op("Conv", x, dw, group=groups, **win.attrs()) if gradients.wants(1) else None,
    ]


# Made by onnxruntime's optimizer: activation(conv + Z).
fused_conv = Op("FusedConv", MS, half=[1], parameters=(1, 2))

# Its activations, and what activation_params are.
_FUSED: dict[str, list[str]] = {
    "Relu": [],
    "Tanh": [],
    "Sigmoid": [],
    "LeakyRelu": ["alpha"],
    "HardSigmoid": ["alpha", "beta"],
    "Clip": ["min", "max"],
}


@fused_conv.decompose
def fused_conv_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    name = node.attr("activation", "")
    numbers = node.attr("activation_params") or []
    if (
        name not in _FUSED
        and name
        or type(numbers) is not list
        or len(numbers) != len(_FUSED.get(name, []))
    ):
        unsupported(node, f"the activation {name!r} with parameters {numbers}")
    attrs = {k: v for k, v in node.attrs.items() if k not in ("activation", "activation_params")}
    y = graph.op("Conv", *node.inputs[:3], **attrs)
    if node.has(3):
        y = graph.op("Add", y, node.inputs[3])
    if name == "Clip":
        return [graph.op("Clip", y, *(graph.constant(FLOAT, [], [v]) for v in numbers))]
    return [graph.op(name, y, **dict(zip(_FUSED[name], numbers))) if name else y]
