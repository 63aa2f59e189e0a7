"""Convolutions and pooling with the channels as the last dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.op import MS, Op, Weight

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_POOL = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def _channels_second(
    node: BoundNode, graph: Binder, op: str, domain: str, kept: tuple[str, ...]
) -> Value:
    """An operator with its channels as dimension 1, between two transposes.

    Inputs 0 (x) and 3 (a summand of the output's shape) are [batch, ..., channels]; the weights
    have Conv's layout.

    Args:
        op, domain: of the operator.
        kept: names of the node's attributes that it takes.
    """

    def transposed(v: Value) -> Value:
        return graph.op("Transpose", v, perm=[0, v.rank - 1, *range(1, v.rank - 1)])

    inputs = [
        transposed(v) if i in (0, 3) and v is not None else v for i, v in enumerate(node.inputs)
    ]
    attrs = {k: v for k, v in node.attrs.items() if k in kept}
    y = graph.op(op, *inputs, domain=domain, **attrs)
    return graph.op("Transpose", y, perm=[0, *range(2, y.rank), 1])


conv = Op("NhwcConv", MS, half=[1])


@conv.decompose
def conv_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    return [_channels_second(node, graph, "Conv", "", _CONV)]


# Its weights have Conv's layout whatever the layout of x.
quantized_conv = Op("QLinearConv", MS, weight=Weight(3, quantized=True))


@quantized_conv.decompose
def quantized_conv_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """ONNX's QLinearConv, of which x and y may have the channels last."""
    attrs = {k: v for k, v in node.attrs.items() if k in _CONV}
    x, *others = node.inputs
    last = bool(node.attr("channels_last", 0))
    if last:
        x = graph.op("Transpose", x, perm=[0, x.rank - 1, *range(1, x.rank - 1)])
    y = graph.op("QLinearConv", x, *others, **attrs)
    return [graph.op("Transpose", y, perm=[0, *range(2, y.rank), 1]) if last else y]


fused_conv = Op("NhwcFusedConv", MS)


@fused_conv.decompose
def fused_conv_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    kept = (*_CONV, "activation", "activation_params")
    return [_channels_second(node, graph, "FusedConv", MS, kept)]


max_pool = Op("NhwcMaxPool", MS)


@max_pool.decompose
def max_pool_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    return [_channels_second(node, graph, "MaxPool", "", _POOL)]
