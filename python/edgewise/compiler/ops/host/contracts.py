"""Contracts of the kernels of host operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, INT64
from ...declare.kernel import CImplementation, Kernel, params, read, write

Kernel(
    "nonzero",
    params("type rank dims[6]"),
    [read("x", "type", "dims"), write("y", INT64, "rank, dims"), write("count", INT64, "1")],
    require=["rank > 0", "rank <= 6"],
    empty=["dims"],
    grid="1",
    doc="ONNX NonZero: the first rank * count elements of y are an int64 [rank, count].",
)

Kernel(
    "unique",
    params("type n cols sorted"),
    [
        read("x", "type", "n, cols"),
        write("first", INT64, "n"),
        write("inverse", INT64, "n"),
        write("counts", INT64, "n"),
        write("count", INT64, "1"),
    ],
    require=["cols > 0"],
    empty=["n"],
    grid="1",
    c=CImplementation(scratch="2*n"),
    doc=(
        "ONNX Unique of the rows of x [n, cols]: first: the index of each unique row's first "
        "occurrence; counts: its number of occurrences; inverse: the unique row of each row."
    ),
)

Kernel(
    "nms",
    params("batch classes n most center limited iou:f32 score:f32"),
    [
        read("boxes", FLOAT, "batch, n, 4"),
        read("scores", FLOAT, "batch, classes, n"),
        write("selected", INT64, "batch, classes, most, 3"),
        write("count", INT64, "1"),
    ],
    require=["most >= 0", "most <= n"],
    empty=["batch", "classes", "n", "most"],
    grid="batch, classes",
    c=CImplementation(scratch="n"),
    doc=(
        "ONNX NonMaxSuppression: the first 3 * count elements of selected are [count, 3]. most: "
        "maximum of boxes of a class; limited: whether `score` is a minimum of scores."
    ),
)
