"""Operators on 8-bit quantized tensors: sums and products of two tensors, and functions as tables
of 256 elements.

passes/qdq.py makes them of float operators between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import RANGE
from ...declare.op import Op, product

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, Inferred

# Inputs: a, its scale, its zero point or None, b, its scale and zero point, the output's scale and
# zero point; a and b have one shape. Attributes: how ("Add", "Sub" or "Mul"), y_type, low, high.
binary = Op("IntegerBinary", "edgewise")


@binary.infer
def binary_infer(node: BoundNode) -> Inferred:
    return [(node.attr("y_type", 2), list(node.inputs[0].shape))]


@binary.lower
def binary_lower(node: BoundNode, builder: Builder) -> None:
    names = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero")
    operands = {
        name: builder.contiguous(builder.view(v)) if v is not None and name not in "ab" else None
        for name, v in zip(names, node.inputs)
    }
    operands["a"], order = builder.dense(builder.view(node.inputs[0]))
    other, its = builder.dense(builder.view(node.inputs[3]))
    operands["b"] = (
        other if its == order else builder.contiguous(builder.view(node.inputs[3]).transpose(order))
    )
    low, high = RANGE[node.attr("y_type", 2)]
    builder.emit(
        "integer_binary",
        {**operands, "y": builder.out_in_order(node.outputs[0], order)},
        n=product(node.outputs[0].shape),
        multiply=int(node.attr("how", "Add") == "Mul"),
        sign=-1 if node.attr("how", "Add") == "Sub" else 1,
        a_type=node.inputs[0].dtype,
        b_type=node.inputs[3].dtype,
        y_type=node.attr("y_type", 2),
        low=max(low, node.attr("low", low)),
        high=min(high, node.attr("high", high)),
    )


lookup = Op("ByteLookup", "edgewise")  # inputs: x, table [256]; table[x], with x as unsigned


@lookup.infer
def lookup_infer(node: BoundNode) -> Inferred:
    return [(node.inputs[1].dtype, list(node.inputs[0].shape))]


@lookup.lower
def lookup_lower(node: BoundNode, builder: Builder) -> None:
    x, order = builder.dense(builder.view(node.inputs[0]))
    builder.emit(
        "byte_lookup",
        {
            "x": x,
            "table": builder.contiguous(builder.view(node.inputs[1])),
            "y": builder.out_in_order(node.outputs[0], order),
        },
        n=product(node.outputs[0].shape),
    )
