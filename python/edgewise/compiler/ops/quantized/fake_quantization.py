"""Quantization in training: rounded values whose gradients ignore the rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, RANGE
from ...declare.op import MS, Op, like, takes
from .dequantize import dequantize_infer, dequantize_lower, from_zero
from .scales import per_element, sum_to_scale

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


# DequantizeLinear of a q that QuantizeLinear (with the attribute dynamic: DynamicQuantizeLinear)
# computes from x, which passes/quantization.py replaces. Inputs: q, scale, zero or None, x, x_scale
# or None, x_zero or None. Gradients ignore the rounding: they flow to x where q is within its
# range, and to the scales as in LSQ (Esser et al. 2020).
through = Op("QuantizeDequantize", "edgewise")
through.infer(dequantize_infer)
through.lower(dequantize_lower)


@through.grad
def through_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    x, dynamic = node.inputs[3], node.attr("dynamic", 0)
    out: list[Value | None] = [None] * len(node.inputs)
    if gradients.wants(1):
        out[1] = sum_to_scale(gradients, node, gradients.mul(dy, from_zero(gradients, node)))
    if dynamic:  # the range is that of x: no element is outside
        out[3] = dy
        return out
    low, high = RANGE[node.inputs[0].dtype]
    scale = per_element(gradients, node, node.inputs[4])
    place = gradients.op("Round", gradients.div(x, scale))
    if node.has(5):
        place = gradients.add(
            place, per_element(gradients, node, gradients.op("Cast", node.inputs[5], to=FLOAT))
        )
    inside = gradients.op(
        "Cast",
        gradients.op(
            "Equal",
            place,
            gradients.op("Clip", place, gradients.number(low), gradients.number(high)),
        ),
        to=FLOAT,
    )
    dx = gradients.mul(dy, inside)
    if node.inputs[1] is not node.inputs[4]:
        dx = gradients.mul(dx, gradients.div(per_element(gradients, node, node.inputs[1]), scale))
    out[3] = dx
    if gradients.wants(4):
        out[4] = sum_to_scale(
            gradients, node, gradients.neg(gradients.mul(dx, gradients.div(x, scale)))
        )
    return out


# y, whose gradient flows to x instead. Inputs: y, x.
straight = Op("StraightThrough", "edgewise")


@straight.infer
def straight_infer(node: BoundNode) -> Inferred:
    return [like(node, 0)]


@straight.lower
def straight_lower(node: BoundNode, builder: Builder) -> None:
    builder.alias(node.outputs[0], builder.view(node.inputs[0]))


@straight.grad
def straight_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return [None, dy]


fake_quant = Op("FakeQuant", MS)


@fake_quant.decompose
def fake_quant_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """x rounded to multiples of the scale, and whether each element is within the range, as in
    onnxruntime's training builds. Inputs: x, scale, zero_point, all float32; attributes: quant_min
    (default 0), quant_max (default 255).
    """
    takes(node, (FLOAT,), 0, 1, 2)
    x, scale, zero = node.inputs[:3]
    low, high = (
        graph.constant(FLOAT, [], [float(node.attr(name, default))])
        for name, default in (("quant_min", 0), ("quant_max", 255))
    )
    place = graph.op("Add", graph.op("Div", x, scale), zero)
    rounded = graph.op(
        "StraightThrough",
        graph.op("Add", graph.op("Round", graph.op("Div", x, scale)), zero),
        place,
        domain="edgewise",
    )
    inside = graph.op(
        "And", graph.op("GreaterOrEqual", rounded, low), graph.op("LessOrEqual", rounded, high)
    )
    y = graph.op(
        "Mul",
        graph.op(
            "Sub", graph.op("Where", inside, rounded, graph.op("Clip", rounded, low, high)), zero
        ),
        scale,
    )  # Where lets gradients through at both ends of the range; Clip alone would not
    return [y, inside][: len(node.outputs)]
