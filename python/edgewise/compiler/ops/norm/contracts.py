"""Contracts of the kernels of norm operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT
from ...declare.kernel import CImplementation, Kernel, params, read, write

Kernel(
    "batch_norm",
    params("batch channels inner train epsilon:f32 momentum:f32"),
    [
        read("x", FLOAT, "batch, channels, inner"),
        read("scale", FLOAT, "channels"),
        read("bias", FLOAT, "channels"),
        read("mean", FLOAT, "channels", optional=True),
        read("variance", FLOAT, "channels", optional=True),
        write("y", FLOAT, "batch, channels, inner", inplace=["x"]),
        write("new_mean", FLOAT, "channels", optional=True),
        write("new_variance", FLOAT, "channels", optional=True),
    ],
    empty=["batch", "channels", "inner"],
    grid="channels",
    doc=(
        "y = (x - mean) / sqrt(variance + epsilon) * scale + bias for each channel of x [batch, "
        "channels, inner]. train: mean and variance are computed from x, and new_mean = mean * "
        "momentum + (mean of x) * (1 - momentum), new_variance likewise."
    ),
)

Kernel(
    "batch_norm_grad",
    params("batch channels inner train epsilon:f32"),
    [
        read("x", FLOAT, "batch, channels, inner"),
        read("scale", FLOAT, "channels"),
        read("mean", FLOAT, "channels", optional=True),
        read("variance", FLOAT, "channels", optional=True),
        read("dy", FLOAT, "batch, channels, inner"),
        write("dx", FLOAT, "batch, channels, inner", optional=True, inplace=["dy"]),
        write("dscale", FLOAT, "channels", optional=True),
        write("dbias", FLOAT, "channels", optional=True),
    ],
    empty=["batch", "channels", "inner"],
    grid="channels",
    doc="Gradients of batch_norm; with train, mean and variance are computed again.",
)

Kernel(
    "norm",
    params("rms rows cols x_row skip_row y_row epsilon:f32 scale_offset:f32"),
    [
        read("x", FLOAT, "rows:x_row, cols"),
        read("scale", FLOAT, "cols", optional=True),
        read("bias", FLOAT, "cols", optional=True),
        read("skip", FLOAT, "rows:skip_row, cols", optional=True),
        read("skip_bias", FLOAT, "cols", optional=True),
        write("y", FLOAT, "rows:y_row, cols", inplace=["x", "skip"]),
        write("sum", FLOAT, "rows:y_row, cols", optional=True, inplace=["x", "skip"]),
        write("mean", FLOAT, "rows", optional=True),
        write("inv_std", FLOAT, "rows", optional=True),
    ],
    require=["min(x_row, skip_row) >= 0", "y_row >= cols", "cols > 0"],
    empty=["rows"],
    grid="rows",
    doc=(
        "v = x (+ skip) (+ skip_bias); sum = v; y = (v - mean(v)) / sqrt(var(v) + epsilon) * "
        "(scale + scale_offset) + bias, or with rms: v / sqrt(mean(v*v) + epsilon) * (scale + "
        "scale_offset). LayerNormalization, RMSNormalization, SkipLayerNormalization, "
        "SkipSimplifiedLayerNormalization. Two passes, with the variance of centred values. "
        "skip_row 0 broadcasts one skip row. y and sum never share memory. mean and inv_std, 1 "
        "/ sqrt(...), are the statistics of each row."
    ),
)

Kernel(
    "norm_grad",
    params("rms rows cols x_row dy_row parts epsilon:f32 scale_offset:f32"),
    [
        read("x", FLOAT, "rows:x_row, cols"),
        read("dy", FLOAT, "rows:dy_row, cols"),
        read("scale", FLOAT, "cols", optional=True),
        read("more", FLOAT, "rows, cols", optional=True),
        write("dx", FLOAT, "rows, cols", optional=True, inplace=["dy", "more", "x"]),
        write("dscale", FLOAT, "cols", optional=True),
        write("dbias", FLOAT, "cols", optional=True),
    ],
    require=["min(x_row, dy_row) >= 0", "cols > 0", "parts > 0", "parts <= 65536"],
    empty=["rows"],
    grid="rows",
    c=CImplementation(scratch="parts*2*cols", optional_scratch=True),
    doc=(
        "Gradients of norm (with v = x) with respect to x, plus `more`, to scale and to bias. "
        "Rows are summed in `parts` parts, whatever the number of threads; scratch is needed "
        "for dscale and dbias only."
    ),
)
