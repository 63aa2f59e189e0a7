"""DequantizeLinear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import (
    BFLOAT16,
    E8M0,
    FLOAT,
    FLOAT16,
    INT4,
    INT8,
    INT16,
    INT32,
    NAME,
    UINT4,
    UINT8,
    UINT16,
)
from ...declare.op import Op, Weight, fail, one_type, product, takes, unsupported
from .quantize import QUANTIZED
from .scales import dense_input, per_element, scale_layout, sum_to_scale

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Gradients,
        Inferred,
        InputGradients,
        Value,
    )


# Bits of the element types that the kernel dequantizes.
KERNEL_BITS = {UINT4: 4, INT4: 4, UINT8: 8, INT8: 8, UINT16: 16, INT16: 16, INT32: 32}


dequantize = Op("DequantizeLinear", weight=Weight(0, quantized=True))


@dequantize.decompose
def dequantize_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """The formula, in elementwise operators, for floats and 2-bit integers. For other integers
    there is a kernel.
    """
    x, scale, zero = node.inputs[0], node.inputs[1], node.input(2)
    takes(node, (FLOAT, E8M0), 1)
    one_type(node, 0, 2)
    if x.dtype not in QUANTIZED and x.dtype != INT32:
        unsupported(node, f"dequantizing {x}")
    if node.attr("output_dtype", 0) not in (0, FLOAT, FLOAT16, BFLOAT16):
        fail(
            node,
            "its output_dtype is"
            f" {NAME.get(node.attr('output_dtype', 0), node.attr('output_dtype', 0))}",
            "ONNX has float32, float16 and bfloat16.",
        )
    if scale.dtype == E8M0:
        return [
            graph.op("DequantizeLinear", x, graph.op("Cast", scale, to=FLOAT), zero, **node.attrs)
        ]
    if x.dtype in KERNEL_BITS:
        return None
    v = graph.op("Cast", x, to=FLOAT)
    if zero is not None and zero.numbers != [0] * product(zero.shape):
        v = graph.op("Sub", v, per_element(graph, node, graph.op("Cast", zero, to=FLOAT)))
    return [graph.op("Mul", v, per_element(graph, node, scale))]


@dequantize.infer
def dequantize_infer(node: BoundNode) -> Inferred:
    scale_layout(node)
    return [(FLOAT, list(node.inputs[0].shape))]


@dequantize.lower
def dequantize_lower(node: BoundNode, builder: Builder) -> None:
    outer, axis, inner, block = scale_layout(node)
    x, order = dense_input(builder, builder.view(node.inputs[0]), block)
    y = builder.out_in_order(node.outputs[0], order)
    builder.emit(
        "dequantize",
        {
            "x": x,
            "scale": builder.contiguous(builder.view(node.inputs[1])),
            "zero": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
            "y": y,
        },
        type=x.dtype,
        bits=KERNEL_BITS[x.dtype],
        outer=outer,
        axis=axis,
        inner=inner,
        block=block,
    )


def from_zero(graph: Gradients, node: BoundNode) -> Value:
    """The quantized tensor minus its zero point, in float32."""
    q = graph.op("Cast", node.inputs[0], to=FLOAT)
    return (
        graph.sub(q, per_element(graph, node, graph.op("Cast", node.inputs[2], to=FLOAT)))
        if node.has(2)
        else q
    )


@dequantize.grad
def dequantize_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [
        None,
        (
            sum_to_scale(gradients, node, gradients.mul(dy, from_zero(gradients, node)))
            if gradients.wants(1)
            else None
        ),
    ]
