"""Products and convolutions of 8-bit integers: MatMulInteger, and the operators that ConvInteger,
QLinearMatMul and QLinearConv (qlinear.py) and passes/qdq.py are made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT32, UINT8
from ...declare.op import Epilogue, Op, Weight, fail, one_type, product
from ..convolution.convolution import weight_channels
from ..convolution.window import window
from ..product.contracts import ACTIVATION
from ..product.gemm_kernel import matmul_shape
from .integer_kernel import (
    Quantization,
    channels_last,
    count,
    emit_integer_product,
    out_channels_last,
    packed_integers,
    scratch_bytes,
)

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, Inferred, View
    from ..convolution.window import Window

# Inputs of IntegerMatMul and IntegerConv, most of them optional. Attributes: y_type, low, high, and
# activation. Bias and residual come from passes/epilogue.py.
A, A_ZERO, W, W_ZERO, SUM_BIAS, A_SCALE, FACTOR, Y_ZERO, BIAS, RESIDUAL = range(10)


def _quantization(node: BoundNode, builder: Builder) -> Quantization:
    values = [*node.inputs, *[None] * 10]
    return Quantization.of(
        builder,
        values[A],
        values[W],
        node.attr("y_type", INT32),
        values[A_ZERO],
        values[W_ZERO],
        values[SUM_BIAS],
        values[A_SCALE],
        values[FACTOR],
        values[Y_ZERO],
        node.attr("low", None),
        node.attr("high", None),
    )


def gives_float(node: BoundNode) -> bool:
    """Whether the output of an integer product is float32."""
    return node.outputs[0].dtype == FLOAT


matmul = Op(
    "IntegerMatMul",
    "edgewise",
    epilogue=Epilogue(bias=BIAS, residual=RESIDUAL, factors=(A, W), fits=gives_float),
)


@matmul.infer
def matmul_infer(node: BoundNode) -> Inferred:
    return [
        (node.attr("y_type", INT32), matmul_shape(node, node.inputs[A].shape, node.inputs[W].shape))
    ]


@matmul.lower
def matmul_lower(node: BoundNode, builder: Builder) -> None:
    quantization = _quantization(node, builder)
    y = builder.out(node.outputs[0])
    emit_integer_product(
        node,
        builder,
        builder.view(node.inputs[A]),
        builder.view(node.inputs[W]),
        y,
        quantization,
        builder.contiguous(builder.view(node.inputs[BIAS])) if node.has(BIAS) else None,
        builder.view_like(node.inputs[RESIDUAL], y) if node.has(RESIDUAL) else None,
    )


conv = Op(
    "IntegerConv",
    "edgewise",
    epilogue=Epilogue(
        bias=BIAS,
        residual=RESIDUAL,
        factors=(A, W),
        fits=lambda node: gives_float(node) and not depthwise(node),
        bias_along_channels=True,
    ),
)


@conv.infer
def conv_infer(node: BoundNode) -> Inferred:
    x, w = node.inputs[A], node.inputs[W]
    groups, m, _ = weight_channels(node, x, w, 1)
    return [
        (
            node.attr("y_type", INT32),
            [x.shape[0], groups * m] + window(node, x.shape[2:], w.shape[2:]).y,
        )
    ]


def depthwise(node: BoundNode) -> bool:
    """Whether a convolution can be computed by the depthwise kernel: one channel per group, enough
    groups, and no float epilogue.
    """
    w = node.inputs[W]
    return (
        node.attr("group", 1) == w.shape[0] >= 16
        and w.shape[1] == 1
        and product(w.shape[2:]) <= 64
        and not node.has(BIAS)
        and not node.has(RESIDUAL)
        and "activation" not in node.attrs
    )


@conv.lower
def conv_lower(node: BoundNode, builder: Builder) -> None:
    xv, wv = node.inputs[A], node.inputs[W]
    win, (groups, m, c) = window(node, xv.shape[2:], wv.shape[2:]), weight_channels(node, xv, wv, 1)
    if product(node.outputs[0].shape) == 0:
        builder.out(node.outputs[0])
        return
    quantization = _quantization(node, builder)
    quantization.check_channels(node, groups * m, xv.rank - 2)
    x, y, w = (
        channels_last(builder, builder.view(xv)),
        out_channels_last(builder, node.outputs[0]),
        builder.contiguous(builder.view(wv)),
    )
    quantization.operands.update(a=x, y=y)
    if depthwise(node):
        taps = product(wv.shape[2:])
        builder.emit(
            "integer_depthwise",
            {
                **quantization.operands,
                "w": builder.contiguous(w.reshape([groups, taps]).transpose([1, 0])),
            },
            batch=x.shape[0],
            channels=groups,
            **win.params(),
            **quantization.params,
        )
    else:
        _emit_conv(node, builder, w, win, (groups, m, c), quantization)


def _emit_conv(
    node: BoundNode,
    builder: Builder,
    w: View,
    win: Window,
    channels: tuple[int, int, int],
    quantization: Quantization,
) -> None:
    """A convolution as one product for each group.

    Args:
        w: contiguous weights.
        channels: groups, output channels and input channels of each.
        quantization: with the operands a and y.
    """
    groups, m, c = channels
    taps = product(node.inputs[W].shape[2:])
    packed = packed_integers(builder, w, groups, m, taps, c, m * c * taps, c * taps, 1, taps)
    bias = builder.contiguous(builder.view(node.inputs[BIAS])) if node.has(BIAS) else None
    residual = (
        channels_last(builder, builder.view(node.inputs[RESIDUAL])) if node.has(RESIDUAL) else None
    )
    builder.emit(
        "integer_product",
        {**quantization.operands, "w": packed, "bias": bias, "residual": residual},
        items=groups,
        batch=node.inputs[A].shape[0],
        n=m,
        c=c,
        **win.params(),
        a_item=c,
        a_row=groups * c,
        w_each=1,
        y_item=m,
        y_row=groups * m,
        column_item=m,
        a_zeros=count(quantization.operands["a_zero"]),
        activation=ACTIVATION[node.attr("activation", "none")],
        **quantization.params,
        scratch_bytes=scratch_bytes(builder, taps * c),
    )


matmul_integer = Op("MatMulInteger", weight=Weight(1, quantized=True))


@matmul_integer.infer
def matmul_integer_infer(node: BoundNode) -> Inferred:
    a, w = node.inputs[:2]
    if a.dtype not in (UINT8, INT8) or w.dtype not in (UINT8, INT8):
        fail(node, f"it takes 8-bit integers, not {a} and {w}")
    one_type(node, 0, 2)
    one_type(node, 1, 3)
    return [(INT32, matmul_shape(node, a.shape, w.shape))]


@matmul_integer.lower
def matmul_integer_lower(node: BoundNode, builder: Builder) -> None:
    a, w, a_zero, w_zero = [*node.inputs, None, None][:4]
    emit_integer_product(
        node,
        builder,
        builder.view(a),
        builder.view(w),
        builder.out(node.outputs[0]),
        Quantization.of(builder, a, w, INT32, a_zero, w_zero),
    )
