"""QuantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import (
    BFLOAT16,
    E8M0,
    FLOAT,
    FLOAT16,
    INT2,
    INT4,
    INT8,
    INT16,
    INT32,
    MINIFLOATS,
    NAME,
    RANGE,
    UINT2,
    UINT4,
    UINT8,
    UINT16,
)
from ...declare.op import Op, fail, product, takes, unsupported
from .scales import dense_input, per_element, scale_layout

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Inferred, Value

KERNEL_TYPES = (UINT8, INT8, UINT16, INT16)  # that the kernel quantizes to
QUANTIZED = {*KERNEL_TYPES, UINT4, INT4, UINT2, INT2, *MINIFLOATS} - {E8M0}

dynamic_quantize = Op("DynamicQuantizeLinear")


@dynamic_quantize.infer
def dynamic_quantize_infer(node: BoundNode) -> Inferred:
    if node.inputs[0].dtype != FLOAT:
        fail(node, f"it quantizes float32, not {node.inputs[0]}")
    return [(UINT8, list(node.inputs[0].shape)), (FLOAT, []), (UINT8, [])]


@dynamic_quantize.lower
def dynamic_quantize_lower(node: BoundNode, builder: Builder) -> None:
    x, order = builder.dense(builder.view(node.inputs[0]))
    q, scale, zero = [*node.outputs, None, None][:3]
    y = builder.out_in_order(q, order) if q is not None else builder.temp(UINT8, x.shape)
    scale, zero = (
        builder.out(o) if o is not None else builder.temp(t, [])
        for o, t in ((scale, FLOAT), (zero, UINT8))
    )
    if product(x.shape) == 0:  # whatever its range is: as onnxruntime writes it
        builder.fill(scale, 1.0)
        builder.fill(zero, 0)
        return
    builder.emit(
        "dynamic_quantize", {"x": x, "y": y, "scale": scale, "zero": zero}, n=product(x.shape)
    )


def _rounded(graph: Binder, v: Value, dtype: int) -> Value:
    """float32 v, rounded to a half type's precision where dtype is one."""
    return graph.op("Cast", graph.narrow(v, dtype), to=FLOAT) if dtype in (FLOAT16, BFLOAT16) else v


quantize = Op("QuantizeLinear")


def _quantized_type(node: BoundNode) -> int:
    """The element type of the output: that of the zero point, else the attribute's, else uint8."""
    dtype = node.inputs[2].dtype if node.has(2) else (node.attr("output_dtype", 0) or UINT8)
    if node.has(2) and node.attr("output_dtype", 0) not in (0, dtype):
        fail(
            node,
            f"its zero point is {node.inputs[2]}, its output_dtype"
            f" {NAME.get(node.attr('output_dtype', 0))}",
            "Quantize the model again.",
        )
    if dtype not in QUANTIZED:
        unsupported(node, f"quantizing to {NAME.get(dtype, dtype)}")
    return dtype


@quantize.decompose
def quantize_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """The formula, in elementwise operators, for types of less than 8 bits, for 8-bit floats and
    for division in half precision (attribute `precision`). For others there is a kernel.
    """
    x, scale, precision = node.inputs[0], node.inputs[1], node.attr("precision", 0)
    takes(node, (FLOAT, INT32), 0)
    takes(node, (FLOAT, INT32, E8M0), 1)
    dtype = _quantized_type(node)
    if precision not in (0, FLOAT, FLOAT16, BFLOAT16):
        fail(node, f"it divides in {NAME.get(precision, precision)}", "Quantize the model again.")
    if scale.dtype == FLOAT and dtype in KERNEL_TYPES and precision in (0, FLOAT):
        return None
    x, scale = (
        _rounded(graph, graph.op("Cast", v, to=FLOAT), precision)
        for v in (x, per_element(graph, node, scale))
    )
    q = _rounded(graph, graph.op("Div", x, scale), precision)
    zero = (
        per_element(graph, node, graph.op("Cast", node.inputs[2], to=FLOAT))
        if node.has(2) and node.inputs[2].numbers != [0] * product(node.inputs[2].shape)
        else None
    )
    if dtype not in RANGE:
        return [
            graph.op(
                "Cast",
                q if zero is None else graph.op("Add", q, zero),
                to=dtype,
                saturate=node.attr("saturate", 1),
            )
        ]
    q = graph.op("Round", q)
    low, high = (graph.constant(FLOAT, [], [float(v)]) for v in RANGE[dtype])
    return [
        graph.op(
            "Cast",
            graph.op("Clip", q if zero is None else graph.op("Add", q, zero), low, high),
            to=dtype,
        )
    ]


@quantize.infer
def quantize_infer(node: BoundNode) -> Inferred:
    scale_layout(node)
    return [(_quantized_type(node), list(node.inputs[0].shape))]


@quantize.lower
def quantize_lower(node: BoundNode, builder: Builder) -> None:
    outer, axis, inner, block = scale_layout(node)
    x, order = dense_input(builder, builder.cast(builder.view(node.inputs[0]), FLOAT), block)
    y = builder.out_in_order(node.outputs[0], order)
    builder.emit(
        "quantize",
        {
            "x": x,
            "scale": builder.contiguous(builder.view(node.inputs[1])),
            "zero": builder.contiguous(builder.view(node.inputs[2])) if node.has(2) else None,
            "y": y,
        },
        type=y.dtype,
        outer=outer,
        axis=axis,
        inner=inner,
        block=block,
    )
