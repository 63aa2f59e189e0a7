"""Contracts of the kernels of quantized operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, FLOAT16, INT8, INT16, INT32, INT64, UINT8, UINT16
from ...declare.kernel import (
    BYTES,
    CImplementation,
    Cost,
    Kernel,
    packed,
    params,
    read,
    typed,
    write,
)
from ..convolution.window_rules import WINDOW, WINDOW_RULES
from ..product.contracts import ACTIVATION

Kernel(
    "integer_binary",
    params("n multiply sign a_type b_type y_type low high"),
    [
        read("a", typed("a_type", UINT8, INT8), "n"),
        read("b", typed("b_type", UINT8, INT8), "n"),
        read("a_scale", FLOAT, "1"),
        read("a_zero", "a_type", "1", optional=True),
        read("b_scale", FLOAT, "1"),
        read("b_zero", "b_type", "1", optional=True),
        read("y_scale", FLOAT, "1"),
        read("y_zero", typed("y_type", UINT8, INT8), "1", optional=True),
        write("y", "y_type", "n", inplace=["a", "b"]),
    ],
    require=["low >= -128", "low <= 255", "high >= -128", "high <= 255"],
    empty=["n"],
    doc=(
        "y = round(((a - a_zero) * a_scale + sign * (b - b_zero) * b_scale) / y_scale) + "
        "y_zero, clipped to [low, high]; with multiply, the product of both instead of the sum."
    ),
)

Kernel(
    "byte_lookup",
    params("n"),
    [
        read("x", (UINT8, INT8), "n"),
        read("table", (UINT8, INT8), "256"),
        write("y", (UINT8, INT8), "n", inplace=["x"]),
    ],
    empty=["n"],
    doc="y = table[x]; x is read as unsigned.",
)

Kernel(
    "integer_max_pool",
    params(f"batch channels type {WINDOW}"),
    [
        read("x", typed("type", UINT8, INT8), "batch, x_size, channels"),
        write("y", "type", "batch, y_size, channels"),
    ],
    require=[
        *WINDOW_RULES,
        "batch*volume(x_size) <= 1073741824",
        "batch*volume(y_size) <= 1073741824",
        "channels <= 1073741824",
    ],
    empty=["batch", "channels"],
    cost=Cost("batch*channels*volume(y_size)*volume(taps)"),
    doc=(
        "y [batch, y_size, channels]: the maximum over the taps of each position that are inside "
        "of x [batch, x_size, channels], in uint8 or int8."
    ),
)

Kernel(
    "pack_integer",
    params("items n taps c type item_stride n_stride tap_stride c_stride"),
    [
        read("w", (UINT8, INT8), "items:item_stride, n:n_stride, taps:tap_stride, c:c_stride"),
        write("y", UINT8, "items, ceil_div(n, 32), 32, 4 + ceil_div(taps * c, 4) * 4"),
    ],
    require=[
        "type in (2, 3)",
        "min(item_stride, n_stride, tap_stride, c_stride) >= 0",
        "taps*c <= 1073741824",
        "items*n <= 1073741824",
    ],
    empty=["items", "n", "taps", "c"],
    doc=(
        "Weights in the layout of integer_product: for each item the sums of n columns, and the "
        "columns, k = (tap, c), in panels; the order within panels depends on the machine."
    ),
)

Kernel(
    "integer_product",
    params(
        f"items batch n c {WINDOW} a_item a_row w_each y_item y_row column_item a_type "
        "b_type y_type a_zeros b_zeros factors low high activation scratch_bytes"
    ),
    [
        read("a", typed("a_type", UINT8, INT8), "items:a_item, batch * volume(x_size):a_row, c"),
        read(
            "w",
            UINT8,
            "(items - 1) * w_each + 1, ceil_div(n, 32), 32, 4 + ceil_div(volume(taps) * c, 4) * 4",
        ),
        read("a_zero", "a_type", "batch * volume(y_size) if a_zeros > 1 else 1", optional=True),
        read(
            "b_zero",
            typed("b_type", UINT8, INT8),
            "(items - 1) * column_item + n if b_zeros > 1 else 1",
            optional=True,
        ),
        read("sum_bias", INT32, "items:column_item, n", optional=True),
        read("a_scale", FLOAT, "1", optional=True),
        read("factor", FLOAT, "(items - 1) * column_item + n if factors > 1 else 1", optional=True),
        read("y_zero", typed("y_type", FLOAT, UINT8, INT8, INT32), "1", optional=True),
        read("bias", FLOAT, "items:column_item, n", optional=True),
        read("residual", FLOAT, "items:y_item, batch * volume(y_size):y_row, n", optional=True),
        write("y", "y_type", "items:y_item, batch * volume(y_size):y_row, n"),
    ],
    require=[
        *WINDOW_RULES,
        "low >= -128",
        "low <= 255",
        "high >= -128",
        "high <= 255",
        "min(a_item, a_row, y_item, y_row, column_item) >= 0",
        "min(w_each, 1) == w_each",
        "w_each >= 0",
        "volume(taps)*c <= 16777216",
        "items*batch*volume(y_size) <= 1073741824",
        "items*n <= 1073741824",
        "scratch_bytes >= 32*ceil_div(volume(taps)*c, 4)",
        "y_type == 1 or activation == 0",
        "distinct(items, y_item, batch*volume(y_size), y_row, n, 1)",
    ],
    enums={"activation": ACTIVATION},
    empty=["items", "batch", "n", "c"],
    cost=Cost("2*items*batch*n*c*volume(y_size)*volume(taps)", integer="True"),
    c=CImplementation(scratch="ceil_div(scratch_bytes, 4)", variants={"activation": "ACTIVATION"}),
    doc=(
        "For each item, y [batch * y_size, n] = (a - a_zero) @ (w - b_zero) + sum_bias, in "
        "int32. Row (b, o) of a is, for each tap k, the c bytes at a[b * x_size + o * stride + k "
        "* dilation - pad], with stride a_row between positions, and a_zero outside of a. y_type "
        "6: the sums; 1: activation(sums * a_scale * factor + bias) + residual; 2, 3: sums * "
        "a_scale * factor, rounded half to even, + y_zero, clipped to [low, high]. w: from "
        "pack_integer, shared by all items unless w_each. a_zeros, b_zeros, factors: the number "
        "of each (a_zeros: 1 or one for each row; others: 1 or n). column_item: stride between "
        "the columns of items."
    ),
)

Kernel(
    "integer_depthwise",
    params(f"batch channels {WINDOW} a_type b_type y_type b_zeros factors low high"),
    [
        read("a", typed("a_type", UINT8, INT8), "batch, x_size, channels"),
        read("w", typed("b_type", UINT8, INT8), "taps, channels"),
        read("a_zero", "a_type", "1", optional=True),
        read("b_zero", "b_type", "channels if b_zeros > 1 else 1", optional=True),
        read("sum_bias", INT32, "channels", optional=True),
        read("a_scale", FLOAT, "1", optional=True),
        read("factor", FLOAT, "channels if factors > 1 else 1", optional=True),
        read("y_zero", typed("y_type", FLOAT, UINT8, INT8, INT32), "1", optional=True),
        write("y", "y_type", "batch, y_size, channels"),
    ],
    require=[
        *WINDOW_RULES,
        "low >= -128",
        "low <= 255",
        "high >= -128",
        "high <= 255",
        "volume(taps) <= 64",
        "batch*volume(x_size) <= 1073741824",
        "batch*volume(y_size) <= 1073741824",
        "channels <= 268435456",
        "channels >= 16",
    ],
    empty=["batch"],
    cost=Cost("2*batch*channels*volume(y_size)*volume(taps)", integer="True"),
    c=CImplementation(scratch="ceil_div(channels, 16)*4*(9 + 4*ceil_div(volume(taps), 2))"),
    doc=(
        "The convolution of integer_product with one channel per group: y [batch, y_size, "
        "channels], a [batch, x_size, channels], w [taps, channels]."
    ),
)

Kernel(
    "dynamic_quantize",
    params("n"),
    [
        read("x", FLOAT, "n"),
        write("y", UINT8, "n"),
        write("scale", FLOAT, "1"),
        write("zero", UINT8, "1"),
    ],
    require=["n > 0"],
    grid="n",
    doc=(
        "ONNX DynamicQuantizeLinear: uint8 over the range of x, extended to 0; rounds half to even."
    ),
)

# The number of scales: one for each block along the axis, one, or one for each index of the axis.
_SCALES = "outer * ceil_div(axis, block) * inner if block > 0 else 1 if block < 0 else axis"

Kernel(
    "quantize",
    params("type outer axis inner block"),
    [
        read("x", FLOAT, "outer, axis, inner"),
        read("scale", FLOAT, _SCALES),
        read("zero", typed("type", UINT8, INT8, UINT16, INT16), _SCALES, optional=True),
        write("y", "type", "outer, axis, inner"),
    ],
    empty=["outer", "axis", "inner"],
    doc=(
        "ONNX QuantizeLinear of [outer, axis, inner]. block -1: one scale; 0: one for each index "
        "of the axis; > 0: one for each block along it. Rounds half to even and saturates."
    ),
)

Kernel(
    "dequantize",
    params("type bits outer axis inner block"),
    [
        read("x", packed("type"), "ceil_div(outer * axis * inner * bits, 8)"),
        read("scale", FLOAT, _SCALES),
        read("zero", packed("type"), f"ceil_div(({_SCALES}) * bits, 8)", optional=True),
        write("y", FLOAT, "outer, axis, inner"),
    ],
    require=[
        "type in (2, 3, 4, 5, 6, 21, 22)",
        "bits == (4 if type >= 21 else 8 * bytes_of(type))",
    ],
    empty=["outer", "axis", "inner"],
    doc=(
        "ONNX DequantizeLinear to float32; outer, axis, inner, block as in quantize. type: ONNX "
        "code of x (21 uint4, 22 int4: two in a byte, low nibble first)."
    ),
)

Kernel(
    "gather_quantized",
    params("bits count rows cols block index_type scale_type signed zeros"),
    [
        read("x", BYTES, "rows, ceil_div(cols * bits, 8)", touches="y"),
        read("index", typed("index_type", INT32, INT64), "count"),
        read(
            "scales",
            typed("scale_type", FLOAT, FLOAT16),
            "rows, ceil_div(cols, block)",
            touches="index",
        ),
        read(
            "zeros_",
            BYTES,
            "ceil_div(rows * ceil_div(cols, block) * bits, 8) if zeros == 2 else rows * "
            "ceil_div(ceil_div(cols, block) * bits, 8)",
            optional=True,
        ),
        write("y", FLOAT, "count, cols"),
    ],
    require=["bits in (2, 4, 8)", "block >= 16", "rows > 0"],
    empty=["count", "cols"],
    grid="count, cols",
    doc=(
        "com.microsoft::GatherBlockQuantized with gather_axis 0 and the last axis as "
        "quantize_axis: rows of a quantized embedding as float32. Elements have `bits` bits, low "
        "bits first. zeros 1: each row of zeros_ begins with a new byte; 2: zeros_ is packed "
        "without gaps (4-bit types). Without zeros_ the zero point is 0 if signed or zeros is -1 "
        "(uint4), and 2^(bits-1) if zeros is 0 (uint8 storage)."
    ),
)
