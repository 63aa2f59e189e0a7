"""Contracts of the kernels of ai.onnx.ml."""

from __future__ import annotations

from ...declare.dtypes import FLOAT
from ...declare.kernel import CImplementation, Kernel, params, read, write

Kernel(
    "couple",
    params("rows classes"),
    [
        read("pairs", FLOAT, "rows, ceil_div(classes * (classes - 1), 2)"),
        write("y", FLOAT, "rows, classes"),
    ],
    require=["classes <= 4096", "classes >= 2", "rows*classes <= 1073741824"],
    empty=["rows"],
    grid="rows",
    c=CImplementation(scratch="classes*(classes + 1)", rare=True),
    doc=(
        "Probabilities of classes, y [rows, classes], from those of pairs [rows, classes * "
        "(classes - 1) / 2]: the probability of class i if it is i or j > i, in the order of "
        "(i, j) (pairwise coupling: Wu, Lin, Weng 2004)."
    ),
)
