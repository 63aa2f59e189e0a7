"""Quantized elementwise operators, pools, Softmax, Concat and Attention of com.microsoft: their
float32 operators between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...declare.dtypes import INT8, UINT8
from ...declare.op import MS, Op, axis_of, fail, product, takes
from .qlinear import scalar, zero_point

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _dequantized(node: BoundNode, graph: Binder, i: int) -> Value:
    """Inputs i to i + 2, a tensor with scale and zero point, as float32."""
    takes(node, (UINT8, INT8), i)
    zero = zero_point(node, graph, i + 2, i)
    return graph.op("DequantizeLinear", node.inputs[i], node.inputs[i + 1], zero)


def _quantized(node: BoundNode, graph: Binder, y: Value, i: int, like: int = 0) -> Value:
    """float32 y, quantized by the scale and zero point that are inputs i and i + 1; the type is
    that of input `like`.
    """
    return graph.op("QuantizeLinear", y, node.inputs[i], zero_point(node, graph, i + 1, like))


def _pointwise(name: str, compute: Callable[..., Value], inputs: int = 1) -> Op:
    """An operator on quantized inputs, each with a scale and a zero point, which those of the
    output follow.

    Args:
        compute: (node, graph, float32 Value of each input) -> float32 Value.
        inputs: how many tensors there are.
    """
    o = Op(name, MS)

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value]:
        values = [_dequantized(node, graph, 3 * i) for i in range(inputs)]
        return [_quantized(node, graph, compute(node, graph, *values), 3 * inputs)]

    return o


def _add(node: BoundNode, graph: Binder, a: Value, b: Value) -> Value:
    return graph.op("Add", a, b)


def _mul(node: BoundNode, graph: Binder, a: Value, b: Value) -> Value:
    return graph.op("Mul", a, b)


def _sigmoid(node: BoundNode, graph: Binder, x: Value) -> Value:
    return graph.op("Sigmoid", x)


def _leaky_relu(node: BoundNode, graph: Binder, x: Value) -> Value:
    return graph.op("LeakyRelu", x, alpha=node.attr("alpha", 0.01))


def _softmax(node: BoundNode, graph: Binder, x: Value) -> Value:
    """Before opset 13 over all dimensions from the axis on."""
    axis = node.attr("axis", -1)
    if node.attr("opset", 13) >= 13:
        return graph.op("Softmax", x, axis=axis)
    axis = axis_of(node, axis, x.rank)
    rows = graph.op(
        "Reshape", x, graph.ints([product(x.shape[:axis]), product(x.shape[axis:])]), allowzero=1
    )
    return graph.op(
        "Reshape", graph.op("Softmax", rows, axis=1), graph.ints([*x.shape]), allowzero=1
    )


def _channels_second(
    node: BoundNode, graph: Binder, x: Value, compute: Callable[[Value], Value]
) -> Value:
    """compute(x) with the channels as dimension 1, whatever the attribute channels_last."""
    if not node.attr("channels_last", 0):
        return compute(x)
    y = compute(graph.op("Transpose", x, perm=[0, x.rank - 1, *range(1, x.rank - 1)]))
    return graph.op("Transpose", y, perm=[0, *range(2, x.rank), 1])


def _global_pool(node: BoundNode, graph: Binder, x: Value) -> Value:
    return _channels_second(node, graph, x, lambda x: graph.op("GlobalAveragePool", x))


def _pool(node: BoundNode, graph: Binder, x: Value) -> Value:
    attrs = {k: v for k, v in node.attrs.items() if k != "channels_last"}
    return _channels_second(node, graph, x, lambda x: graph.op("AveragePool", x, **attrs))


add = _pointwise("QLinearAdd", _add, 2)
mul = _pointwise("QLinearMul", _mul, 2)
sigmoid = _pointwise("QLinearSigmoid", _sigmoid)
leaky_relu = _pointwise("QLinearLeakyRelu", _leaky_relu)
softmax = _pointwise("QLinearSoftmax", _softmax)
global_pool = _pointwise("QLinearGlobalAveragePool", _global_pool)
pool = _pointwise("QLinearAveragePool", _pool)

where = Op("QLinearWhere", MS)


@where.decompose
def where_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    x, y = (_dequantized(node, graph, i) for i in (1, 4))
    return [_quantized(node, graph, graph.op("Where", node.inputs[0], x, y), 7, 1)]


reduce_mean = Op("QLinearReduceMean", MS)  # either zero point may be absent


@reduce_mean.decompose
def reduce_mean_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    x = _dequantized(node, graph, 0)
    axes = node.attr("axes") or range(x.rank)
    axes = graph.ints([axis_of(node, a, x.rank) for a in axes])
    y = graph.op("ReduceMean", x, axes, keepdims=int(bool(node.attr("keepdims", 1))))
    return [_quantized(node, graph, y, 3)]


concat = Op("QLinearConcat", MS)  # inputs: the output's scale and zero point, then three per tensor


@concat.decompose
def concat_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    if len(node.inputs) % 3 != 2:
        fail(node, f"it has {len(node.inputs)} inputs")
    tensors = [_dequantized(node, graph, i) for i in range(2, len(node.inputs), 3)]
    y = graph.op("Concat", *tensors, axis=node.attr("axis", 0))
    return [_quantized(node, graph, y, 0, 2)]


attention = Op("QAttention", MS)


@attention.decompose
def attention_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """com.microsoft's Attention with a quantized input and quantized weights."""
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = [*node.inputs, *[None] * 9][:9]
    takes(node, (UINT8, INT8), 0, 1)
    x = graph.op(
        "DequantizeLinear",
        x,
        scalar(graph, x_scale),
        *([scalar(graph, x_zero)] if x_zero is not None else []),
    )
    w = graph.op(
        "DequantizeLinear",
        w,
        scalar(graph, w_scale),
        *([scalar(graph, w_zero)] if w_zero is not None else []),
        axis=1,
    )
    y = graph.op(
        "Attention",
        x,
        w,
        bias,
        mask,
        past,
        domain=MS,
        outputs=2 if node.wants(1) else 1,
        **node.attrs,
    )
    return y if isinstance(y, list) else [y]
