"""Contracts of the kernels of random operators."""

from __future__ import annotations

from ...declare.dtypes import FLOAT, INT64
from ...declare.kernel import Kernel, params, read, write

Kernel(
    "random",
    params("n stream threshold scale:f32 offset:f32"),
    [
        read("x", FLOAT, "n", optional=True),
        read("seed", INT64, "1"),
        write("y", FLOAT, "n", inplace=["x"]),
    ],
    empty=["n"],
    doc=(
        "y = random 32 bits >= threshold (unsigned) ? x * scale : 0; without x: uniform numbers "
        "in [offset, offset + scale)."
    ),
)
