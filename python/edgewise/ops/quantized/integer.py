"""Products and convolutions of bytes, in integers: what MatMulInteger, ConvInteger and QLinear*
(qlinear.py) and what passes/qdq.py finds come down to.

Images lie with their channels last between these ops: a view says so, and whoever wants another
order copies.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT32, RANGE, UINT8
from ...declare.op import Epilogue, Op, Weight, fail, most, one_type, product, unsupported
from ..convolution.convolution import _channels as channels_of
from ..convolution.window import window
from ..product.contracts import ACTIVATION
from ..product.gemm_kernel import emit_gemm, matmul_shape

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

A, A_ZERO, W, W_ZERO, SUM_BIAS, A_SCALE, FACTOR, Y_ZERO, BIAS, RESIDUAL = range(
    10
)  # inputs of both ops, most of them optional; attributes y_type, low, high, activation
SCRATCH = 1 << 18


def packed_bytes(n, k):
    """Of one item of packed weights."""
    return -(-n // 32) * 32 * (4 + -(-k // 4) * 4)


def _pack(builder: Builder, w, items, n, taps, c, item_stride, n_stride, tap_stride, c_stride):
    """w packed by pack_integer; once, where it is constant."""
    params = dict(
        items=items,
        n=n,
        taps=taps,
        c=c,
        type=w.dtype,
        item_stride=item_stride,
        n_stride=n_stride,
        tap_stride=tap_stride,
        c_stride=c_stride,
    )
    name = builder.constant_name(w.buffer)
    key = f"packed {name}[{w.offset}:{params}]"
    if name is not None and key in builder.laid_out:
        return builder.laid_out[key]
    was, builder.init = builder.init, builder.init or name is not None
    t = builder.temp(UINT8, [most(items) * packed_bytes(most(n), most(taps) * most(c))])
    if name is not None:
        t.buffer.key = hashlib.sha256(key.encode()).hexdigest()[:24]
        builder.laid_out[key] = t
    builder.emit("pack_integer", {"w": w, "y": t}, **params)
    builder.init = was
    return t


def _count(v):
    return 0 if v is None else product(v.shape)


def _operands(
    builder: Builder,
    a,
    w,
    y_type,
    a_zero=None,
    b_zero=None,
    sum_bias=None,
    a_scale=None,
    factor=None,
    y_zero=None,
    low=None,
    high=None,
):
    """(operands, parameters) that both kernels have in common, from Values."""
    values = {
        "a_zero": a_zero,
        "b_zero": b_zero,
        "sum_bias": sum_bias,
        "a_scale": a_scale,
        "factor": factor,
        "y_zero": y_zero,
    }
    operands = {
        name: builder.contiguous(builder.view(v)) if v is not None else None
        for name, v in values.items()
    }
    least, most_ = RANGE[y_type] if y_type in (UINT8, INT8) else (0, 0)
    return operands, dict(
        a_type=a.dtype,
        b_type=w.dtype,
        y_type=y_type,
        b_zeros=_count(operands["b_zero"]),
        factors=_count(operands["factor"]),
        low=max(least, least if low is None else low),
        high=min(most_, most_ if high is None else high),
    )


def _operands_of(node: BoundNode, builder: Builder):
    values = [*node.inputs, *[None] * 10]
    return _operands(
        builder,
        values[A],
        values[W],
        node.attr("y_type", INT32),
        values[A_ZERO],
        values[W_ZERO],
        *values[SUM_BIAS:BIAS],
        node.attr("low", None),
        node.attr("high", None),
    )


def scratch_bytes(k):
    """Bytes of scratch for products that sum over k."""
    return max(SCRATCH, 32 * -(-most(k) // 4))


_MATRIX = {
    "x_size": [1, 1, 1],
    "y_size": [1, 1, 1],
    "taps": [1, 1, 1],
    "stride": [1, 1, 1],
    "dilation": [1, 1, 1],
    "pad": [0, 0, 0],
}


def gives_float(node: BoundNode):
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
    operands, params = _operands_of(node, builder)
    y = builder.out(node.outputs[0])
    emit_matmul(
        node,
        builder,
        builder.view(node.inputs[A]),
        builder.view(node.inputs[W]),
        y,
        operands,
        params,
        builder.contiguous(builder.view(node.inputs[BIAS])) if node.has(BIAS) else None,
        builder.view_like(node.inputs[RESIDUAL], y) if node.has(RESIDUAL) else None,
    )


def emit_matmul(
    node: BoundNode, builder: Builder, a, w, y, operands, params, bias=None, residual=None
):
    """y = (a - a_zero) @ (w - b_zero) and what follows. a [.., m, k], w [.., k, n] and y [.., m, n]
    views; operands and params as _operands makes them.
    """
    if len(a.shape) == 1:
        a, y = a.unsqueeze(0), y.unsqueeze(len(y.shape) - (1 if len(w.shape) > 1 else 0))
    if len(w.shape) == 1:
        w, y = w.unsqueeze(1), y.unsqueeze(len(y.shape))
    k, columns = w.shape[-2:]
    if isinstance(k, int) and k == 0:  # sums of nothing
        a, w = (
            v.broadcast(s)
            for v, s in (
                (builder.const_bytes(bytes([0]), a.dtype, [1] * len(a.shape)), a.shape[:-1] + [1]),
                (
                    builder.const_bytes(bytes([0]), w.dtype, [1] * len(w.shape)),
                    w.shape[:-2] + [1, columns],
                ),
            )
        )
        operands, k = {**operands, "a_zero": None, "b_zero": None}, 1
    if product(w.shape[:-2]) == 1:
        w = w.drop_leading(len(w.shape) - 2)
        a, y = builder.as_rows(a, k), builder.as_rows(y, columns)
        residual = builder.as_rows(residual, columns) if residual is not None else None
    batch, m = y.shape[:-2], y.shape[-2]
    a = a.broadcast(batch + a.shape[-2:])
    if a.strides[-1] != 1 and k != 1 or min(a.strides) < 0:
        a = builder.contiguous(a)
    shared = len(w.shape) == 2
    w = w if shared else w.broadcast(batch + w.shape[-2:])
    if min(w.strides) < 0:
        w = builder.contiguous(w)
    dims, strides = builder.merge_dims(
        batch, [v.strides[:-2] for v in ((a, y) if shared else (a, y, w))]
    )
    if len(dims) > 1:
        a, w = builder.contiguous(a), w if shared else builder.contiguous(w)
        dims, strides = builder.merge_dims(
            batch, [v.strides[:-2] for v in ((a, y) if shared else (a, y, w))]
        )
    items, (a_item, y_item, *w_item) = (
        (dims[0], [s[0] for s in strides]) if dims else (1, [0, 0] + [0] * (not shared))
    )
    zeros = operands["a_zero"]
    if (
        _count(zeros) > 1
        and (_count(zeros) != m or items != 1)
        or params["b_zeros"] > 1
        and params["b_zeros"] != columns
        or params["factors"] > 1
        and params["factors"] != columns
    ):
        unsupported(
            node, "zero points or scales that are neither one nor one for each row or column"
        )
    packed = _pack(
        builder,
        w,
        1 if shared else items,
        columns,
        1,
        k,
        0 if shared else w_item[0],
        w.strides[-1] if columns != 1 else 0,
        0,
        w.strides[-2] if k != 1 else 0,
    )
    builder.emit(
        "integer_product",
        {**operands, "a": a, "w": packed, "bias": bias, "residual": residual, "y": y},
        items=items,
        batch=m,
        n=columns,
        c=k,
        **_MATRIX,
        a_item=a_item,
        a_row=a.strides[-2] if m != 1 else k,
        w_each=int(not shared),
        y_item=y_item,
        y_row=y.strides[-2] if m != 1 else columns,
        column_item=0,
        a_zeros=_count(zeros),
        activation=ACTIVATION[node.attr("activation", "none")],
        **params,
        scratch_bytes=scratch_bytes(k),
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
    groups, m, _ = channels_of(node, x, w, 1)
    return [
        (
            node.attr("y_type", INT32),
            [x.shape[0], groups * m] + window(node, x.shape[2:], w.shape[2:]).y,
        )
    ]


def channels_last(builder: Builder, v):
    """A view [batch, channels, ...] as [batch, ..., channels], laid out in this order."""
    return builder.contiguous(v.transpose([0, *range(2, len(v.shape)), 1]))


def out_channels_last(builder: Builder, value):
    """A new buffer for an output [batch, channels, ...], as [batch, ..., channels]."""
    return builder.out_in_order(value, [0, *range(2, len(value.shape)), 1])


@conv.lower
def conv_lower(node: BoundNode, builder: Builder) -> None:
    xv, wv = node.inputs[A], node.inputs[W]
    win, (groups, m, c) = window(node, xv.shape[2:], wv.shape[2:]), channels_of(node, xv, wv, 1)
    if product(node.outputs[0].shape) == 0:
        builder.out(node.outputs[0])
        return
    operands, params = _operands_of(node, builder)
    if (
        _count(operands["a_zero"]) > 1
        or params["b_zeros"] not in (0, 1, groups * m)
        or params["factors"] not in (0, 1, groups * m)
    ):
        unsupported(node, "zero points or scales that are neither one nor one for each channel")
    x, y, w, taps = (
        channels_last(builder, builder.view(xv)),
        out_channels_last(builder, node.outputs[0]),
        builder.contiguous(builder.view(wv)),
        product(wv.shape[2:]),
    )
    operands.update(a=x, y=y)
    if depthwise(node):
        w = builder.contiguous(w.reshape([groups, taps]).transpose([1, 0]))
        builder.emit(
            "integer_depthwise",
            {**operands, "w": w},
            batch=x.shape[0],
            channels=groups,
            **win.params(),
            **params,
        )
        return
    packed = _pack(builder, w, groups, m, taps, c, m * c * taps, c * taps, 1, taps)
    bias = builder.contiguous(builder.view(node.inputs[BIAS])) if node.has(BIAS) else None
    residual = (
        channels_last(builder, builder.view(node.inputs[RESIDUAL])) if node.has(RESIDUAL) else None
    )
    builder.emit(
        "integer_product",
        {**operands, "w": packed, "bias": bias, "residual": residual},
        items=groups,
        batch=x.shape[0],
        n=m,
        c=c,
        **win.params(),
        a_item=c,
        a_row=groups * c,
        w_each=1,
        y_item=m,
        y_row=groups * m,
        column_item=m,
        a_zeros=_count(operands["a_zero"]),
        activation=ACTIVATION[node.attr("activation", "none")],
        **params,
        scratch_bytes=scratch_bytes(taps * c),
    )


def depthwise(node: BoundNode):
    """Whether a convolution has one channel per group, and enough of them for its kernel, which has
    no float epilogue.
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


matmul_integer = Op("MatMulInteger", weight=Weight(1, quantized=True))


@matmul_integer.infer
def matmul_integer_infer(node: BoundNode) -> Inferred:
    a, w = node.inputs[:2]
    if a.dtype not in (UINT8, INT8) or w.dtype not in (UINT8, INT8):
        fail(node, f"it wants 8-bit integers, not {a} and {w}")
    one_type(node, 0, 2)
    one_type(node, 1, 3)
    return [(INT32, matmul_shape(node, a.shape, w.shape))]


@matmul_integer.lower
def matmul_integer_lower(node: BoundNode, builder: Builder) -> None:
    a, w, a_zero, w_zero = [*node.inputs, None, None][:4]
    emit_matmul(
        node,
        builder,
        builder.view(a),
        builder.view(w),
        builder.out(node.outputs[0]),
        *_operands(builder, a, w, INT32, a_zero, w_zero),
    )


# (x, a, a_scale, a_zero, B, b_scale, b_zero or None), made by passes/quantization.py of
# DynamicQuantizeLinear (x to a), MatMulInteger, Cast and Mul: y = (a - a_zero) @ (B - b_zero) *
# a_scale * b_scale. B [k, n]; b_scale and b_zero of one element or n. x is what gradients go to.
# Bias [n] and residual behind them, and the attribute `activation`, come from passes/epilogue.py.
quantized_matmul = Op(
    "QuantizedMatMul",
    "edgewise",
    epilogue=Epilogue(bias=7, residual=8, factors=(1, 4), fits=gives_float),
    weight=Weight(4, "linear", quantized=True),
)


@quantized_matmul.infer
def quantized_matmul_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, matmul_shape(node, node.inputs[1].shape, node.inputs[4].shape))]


@quantized_matmul.lower
def quantized_matmul_lower(node: BoundNode, builder: Builder) -> None:
    _, a, a_scale, a_zero, w, w_scale, w_zero, bias, residual = [*node.inputs, None, None, None][:9]
    y = builder.out(node.outputs[0])
    operands, params = _operands(
        builder, a, w, FLOAT, a_zero, w_zero, a_scale=a_scale, factor=w_scale
    )
    emit_matmul(
        node,
        builder,
        builder.view(a),
        builder.view(w),
        y,
        operands,
        params,
        builder.contiguous(builder.view(bias)) if bias is not None else None,
        builder.view_like(residual, y) if residual is not None else None,
    )


@quantized_matmul.grad
def quantized_matmul_grad_rule(
    node: BoundNode, gradients: Gradients, dy: Value | None
) -> InputGradients:
    """Straight through the rounding of x, as in quantization-aware training (Bengio et al.
    2013).
    """
    return [gradients.op("QuantizedMatMulGrad", dy, *node.inputs[4:7], domain="edgewise")]


# (dy, B, b_scale, b_zero or None): dy @ ((B - b_zero) * b_scale)^T. B stays in bytes: scales go to
# dy, zero points to a sum over its rows.
quantized_matmul_grad = Op("QuantizedMatMulGrad", "edgewise")


@quantized_matmul_grad.infer
def quantized_matmul_grad_infer(node: BoundNode) -> Inferred:
    return [(FLOAT, node.inputs[0].shape[:-1] + [node.inputs[1].shape[0]])]


@quantized_matmul_grad.lower
def quantized_matmul_grad_lower(node: BoundNode, builder: Builder) -> None:
    dy, w, scale = node.inputs[:3]
    t = builder.temp(FLOAT, dy.shape)
    builder.emit_binary("mul", builder.view(dy), builder.view(scale), t, FLOAT)
    t, y, shift = builder.as_rows(t), builder.as_rows(builder.out(node.outputs[0])), None
    zero = node.inputs[3] if node.has(3) else None
    if zero is not None and not (zero.numbers is not None and not any(zero.numbers)):
        shift, each = builder.temp(FLOAT, [t.shape[0], 1]), builder.cast(builder.view(zero), FLOAT)
        emit_gemm(
            builder,
            t,
            (
                each.broadcast([t.shape[1]]).unsqueeze(1)
                if product(zero.shape) == 1
                else each.reshape([t.shape[1], 1])
            ),
            shift,
        )
    emit_gemm(builder, t, builder.view(w).transpose([1, 0]), y, bias=shift, beta=-1.0)
