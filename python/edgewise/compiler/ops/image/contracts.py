"""Contracts of the kernels of image operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, INT64
from ...declare.kernel import CImplementation, Cost, Enum, Kernel, params, read, write

ROI = Enum("roi", "average max pool")

Kernel(
    "roi_pool",
    params(
        "op batch channels height width regions y_height y_width samples scale:f32 "
        "shift:f32 least:f32"
    ),
    [
        read("x", FLOAT, "batch, channels, height, width"),
        read("region", FLOAT, "regions, 4"),
        read("index", INT64, "regions"),
        write("y", FLOAT, "regions, channels, y_height, y_width"),
    ],
    require=[
        "samples >= 0",
        "samples <= 64",
        "min(batch, height, width) >= 1",
        "height*width <= 2147483647",
        "y_height*y_width <= 2147483647",
        "height <= 16777216",
        "width <= 16777216",
    ],
    enums={"op": ROI},
    empty=["channels", "regions", "y_height", "y_width"],
    # without a number of samples the bins of a region have at most two for a pixel, each way
    cost=Cost(
        "8*regions*channels*(y_height*y_width*max(samples*samples, 1)"
        " + (0 if samples else 4*height*width))"
    ),
    c=CImplementation(rare=True),
    doc=(
        "y [regions, channels, y_height, y_width]: each region (x1, y1, x2, y2) * scale - shift "
        "of image index[r] of x [batch, channels, height, width], at least `least` wide and "
        "high, is divided into bins. average, max: of samples x samples points in each bin (0: "
        "one for each pixel), by bilinear interpolation; max is the maximum of the weighted "
        "pixels. pool: the maximum of the pixels of each bin, with the region rounded to whole "
        "pixels. An index out of [0, batch) is EW_E_INDEX."
    ),
)

Kernel(
    "resample",
    params("outer n m taps inner"),
    [
        read("x", FLOAT, "outer, n, inner"),
        read("index", INT64, "m, taps"),
        read("weight", FLOAT, "m, taps"),
        write("y", FLOAT, "outer, m, inner"),
    ],
    require=["m*taps <= 2147483647", "outer*m <= 2147483647", "outer*n*inner <= 1099511627776"],
    empty=["outer", "n", "m", "taps", "inner"],
    cost=Cost("2*outer*m*taps*inner"),
    doc=(
        "y[o, i, :] = sum over t of weight[i, t] * x[o, index[i, t], :] for x [outer, n, "
        "inner], y [outer, m, inner]; an index out of [0, n) is an error."
    ),
)

SAMPLE_MODE = Enum("sample_mode", "nearest linear cubic")

SAMPLE_PADDING = Enum("sample_padding", "zeros border reflection")

Kernel(
    "grid_sample",
    params("batch channels positions dims mode padding align x_size[3]"),
    [
        read("x", FLOAT, "batch, channels, x_size"),
        read("grid", FLOAT, "batch, positions, dims"),
        read("dy", FLOAT, "batch, channels, positions", optional=True),
        write("y", FLOAT, "batch, channels, positions", optional=True),
        write("dx", FLOAT, "batch, channels, x_size", optional=True),
        write("dgrid", FLOAT, "batch, positions, dims", optional=True),
    ],
    require=["volume(x_size) >= 1", "dims >= 1", "dims <= 3"],
    enums={"mode": SAMPLE_MODE, "padding": SAMPLE_PADDING},
    empty=["batch", "channels", "positions"],
    grid="batch, positions",
    c=CImplementation(rare=True),
    doc=(
        "y [batch, channels, positions] = x [batch, channels, x_size] sampled at the positions "
        "grid [batch, positions, dims]; the first coordinate is along the last dimension, and "
        "-1 .. 1 covers all of it. With dy, the gradients dx and dgrid, either or both, are "
        "computed instead of y."
    ),
)
