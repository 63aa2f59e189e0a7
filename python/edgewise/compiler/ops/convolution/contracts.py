"""Contracts of the kernels of convolution operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, INT64
from ...declare.kernel import CImplementation, Cost, Enum, Kernel, params, read, write
from ..product.contracts import ACTIVATION
from .window_rules import WINDOW, WINDOW_RULES

_CONV_RULES = [
    *WINDOW_RULES,
    "x_batch >= 0",
    "c*volume(taps) <= 2147483647",
    "batch*volume(y_size) <= 2147483647",
    "batch*groups*m <= 2147483647",
    "batch*groups*c <= 2147483647",
    "groups*m*c <= 2147483647",
]

Kernel(
    "conv",
    params(f"batch groups m c x_batch {WINDOW} activation"),
    [
        read("x", FLOAT, "batch:x_batch, groups, c, x_size"),
        read("w", FLOAT, "groups, m, c, taps"),
        read("bias", FLOAT, "groups, m", optional=True),
        read("residual", FLOAT, "batch, groups, m, y_size", optional=True),
        write("y", FLOAT, "batch, groups, m, y_size"),
    ],
    require=_CONV_RULES,
    enums={"activation": ACTIVATION},
    empty=["batch", "groups", "m", "c"],
    cost=Cost("2*batch*groups*m*c*volume(y_size)*volume(taps)"),
    c=CImplementation(scratch="131072", variants={"activation": "ACTIVATION"}),
    doc=(
        "y [batch, groups, m, y_size] = activation(sum over c and taps of w [groups, m, c, "
        "taps] x [batch, groups, c, x_size] + bias) + residual; tap k of position o is x[o * "
        "stride + k * dilation - pad], 0 outside. x_batch: the stride of the batch of x, with "
        "contiguous channels. scratch: packed patches, shared by the threads."
    ),
)

Kernel(
    "conv_winograd",
    params("batch m c x_batch x_size[3] y_size[3] pad[3] activation"),
    [
        read("x", FLOAT, "batch:x_batch, c, x_size"),
        read("u", FLOAT, "16, m, c"),
        read("bias", FLOAT, "m", optional=True),
        read("residual", FLOAT, "batch, m, y_size", optional=True),
        write("y", FLOAT, "batch, m, y_size"),
    ],
    require=[
        "volume(x_size) >= 1",
        "volume(y_size) >= 1",
        "x_size[0] == 1",
        "y_size[0] == 1",
        "pad[0] == 0",
        "batch*volume(y_size) <= 1073741823",
        "y_size[2] <= 1500",
        "c <= 512",
        "x_batch >= 0",
        "batch*m <= 2147483647",
        "m*c <= 67108864",
    ],
    enums={"activation": ACTIVATION},
    empty=["batch", "m", "c"],
    cost=Cost("2*16*batch*m*c*ceil_div(y_size[1], 2)*ceil_div(y_size[2], 2)"),
    c=CImplementation(scratch="409856", variants={"activation": "ACTIVATION"}),
    doc=(
        "conv with 3 x 3 taps, stride and dilation 1 and one group, with 4/9 of the "
        "multiplications; u [16, m, c] = G w G' of each 3 x 3 kernel (winograd.c). scratch: "
        "transformed tiles of x, and sums."
    ),
)

Kernel(
    "conv_transpose",
    params(f"batch groups m c x_batch {WINDOW}"),
    [
        read("y", FLOAT, "batch, groups, m, y_size"),
        read("w", FLOAT, "groups, m, c, taps"),
        read("bias", FLOAT, "groups, c", optional=True),
        write("x", FLOAT, "batch, groups, c, x_size"),
    ],
    require=_CONV_RULES,
    empty=["batch", "groups", "m", "c"],
    grid="batch, groups, c, x_size",
    cost=Cost("2*batch*groups*m*c*volume(y_size)*volume(taps)"),
    c=CImplementation(scratch="131072 + 65536 + 131072"),
    doc=(
        "ConvTranspose: x = bias + the gradient of conv with respect to its input, for the "
        "output gradient y; w [groups, m, c, taps]. scratch: packed y and w, and products to be "
        "added, of each thread."
    ),
)

Kernel(
    "conv_weight_grad",
    params(f"batch groups m c x_batch {WINDOW}"),
    [
        read("x", FLOAT, "batch:x_batch, groups, c, x_size"),
        read("dy", FLOAT, "groups, m, batch, y_size"),
        write("dw", FLOAT, "groups, m, c, taps"),
    ],
    require=_CONV_RULES,
    empty=["batch", "groups", "m", "c"],
    cost=Cost("2*batch*groups*m*c*volume(y_size)*volume(taps)"),
    c=CImplementation(scratch="131072", rare=True),
    doc=(
        "dw [groups, m, c, taps] = the gradient of conv with respect to w, for dy [groups, m, "
        "batch, y_size]. scratch: packed patches."
    ),
)

POOL = Enum("pool_op", "max average sum")

Kernel(
    "pool",
    params(f"op planes include_pad tail[3] {WINDOW}"),
    [
        read("x", FLOAT, "planes, x_size"),
        write("y", FLOAT, "planes, y_size"),
        write("index", INT64, "planes, y_size", optional=True),
    ],
    require=WINDOW_RULES,
    enums={"op": POOL},
    empty=["planes"],
    cost=Cost("planes*volume(y_size)*volume(taps)"),
    doc=(
        "y [planes, y_size] = the maximum, average or sum of the taps of each position that are "
        "inside of x [planes, x_size]; tap k of position o is x[o * stride + k * dilation - "
        "pad]. An average divides by their number, with include_pad by the number of taps "
        "within [-pad, x_size + tail). index (maximum only): the index in all of x of the first "
        "maximum."
    ),
)

Kernel(
    "pool_grad",
    params(f"op planes include_pad tail[3] {WINDOW}"),
    [
        read("x", FLOAT, "planes, x_size", optional=True),
        read("dy", FLOAT, "planes, y_size"),
        write("dx", FLOAT, "planes, x_size"),
    ],
    require=WINDOW_RULES,
    enums={"op": POOL},
    empty=["planes"],
    grid="planes",
    cost=Cost("planes*volume(y_size)*volume(taps)"),
    doc=(
        "Gradient of pool with respect to x. The maximum needs x: its gradient goes to the "
        "first maximum."
    ),
)
