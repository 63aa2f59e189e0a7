"""Quantized products and convolutions of ONNX and com.microsoft.

Sums stay integers until they are rounded once, as in onnxruntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT32, INT64, MINIFLOATS, UINT8
from ...declare.op import MS, Op, Weight, one_number, one_type, same_shape, takes

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def zero_point(node: BoundNode, graph: Binder, i: int, like: int) -> Value:
    """Input i; where it is absent, 0 of the type of input `like`."""
    return node.inputs[i] if node.has(i) else graph.constant(node.inputs[like].dtype, [], [0])


def scalar(graph: Binder, v: Value) -> Value:
    """A tensor of one element as a scalar; others as they are."""
    return (
        graph.op("Reshape", v, graph.constant(INT64, [0], []))
        if v.rank and one_number(v.shape)
        else v
    )


def _requantized(
    node: BoundNode, graph: Binder, sums: Value, factor: Value, i: int, like: int
) -> Value:
    """float32 sums times a factor, rounded, with zero point i; see zero_point."""
    return graph.op(
        "QuantizeLinear",
        graph.op("Mul", sums, factor),
        graph.constant(FLOAT, [], [1.0]),
        zero_point(node, graph, i, like),
    )


def _factor(node: BoundNode, graph: Binder, a: int, b: int, y: int | None = None) -> Value:
    """The product of the scales that are inputs a and b, divided by that of the output, input y."""
    factor = graph.op("Mul", node.inputs[a], node.inputs[b])
    return graph.op("Div", factor, node.inputs[y]) if y is not None else factor


# ---- products ----
matmul = Op("QLinearMatMul", weight=Weight(3, quantized=True))


@matmul.decompose
def matmul_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    one_type(node, 0, 2)
    one_type(node, 3, 5)
    if node.inputs[0].dtype in MINIFLOATS or node.inputs[3].dtype in MINIFLOATS:
        return [_float8_matmul(node, graph)]
    scale, columns = node.inputs[4].shape, node.inputs[3].shape[-1]
    if one_number(node.inputs[1].shape) and (one_number(scale) or same_shape(scale, [columns])):
        return [
            graph.op(
                "IntegerMatMul",
                node.inputs[0],
                node.inputs[2],
                node.inputs[3],
                node.inputs[5],
                None,
                None,
                _factor(node, graph, 1, 4, 6),
                node.inputs[7],
                domain="edgewise",
                y_type=node.inputs[7].dtype,
            )
        ]
    sums = graph.op("MatMulInteger", node.inputs[0], node.inputs[3], node.inputs[2], node.inputs[5])
    sums = graph.op("Cast", sums, to=FLOAT)
    factor = scalar(graph, _factor(node, graph, 1, 4, 6))
    return [_requantized(node, graph, sums, factor, 7, 0)]


def _float8_matmul(node: BoundNode, graph: Binder) -> Value:
    """The product in float32: 8-bit floats have no integer sums."""
    a, w = (
        graph.op(
            "DequantizeLinear",
            *node.inputs[i : i + 3],
            axis=max(node.inputs[i].rank - 2, 0) if i == 0 else node.inputs[i].rank - 1,
        )
        for i in (0, 3)
    )
    y = graph.op("MatMul", a, w)
    return graph.op("QuantizeLinear", y, node.inputs[6], node.inputs[7], axis=max(y.rank - 2, 0))


# Inputs: a, its scale and zero point, b, its scale and zero point, an int32 bias with the scale
# a * b, the output's scale and zero point. Without the output's scale the output is float32.
gemm = Op("QGemm", MS)


@gemm.decompose
def gemm_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    one_type(node, 0, 2)
    one_type(node, 3, 5)
    a, b = (
        graph.op("Transpose", v, perm=[1, 0]) if node.attr(name, 0) else v
        for v, name in ((node.inputs[0], "transA"), (node.inputs[3], "transB"))
    )
    factor, alpha, bias, columns = (
        graph.op("Mul", node.inputs[1], node.inputs[4]),
        node.attr("alpha", 1.0),
        node.input(6),
        b.shape[1],
    )
    if alpha != 1.0:
        factor = graph.op("Mul", graph.constant(FLOAT, [], [alpha]), factor)
    if node.has(7):
        factor = graph.op("Div", factor, node.inputs[7])
    y_type = node.inputs[8].dtype if node.has(8) else node.inputs[0].dtype if node.has(7) else FLOAT
    if (one_number(factor.shape) or same_shape(factor.shape, [columns])) and (
        bias is None or same_shape(bias.shape, [columns])
    ):
        return [
            graph.op(
                "IntegerMatMul",
                a,
                node.inputs[2],
                b,
                node.inputs[5],
                bias,
                None,
                factor,
                node.input(8),
                domain="edgewise",
                y_type=y_type,
            )
        ]
    sums = graph.op("MatMulInteger", a, b, node.inputs[2], node.inputs[5])
    sums = graph.op("Cast", graph.op("Add", sums, bias) if bias is not None else sums, to=FLOAT)
    if node.has(7):
        return [_requantized(node, graph, sums, scalar(graph, factor), 8, 0)]
    return [graph.op("Mul", sums, scalar(graph, factor))]


to_float = Op("MatMulIntegerToFloat", MS)  # inputs: a, b, their scales, their zero points, a bias


@to_float.decompose
def to_float_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    one_type(node, 0, 4)
    one_type(node, 1, 5)
    zeros = [*node.inputs, None, None][4:6]
    sums = graph.op("MatMulInteger", *node.inputs[:2], *zeros)
    sums = graph.op("Cast", sums, to=FLOAT)
    y = graph.op("Mul", sums, scalar(graph, _factor(node, graph, 2, 3)))
    return [graph.op("Add", y, node.inputs[6]) if node.has(6) else y]


dynamic = Op("DynamicQuantizeMatMul", MS)  # inputs: float32 a, b, b's scale and zero point, a bias


@dynamic.decompose
def dynamic_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    a, scale, zero = graph.op("DynamicQuantizeLinear", node.inputs[0], outputs=3)
    sums = graph.op("MatMulInteger", a, node.inputs[1], zero, node.input(3))
    sums = graph.op("Cast", sums, to=FLOAT)
    y = graph.op("Mul", sums, scalar(graph, graph.op("Mul", scale, node.inputs[2])))
    return [graph.op("Add", y, node.inputs[4]) if node.has(4) else y]


# ---- convolutions ----
conv_integer = Op("ConvInteger", weight=Weight(1, quantized=True))


@conv_integer.decompose
def conv_integer_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (UINT8, INT8), 0, 1)
    one_type(node, 0, 2)
    one_type(node, 1, 3)
    return [
        graph.op(
            "IntegerConv",
            node.inputs[0],
            node.input(2),
            node.inputs[1],
            node.input(3),
            domain="edgewise",
            **node.attrs,
        )
    ]


conv = Op("QLinearConv", weight=Weight(3, quantized=True))


@conv.decompose
def conv_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (UINT8, INT8), 0, 3)
    one_type(node, 0, 2)
    one_type(node, 3, 5)
    takes(node, (INT32,), 8)
    return [
        graph.op(
            "IntegerConv",
            node.inputs[0],
            node.inputs[2],
            node.inputs[3],
            node.inputs[5],
            node.input(8),
            None,
            _factor(node, graph, 1, 4, 6),
            node.inputs[7],
            domain="edgewise",
            y_type=node.inputs[7].dtype,
            **node.attrs,
        )
    ]
