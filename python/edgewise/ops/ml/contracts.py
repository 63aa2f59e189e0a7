"""Contracts of the kernels under ml ops."""

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
        "Probabilities y [rows, classes] from those of pairs: pairs [rows, classes * (classes "
        "- 1) / 2] are of class i where i and j > i are the only ones, in the order of (i, j) "
        "(pairwise coupling: Wu, Lin, Weng 2004)."
    ),
)
