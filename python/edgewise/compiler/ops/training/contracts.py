"""Contracts of the kernels of training operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, INT8, INT32, INT64, UINT8
from ...declare.kernel import CImplementation, Enum, Kernel, params, read, typed, update, write

Kernel(
    "cross_entropy",
    params("rows classes x_row label_type nll has_ignore ignore_index smoothing:f32"),
    [
        read("x", FLOAT, "rows:x_row, classes"),
        read("label", typed("label_type", INT32, INT64), "rows"),
        read("weight", FLOAT, "classes", optional=True),
        write("loss", FLOAT, "rows"),
        write("counted", FLOAT, "rows"),
        write("lse", FLOAT, "rows"),
    ],
    require=["classes > 0", "x_row >= 0", "rows <= 1 or x_row >= classes"],
    empty=["rows"],
    doc=(
        "For each row: the loss, the weight of the label's class (0: ignored), and "
        "log(sum(exp(x))). nll: x holds logarithms of probabilities. A label that is not a class "
        "is EW_E_INDEX."
    ),
)

Kernel(
    "cross_entropy_grad",
    params("rows classes x_row label_type nll has_ignore ignore_index smoothing:f32 dloss_row"),
    [
        read("x", FLOAT, "rows:x_row, classes"),
        read("label", typed("label_type", INT32, INT64), "rows"),
        read("weight", FLOAT, "classes", optional=True),
        read("lse", FLOAT, "rows"),
        read("dloss", FLOAT, "rows:dloss_row"),
        write("dx", FLOAT, "rows, classes", inplace=["x"]),
    ],
    require=["classes > 0", "x_row >= 0", "rows <= 1 or x_row >= classes", "dloss_row >= 0"],
    empty=["rows"],
    grid="rows",
    doc=(
        "Gradient of cross_entropy's loss with respect to x, from its lse. dx may be x if x is "
        "contiguous."
    ),
)

RULE = Enum("optimizer_rule", "adam sgd adagrad rmsprop lion")

FORM = Enum("optimizer_form", "decoupled l2 ort")

Kernel(
    "optimizer",
    params(
        "rule form n rest1:f32 rest2:f32 epsilon:f32 weight_decay:f32 momentum:f32 "
        "dampening:f32 nesterov"
    ),
    [
        update("x", FLOAT, "n"),
        read("g", FLOAT, "n"),
        update("s", FLOAT, "n", optional=True),
        update("t", FLOAT, "n", optional=True),
        update("u", FLOAT, "n", optional=True),
        read("learning_rate", FLOAT, "1"),
        read("step", INT64, "1"),
        read("scale", FLOAT, "1", optional=True),
    ],
    enums={"rule": RULE, "form": FORM},
    empty=["n"],
    doc=(
        "One step of an optimizer, which updates a parameter x and its states. "
        "rest1, rest2: 1 - beta1, 1 - beta2 (rmsprop: rest1 is 1 - alpha). States s, t, u: adam: "
        "m and v; sgd: momentum buffer or none; adagrad: sum of squares; rmsprop: average of "
        "squares, average of gradients and momentum buffer, the last two optional; lion: m."
    ),
)

Kernel(
    "optimizer_8bit",
    params("form n rest1:f32 rest2:f32 epsilon:f32 weight_decay:f32"),
    [
        update("x", FLOAT, "n"),
        read("g", FLOAT, "n"),
        update("m", INT8, "n"),
        update("m_largest", FLOAT, "ceil_div(n, 256)"),
        update("v", UINT8, "n"),
        update("v_largest", FLOAT, "ceil_div(n, 256)"),
        read("learning_rate", FLOAT, "1"),
        read("step", INT64, "1"),
        read("scale", FLOAT, "1", optional=True),
    ],
    enums={"form": FORM},
    empty=["n"],
    grid="ceil_div(n, 256)",
    c=CImplementation(rare=True),
    doc=(
        "The rule adam of `optimizer` with m as int8 and sqrt(v) as uint8, each with a float32 "
        "scale for every 256 elements."
    ),
)
