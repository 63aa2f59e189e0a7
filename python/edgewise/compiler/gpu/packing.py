"""How the engine in C lays out weights of bytes, which depends on the machine.

Steps of the kernels pack_integer and integer_product may run on either side, and packed weights are
shared by plans, so shaders take the layout of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...host.engine import Buffer, LoadedPlan
from ..declare.dtypes import INT8, UINT8
from ..ops.quantized.integer_kernel import packed_bytes
from ..plan.builder import Builder
from ..plan.plan import Plan
from ..plan.view import View

if TYPE_CHECKING:
    from ...host.engine.native import NativeEngine

COLUMNS, ROWS = 32, 8  # of a matrix in which each byte is another one

DOTS = {  # sum of four products of signed bytes: whether WGSL has a function for it
    True: "fn dot_of_bytes(v: vec4i, w_: u32) -> i32 { return dot4I8Packed(pack4xI8(v), w_); }",
    False: "fn dot_of_bytes(v: vec4i, w_: u32) -> i32 {"
    " return v.x * (bitcast<i32>(w_ << 24u) >> 24u) + v.y * (bitcast<i32>(w_ << 16u) >> 24u)"
    " + v.z * (bitcast<i32>(w_ << 8u) >> 24u) + v.w * (bitcast<i32>(w_) >> 24u); }",
}


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


def packing_of(engine: NativeEngine) -> tuple[int, int]:
    """(columns of a panel, elements of a column that lie side by side), from packing a matrix."""
    addresses = [engine.alloc(size) for size in SIZES]
    loaded = LoadedPlan(engine, packing_plan())
    try:
        for slot, (address, size) in enumerate(zip(addresses, SIZES)):
            loaded.bind(slot, Buffer(address, size))
        engine.write(addresses[0], bytes(range(256)))
        loaded.run()
        packed = engine.read(addresses[1], SIZES[1])[4 * COLUMNS :]
    finally:
        loaded.free()
        for address in addresses:
            engine.free(address)
    return packed.index(4) // 4, packed.index(ROWS)


def declarations(columns: int, together: int, dots: bool) -> dict[str, str]:
    """What shaders may refer to beside the contract of their kernel."""
    return {
        "PANEL": f"const PANEL = {columns}u;",
        "TOGETHER": f"const TOGETHER = {together}u;",
        "dot_of_bytes": DOTS[dots],
    }
