"""Operators of com.microsoft that ONNX has adopted since, most of them under the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import MS, Op, fail, one_number, product

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

expand_dims = Op("ExpandDims", MS)


@expand_dims.decompose
def expand_dims_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Unsqueeze."""
    if not one_number(node.inputs[1].shape):
        fail(node, f"its axis is {node.inputs[1]}; one number is expected")
    return [graph.op("Unsqueeze", node.inputs[0], graph.ints([node.need(1)[0]]))]


trilu = Op("Trilu", MS)


@trilu.decompose
def trilu_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    return [graph.op("Trilu", *node.inputs, upper=node.attr("upper", 1))]


gather_nd = Op("GatherND", MS)


@gather_nd.decompose
def gather_nd_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Its indices may also be int32."""
    return [graph.op("GatherND", node.inputs[0], graph.op("Cast", node.inputs[1], to=INT64))]


range_ = Op("Range", MS)


@range_.decompose
def range_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Its inputs may be vectors of one element; the step is optional."""
    start, limit, *delta = node.inputs
    step = delta[0] if delta else graph.constant(start.dtype, [], [1])
    return [graph.op("Range", *(graph.reshape(v, []) for v in (start, limit, step)))]


pad = Op("Pad", MS)


@pad.decompose
def pad_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The pads may be a matrix of one row."""
    pads = node.inputs[1]
    value = [graph.reshape(node.inputs[2], [])] if node.has(2) else []
    return [
        graph.op(
            "Pad",
            node.inputs[0],
            graph.reshape(pads, [product(pads.shape)]),
            *value,
            mode=node.attr("mode", "constant"),
        )
    ]


grid_sample = Op("GridSample", MS)


@grid_sample.decompose
def grid_sample_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The modes have the names of opset 16: bilinear, bicubic."""
    mode = node.attr("mode", "bilinear")
    return [
        graph.op(
            "GridSample",
            *node.inputs,
            mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
            padding_mode=node.attr("padding_mode", "zeros"),
            align_corners=node.attr("align_corners", 0),
        )
    ]


conv_transpose = Op("ConvTransposeWithDynamicPads", MS, half=[1])


@conv_transpose.decompose
def conv_transpose_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """ConvTranspose with the pads as input 2 instead of an attribute."""
    kept = ("group", "strides", "dilations", "output_padding", "kernel_shape", "auto_pad")
    return [
        graph.op(
            "ConvTranspose",
            node.inputs[0],
            node.inputs[1],
            *node.inputs[3:4],
            pads=list(node.need(2)),
            **{k: v for k, v in node.attrs.items() if k in kept},
        )
    ]


# Quantizers write these two for 16-bit integers before opset 21.
quantize_linear = Op("QuantizeLinear", MS)
dequantize_linear = Op("DequantizeLinear", MS)


@quantize_linear.decompose
@dequantize_linear.decompose
def quantization_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    return [graph.op(node.op, *node.inputs, axis=node.attr("axis", 1))]
