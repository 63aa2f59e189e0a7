"""Contracts of the kernels under host ops."""

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
    doc="ONNX NonZero: y begins with an int64 [rank, count].",
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
        "ONNX Unique of the rows of x [n, cols]: of each that differs from all others where "
        "it comes first and how often it comes, and of each row which of those it is."
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
        "ONNX NonMaxSuppression: selected begins with [count, 3]; most: boxes per class; "
        "limited: whether `score` bounds scores from below."
    ),
)
