"""Biases of quantized products in units of their integer sums. ONNX lets a bias between
DequantizeLinear and QuantizeLinear have any scale, any zero point, or be a float.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from ..declare.dtypes import INT32
from ..ir import Value
from .rewrite import near

# A bias that is rounded to the integer sums' units may move an output by this part of its step.
BIAS_ERROR = 1 / 256
MAX_STEPS = 1 << 30  # so that a sum of products has as much room


def _all_numbers(v: Value) -> list[float] | None:
    """The numbers of a constant of any size, where no node computes it."""
    return v.tensor.numbers() if v.tensor is not None else v.numbers


def products(a: Value, b: Value, count: int) -> list[float] | None:
    """The products of two scales, of which b has one number or `count`; None where one is not
    known.
    """
    x, each = _all_numbers(a), _all_numbers(b)
    if x is None or each is None:
        return None
    return [x[0] * s for s in (each * count if len(each) == 1 else each)]


def bias_of_sums(
    bias: Value, factors: Sequence[float] | None, y_scale: Value | None
) -> Value | None:
    """A bias as int32 to add to the sums of a product; None where that would not be the same.

    Args:
        factors: scale of each column's sum; None: not known.
        y_scale: the scale that the output is quantized with; None: it is float32.
    """
    if factors is None:
        return None
    steps = _integer_bias(bias, factors)
    if steps is None and y_scale is not None:
        steps = _rounded_bias(bias, factors, y_scale)
    return steps


def _integer_bias(bias: Value, factors: Sequence[float]) -> Value | None:
    """The int32 tensor that a bias is dequantized from, if its zero point is 0 and its scale that
    of the integer sums: then it is a bias of the sums. None for any other, which ONNX allows too.
    """
    n = bias.producer
    if n is None or n.op != "DequantizeLinear" or n.attr("block_size", 0):
        return None
    if n.inputs[0].dtype != INT32 or n.has(2) and any(_all_numbers(n.inputs[2]) or [1]):
        return None
    scales = _all_numbers(n.inputs[1])
    if scales is None or len(scales) not in (1, len(factors)):
        return None
    scales = scales * len(factors) if len(scales) == 1 else scales
    # exporters multiply both scales in float32 or float64
    return n.inputs[0] if all(map(partial(near, rel=1e-6), scales, factors)) else None


def _float_bias(bias: Value) -> list[float] | None:
    """The numbers of a constant bias, perhaps dequantized; None where they are not known."""
    n = bias.producer
    if n is None:
        return _all_numbers(bias)
    if n.op != "DequantizeLinear" or n.attr("block_size", 0):
        return None
    q, scales, zeros = ([0] if v is None else _all_numbers(v) for v in (*n.inputs[:2], n.input(2)))
    if q is None or scales is None or zeros is None:
        return None
    scales, zeros = (v * len(q) if len(v) == 1 else v for v in (scales, zeros))
    return [(x - z) * s for x, s, z in zip(q, scales, zeros)]


def _rounded_bias(bias: Value, factors: Sequence[float], y_scale: Value) -> Value | None:
    """A bias in units of the integer sums, rounded; None where it is not known, does not fit in
    int32, or where rounding it moves an output by more than BIAS_ERROR of its steps.
    """
    numbers, step = _float_bias(bias), y_scale.scalar()
    if numbers is None or not step:
        return None
    steps = []
    for x, factor in zip(numbers, factors, strict=True):
        exact = x / factor if factor else math.inf
        if not abs(exact) < MAX_STEPS:
            return None
        if abs(exact - round(exact)) * abs(factor) > BIAS_ERROR * abs(step):
            return None
        steps.append(round(exact))
    return Value(f"{bias.name}~steps", INT32, [len(steps)], numbers=steps)
