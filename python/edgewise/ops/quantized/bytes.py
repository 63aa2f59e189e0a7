"""Quantized tensors between products: sums and products of two, functions of one as a table of 256,
the largest of a window. What passes/qdq.py makes of float ops between DequantizeLinear and
QuantizeLinear.
"""

from __future__ import annotations

from ...declare.kernel import Kernel, read, write
from ..convolution.window import PARAMS, RULES, volume

Kernel(
    "integer_binary",
    {
        "n": "i32",
        "multiply": "i32",
        "sign": "i32",
        "a_type": "i32",
        "b_type": "i32",
        "y_type": "i32",
        "low": "i32",
        "high": "i32",
    },
    [
        read("a", 1, "n"),
        read("b", 1, "n"),
        read("a_scale", 4, "1"),
        read("a_zero", 1, "1", optional=True),
        read("b_scale", 4, "1"),
        read("b_zero", 1, "1", optional=True),
        read("y_scale", 4, "1"),
        read("y_zero", 1, "1", optional=True),
        write("y", 1, "n", inplace=("a", "b")),
    ],
    require=[
        "a_type in (2, 3)",
        "b_type in (2, 3)",
        "y_type in (2, 3)",
        "low >= -128",
        "low <= 255",
        "high >= -128",
        "high <= 255",
    ],
    empty=["n"],
    doc=(
        "y = round((a - a_zero) * a_scale + sign * (b - b_zero) * b_scale) / y_scale) + y_zero"
        " within low and high, or, with multiply, of the product of both."
    ),
)
Kernel(
    "byte_lookup",
    {"n": "i32"},
    [read("x", 1, "n"), read("table", 1, "256"), write("y", 1, "n", inplace=("x",))],
    empty=["n"],
    doc="y = table[x], x and table as unsigned bytes.",
)
Kernel(
    "integer_max_pool",
    {"batch": "i32", "channels": "i32", "type": "i32", **PARAMS},
    [
        read("x", 1, f"batch*{volume('x_size')}*channels"),
        write("y", 1, f"batch*{volume('y_size')}*channels"),
    ],
    require=[
        *RULES,
        "type in (2, 3)",
        f"batch*{volume('x_size')} <= 1073741824",
        f"batch*{volume('y_size')} <= 1073741824",
        "channels <= 1073741824",
    ],
    empty=["batch", "channels"],
    doc=(
        "y [batch, y_size, channels] = the maximum of the taps of each position that lie inside of"
        " x [batch, x_size, channels]; bytes, signed where type is int8."
    ),
)


# ---- ops
# ----------------------------------------------------------------------
from ...declare.dtypes import RANGE
from ...declare.op import Op, product

binary = Op(
    "IntegerBinary",
    "edgewise",
    # (a, scale, zero or None, b, scale, zero, y's scale, zero), a and b of one shape; attributes
    # how ("Add", "Sub" or "Mul"), y_type, low, high
)


@binary.infer
def binary_infer(node):
    return [(node.attr("y_type", 2), list(node.inputs[0].shape))]


@binary.lower
def binary_lower(node, builder):
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


lookup = Op("ByteLookup", "edgewise")  # (x, table [256]): table[x], where x counts as unsigned


@lookup.infer
def lookup_infer(node):
    return [(node.inputs[1].dtype, list(node.inputs[0].shape))]


@lookup.lower
def lookup_lower(node, builder):
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
