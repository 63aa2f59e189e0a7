"""How the engine in C lays out weights of bytes, which depends on the machine.

Steps of the kernels pack_integer and integer_product may run on either side, and packed weights are
shared by plans, so shaders take the layout of the machine.
"""

from __future__ import annotations

from ..declare.dtypes import INT8, UINT8
from ..ops.quantized.integer_kernel import packed_bytes
from ..plan.builder import Builder
from ..plan.plan import Plan
from ..plan.view import View

COLUMNS, ROWS = 32, 8  # of a matrix in which each byte is another one

SIZES = (COLUMNS * ROWS, packed_bytes(COLUMNS, ROWS))


def packing_plan() -> Plan:
    """A plan that packs the matrix in slot 0 to slot 1, whose bytes are SIZES."""
    builder = Builder({})
    w, y = (
        View(builder.slot(name, "state", dtype, [size], size), 0, [size], [1], dtype)
        for name, dtype, size in zip("wy", (INT8, UINT8), SIZES)
    )
    strides = {"item_stride": 0, "n_stride": ROWS, "tap_stride": 0, "c_stride": 1}
    builder.emit(
        "pack_integer", {"w": w, "y": y}, items=1, n=COLUMNS, taps=1, c=ROWS, type=INT8, **strides
    )
    builder.finish()
    return Plan.assemble(builder, [])
