"""The product of a dynamically quantized tensor and an 8-bit weight, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT
from ...declare.op import Epilogue, Op, Weight, one_number
from ..product.gemm_kernel import emit_gemm, matmul_shape
from .integer import gives_float
from .integer_kernel import Quantization, emit_integer_product

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )

# y = (a - a_zero) @ (B - b_zero) * a_scale * b_scale, which passes/quantization.py makes of
# DynamicQuantizeLinear (x to a), MatMulInteger, Cast and Mul. Inputs: x, a, a_scale, a_zero,
# B [k, n], b_scale, b_zero or None (both of one element or n), then a bias [n] and a residual;
# these two and the attribute `activation` come from passes/epilogue.py. Gradients flow to x.
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
    quantization = Quantization.of(
        builder, a, w, FLOAT, a_zero, w_zero, a_scale=a_scale, factor=w_scale
    )
    emit_integer_product(
        node,
        builder,
        builder.view(a),
        builder.view(w),
        y,
        quantization,
        builder.contiguous(builder.view(bias)) if bias is not None else None,
        builder.view_like(residual, y) if residual is not None else None,
    )


@quantized_matmul.grad
def quantized_matmul_grad_rule(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    """Straight through the rounding of x, as in quantization-aware training (Bengio et al.
    2013).
    """
    return [gradients.op("QuantizedMatMulGrad", dy, *node.inputs[4:7], domain="edgewise")]


# dy @ ((B - b_zero) * b_scale)^T. Inputs: dy, B, b_scale, b_zero or None. B stays in 8 bits: dy is
# multiplied by the scales, and its product with the zero points is subtracted from each row.
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
                if one_number(zero.shape)
                else each.reshape([t.shape[1], 1])
            ),
            shift,
        )
    emit_gemm(builder, t, builder.view(w).transpose([1, 0]), y, bias=shift, beta=-1.0)
