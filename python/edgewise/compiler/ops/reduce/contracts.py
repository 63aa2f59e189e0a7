"""Contracts of the kernels of reduce operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, INT64
from ...declare.kernel import Enum, Kernel, params, read, write

REDUCE = Enum("reduce", "sum mean max min prod l1 l2 sum_square log_sum log_sum_exp")

Kernel(
    "reduce",
    params("op type outer n inner x_outer x_n x_inner y_outer"),
    [
        read("x", "type", "outer:x_outer, n:x_n, inner:x_inner"),
        write("y", "type", "outer:y_outer, inner"),
    ],
    require=[
        "min(x_outer, x_n, x_inner, y_outer) >= 0",
        "n >= 0",
        "outer <= 1 or y_outer >= inner",
        "n <= 1 or x_n > 0",
    ],
    enums={"op": REDUCE},
    empty=["outer", "inner"],
    doc=(
        "y[o, i] = reduce over r of x[o, r, i] (strides in elements; the inner dimension of y "
        "is contiguous). n = 0 gives the identity (sum 0, prod 1, max -inf or the lowest number "
        "of the type, mean NaN). Types float32, float64, int32, int64, and uint8/int8/bool for "
        "max and min. float32 sums accumulate in several lanes."
    ),
)

Kernel(
    "arg_reduce",
    params("type largest last outer n inner"),
    [read("x", "type", "outer, n, inner"), write("y", INT64, "outer, inner")],
    require=["n > 0"],
    empty=["outer", "inner"],
    doc="ONNX ArgMax (largest=1) and ArgMin, as int64; last: select_last_index.",
)

Kernel(
    "top_k",
    params("type outer n inner k largest sorted"),
    [
        read("x", "type", "outer, n, inner"),
        write("values", "type", "outer, k, inner"),
        write("indices", INT64, "outer, k, inner"),
    ],
    require=["k >= 0", "k <= n"],
    empty=["outer", "n", "inner", "k"],
    grid="outer, inner",
    doc="ONNX TopK; ties keep the lower index first.",
)

Kernel(
    "softmax",
    params("rows cols x_row y_row log"),
    [read("x", FLOAT, "rows:x_row, cols"), write("y", FLOAT, "rows:y_row, cols", inplace=["x"])],
    require=["x_row >= 0", "y_row >= cols"],
    empty=["rows", "cols"],
    grid="rows",
    doc=(
        "Softmax or LogSoftmax over the last axis, float32. A row of all -inf is NaN, as in "
        "ONNX Runtime."
    ),
)

Kernel(
    "cumsum",
    params("type outer n inner x_outer y_outer exclusive reverse"),
    [
        read("x", "type", "outer:x_outer, n, inner"),
        write("y", "type", "outer:y_outer, n, inner", inplace=["x"]),
    ],
    require=["min(x_outer, y_outer) >= 0", "outer <= 1 or y_outer >= n*inner"],
    empty=["outer", "n", "inner"],
    grid="outer, inner",
    doc=("ONNX CumSum along the middle axis of [outer, n, inner]; float32, float64, int32, int64."),
)

Kernel(
    "softmax_grad",
    params("rows cols dy_row y_row log"),
    [
        read("dy", FLOAT, "rows:dy_row, cols"),
        read("y", FLOAT, "rows:y_row, cols"),
        write("dx", FLOAT, "rows, cols", inplace=["dy", "y"]),
    ],
    require=["min(dy_row, y_row) >= 0"],
    empty=["rows", "cols"],
    grid="rows",
    doc=(
        "Gradient of softmax from its output y: dx = (dy - sum(dy*y)) * y; of log_softmax: dy - "
        "exp(y) * sum(dy). dx may overwrite dy or y where they are contiguous."
    ),
)
