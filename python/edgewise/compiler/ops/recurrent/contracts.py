"""Contracts of the kernels of recurrent operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, INT8, INT32, UINT8
from ...declare.kernel import CImplementation, Cost, Enum, Kernel, params, read, room, write

Kernel(
    "recurrent_bytes",
    params("t b d h reverse coupled x_t x_b r_type factors zeros scratch_bytes"),
    [
        read("x", FLOAT, "t:x_t, b:x_b, d, 4, h"),
        read("r", UINT8, "d, ceil_div(4 * h, 32), 32, 4 + ceil_div(h, 4) * 4"),
        read("factor", FLOAT, "d, factors"),
        read("r_zero", (UINT8, INT8), "d, zeros", optional=True),
        read("h_first", FLOAT, "d, b, h", optional=True),
        read("c_first", FLOAT, "d, b, h", optional=True),
        read("lengths", INT32, "b", optional=True),
        read("peepholes", FLOAT, "d, 3, h", optional=True),
        read("table", FLOAT, "d, 18"),
        write("y", FLOAT, "t, b, d, h"),
        write("h_last", FLOAT, "d, b, h"),
        write("c_last", FLOAT, "d, b, h"),
        room("g", FLOAT, "d, b, 4, h"),
        room("sums", FLOAT, "b, 4, h"),
        room("bytes", UINT8, "b, h"),
    ],
    require=[
        "d in (1, 2)",
        "d*b*h <= 268435456",
        "4*h*d <= 2147483647",
        "min(x_t, x_b) >= 0",
        "r_type in (2, 3)",
        "factors == 1 or factors == 4*h",
        "zeros == 1 or zeros == 4*h",
        "scratch_bytes >= 32*ceil_div(h, 4)",
    ],
    empty=["t", "b", "d", "h"],
    grid="d, b, h",
    c=CImplementation(scratch="ceil_div(scratch_bytes, 4)", rare=True),
    doc=(
        "The kernel recurrent for an LSTM with 8-bit r from pack_integer (one item for each "
        "direction, n = 4 * h, c = h): h is quantized to uint8 before each step, over the range "
        "of all rows of a direction, and its products are summed in integers. factor, r_zero: "
        "scales and zero points of r, for each direction one or one for each column."
    ),
)

GATE_ACTIVATION = Enum("recurrent_activation", "linear sigmoid tanh")

Kernel(
    "recurrent",
    params("t b d h gates lbr reverse coupled x_t x_b g_t panels"),
    [
        read("x", FLOAT, "t:x_t, b:x_b, d, gates, h"),
        read("r", FLOAT, "d, gates, h, h"),
        read("bias", FLOAT, "d, h", optional=True),
        read("h_first", FLOAT, "d, b, h", optional=True),
        read("c_first", FLOAT, "d, b, h", optional=True),
        read("lengths", INT32, "b", optional=True),
        read("peepholes", FLOAT, "d, 3, h", optional=True),
        read("table", FLOAT, "d, 18"),
        write("y", FLOAT, "t, b, d, h"),
        write("h_last", FLOAT, "d, b, h"),
        write("c_last", FLOAT, "d, b, h"),
        write("g", FLOAT, "t:g_t, b, d, gates + lbr, h"),
        write("cells", FLOAT, "t, b, d, h", optional=True),
    ],
    require=[
        "gates in (1, 3, 4)",
        "lbr in (0, 1)",
        "lbr == 0 or gates == 3",
        "d in (1, 2)",
        "d*b*h <= 1073741824",
        "gates*h*d <= 1073741824",
        "min(x_t, x_b, g_t) >= 0",
        "panels in (0, 1)",
        "panels == 0 or ceil_div(h, 32)*32 == h",
    ],
    empty=["t", "b", "d", "h"],
    grid="d, b, h",
    cost=Cost("2*t*b*d*gates*h*h"),
    c=CImplementation(rare=True),
    doc=(
        "gates 4: LSTM, 3: GRU, 1: RNN. x [t, b, d, gates * h]: products with W, plus bias. r "
        "[d, gates * h, h], or with panels [d, gates * h / 32, h, 32]: each 32 rows transposed. y "
        "[t, b, d, h]; h_last, c_last [d, b, h] (c_last: working memory where there is no cell "
        "state). g [b, d, (gates + lbr) * h]: the activated gates of one step, or, with g_t, of "
        "every step; with lbr (linear_before_reset) the last gate's product and bias [d, h] "
        "follow them. table: for each direction 3 activations of 6 numbers. Direction 1, and "
        "with reverse direction 0, begins at the end of each row, which is its length. cells: "
        "the cell state after each step."
    ),
)

Kernel(
    "recurrent_grad",
    params("t b d h gates lbr reverse coupled"),
    [
        read("dy", FLOAT, "t, b, d, h", optional=True),
        read("dh_last", FLOAT, "d, b, h", optional=True),
        read("dc_last", FLOAT, "d, b, h", optional=True),
        read("y", FLOAT, "t, b, d, h"),
        read("cells", FLOAT, "t, b, d, h"),
        read("g", FLOAT, "t, b, d, gates + lbr, h"),
        read("rt", FLOAT, "d, gates, h, h"),
        read("h_first", FLOAT, "d, b, h", optional=True),
        read("c_first", FLOAT, "d, b, h", optional=True),
        read("lengths", INT32, "b", optional=True),
        read("peepholes", FLOAT, "d, 3, h", optional=True),
        read("table", FLOAT, "d, 18"),
        write("dx", FLOAT, "t, b, d, gates, h"),
        write("dh", FLOAT, "d, b, h"),
        write("dc", FLOAT, "d, b, h"),
    ],
    require=[
        "gates in (1, 3, 4)",
        "lbr in (0, 1)",
        "lbr == 0 or gates == 3",
        "d in (1, 2)",
        "d*b*h <= 1073741824",
        "gates*h*d <= 1073741824",
    ],
    empty=["t", "b", "d", "h"],
    grid="d, b, h",
    cost=Cost("2*t*b*d*gates*h*h"),
    c=CImplementation(rare=True),
    doc=(
        "Gradients of recurrent with respect to x and the initial states. rt [d, h, gates * h]: r "
        "transposed. cells is not read where there is no cell state."
    ),
)
