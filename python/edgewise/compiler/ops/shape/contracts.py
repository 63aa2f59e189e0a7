"""Contracts of the kernels of shape operators."""

from __future__ import annotations

from ...declare.dtypes import INT32, INT64
from ...declare.kernel import CImplementation, Kernel, params, read, sized, typed, update, write

Kernel(
    "gather",
    params("size index_type outer count rows inner x_outer x_row y_outer"),
    [
        read("x", sized("size"), "outer:x_outer, rows:x_row, inner", touches="y"),
        read("index", typed("index_type", INT32, INT64), "count"),
        write("y", sized("size"), "outer:y_outer, count, inner"),
    ],
    require=[
        "size in (1, 2, 4, 8)",
        "x_outer >= 0",
        "x_row >= 0",
        "y_outer >= 0",
        "rows > 0",
        "outer <= 1 or y_outer >= count*inner",
    ],
    empty=["outer", "count", "inner"],
    doc=(
        "y[o, c, :] = x[o, index[c], :]; negative indices count from the end; an index "
        "outside of [-rows, rows) is EW_E_INDEX."
    ),
)

Kernel(
    "gather_elements",
    params("size index_type dims[6] rows x_axis xs[6] is[6]"),
    [
        read("x", sized("size"), "dims:xs, rows:x_axis", touches="y"),
        read("index", typed("index_type", INT32, INT64), "dims:is"),
        write("y", sized("size"), "dims"),
    ],
    require=[
        "size in (1, 2, 4, 8)",
        "rows > 0",
        "x_axis >= 0",
        "min(xs[0], xs[1], xs[2], xs[3], xs[4], xs[5]) >= 0",
        "min(is[0], is[1], is[2], is[3], is[4], is[5]) >= 0",
    ],
    empty=["dims"],
    doc=(
        "ONNX GatherElements: dims are those of index; y is contiguous. x_axis: stride of x "
        "along the gathered axis, which has `rows` rows; xs: strides of x along the other "
        "axes, 0 for the gathered one."
    ),
)

Kernel(
    "gather_nd",
    params("size index_type batch count depth inner x_batch sizes[6] strides[6]"),
    [
        read("x", sized("size"), "batch:x_batch, sizes:strides, inner", touches="y"),
        read("index", typed("index_type", INT32, INT64), "batch, count, depth"),
        write("y", sized("size"), "batch, count, inner"),
    ],
    require=[
        "size in (1, 2, 4, 8)",
        "depth >= 0",
        "depth <= 6",
        "x_batch >= 0",
        "min(strides[0], strides[1], strides[2], strides[3], strides[4], strides[5]) >= 0",
        "min(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]) > 0",
    ],
    empty=["batch", "count", "inner"],
    doc=(
        "ONNX GatherND: y[b, c, :] = x[b][sum_d index[b,c,d]*strides[d] ...]; from depth on, "
        "sizes are 1 and strides 0; an index out of range is EW_E_INDEX."
    ),
)

Kernel(
    "scatter_nd",
    params("size type index_type reduction count depth inner sizes[6] strides[6]"),
    [
        read("index", typed("index_type", INT32, INT64), "count, depth"),
        read("updates", sized("size"), "count, inner"),
        update("y", sized("size"), "sizes:strides, inner", touches="updates"),
    ],
    require=[
        "size in (1, 2, 4, 8)",
        "reduction >= 0",
        "reduction < 5",
        "bytes_of_any(type) == size",
        "depth >= 0",
        "depth <= 6",
        "min(strides[0], strides[1], strides[2], strides[3], strides[4], strides[5]) >= 0",
        "min(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]) > 0",
    ],
    empty=["count", "inner"],
    grid="count, inner",
    doc=(
        "ONNX ScatterND into y, which holds the data before. reduction: 0 none, 1 add, 2 mul, "
        "3 min, 4 max."
    ),
)

Kernel(
    "scatter_elements",
    params("size type index_type reduction dims[6] rows y_axis ys[6] is[6]"),
    [
        read("index", typed("index_type", INT32, INT64), "dims:is"),
        read("updates", sized("size"), "dims"),
        update("y", sized("size"), "dims:ys, rows:y_axis", touches="updates"),
    ],
    require=[
        "size in (1, 2, 4, 8)",
        "reduction >= 0",
        "reduction < 5",
        "bytes_of_any(type) == size",
        "rows > 0",
        "y_axis >= 0",
        "min(ys[0], ys[1], ys[2], ys[3], ys[4], ys[5]) >= 0",
        "min(is[0], is[1], is[2], is[3], is[4], is[5]) >= 0",
    ],
    empty=["dims"],
    grid="dims",
    doc=(
        "ONNX ScatterElements into y, which holds the data before: dims are those of index "
        "and updates. y_axis: stride of y along the axis, which has `rows` rows; ys: strides "
        "of y along the other axes, 0 for that one. reduction as in scatter_nd."
    ),
)

Kernel(
    "copy",
    params("size dims[6] xs[6] ys[6]"),
    [read("x", sized("size"), "dims:xs"), write("y", sized("size"), "dims:ys")],
    require=["size in (1, 2, 4, 8)"],
    empty=["dims"],
    c=CImplementation(variants={"size": "COPY_SIZE"}),
    doc=(
        "Strided copy: Transpose, Slice, Expand, Concat, Split, Tile, appending to a KV cache. "
        "Rows that are contiguous in both are copied by memcpy; a 2-D transpose is blocked."
    ),
)

Kernel(
    "fill",
    params("size dims[6] ys[6] value_low value_high"),
    [write("y", sized("size"), "dims:ys")],
    require=["size in (1, 2, 4, 8)"],
    empty=["dims"],
    doc="Fills y with a bit pattern of `size` bytes, the low 4 of them in value_low.",
)

Kernel(
    "trilu",
    params("size batch rows cols k upper x_row x_batch y_row y_batch"),
    [
        read("x", sized("size"), "batch:x_batch, rows:x_row, cols"),
        write("y", sized("size"), "batch:y_batch, rows:y_row, cols", inplace=["x"]),
    ],
    require=[
        "size in (1, 2, 4, 8)",
        "min(x_row, x_batch, y_row, y_batch) >= 0",
        "distinct(batch, y_batch, rows, y_row, cols, 1)",
    ],
    empty=["batch", "rows", "cols"],
    doc="ONNX Trilu: the upper (or lower) triangle from diagonal k on, 0 elsewhere.",
)

Kernel(
    "range",
    params("type n start delta f_start:f32 f_delta:f32"),
    [write("y", "type", "n")],
    empty=["n"],
    doc="y[i] = start + i*delta for integer types, f_start + i*f_delta for float ones.",
)
