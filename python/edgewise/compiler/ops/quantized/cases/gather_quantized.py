"""Test cases of ops/quantized/gather_quantized.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gather_quantized import gather_quantized

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@gather_quantized.cases
def gather_quantized_cases(t: Toolbox) -> Cases:
    for dtype in ("uint4", "int4"):
        low, high = {"uint4": (0, 15), "int4": (-8, 7)}[dtype]
        x, scales, zeros = (
            t.n(dtype, 10, 64, low=low, high=high),
            t.f(10, 2),
            t.n(dtype, 10, 2, low=low, high=high),
        )
        for i in (
            t.n("int64", 2, 3, low=0, high=9),
            t.n("int32", 4, low=-10, high=9),
            t.of("int64", 3),
        ):
            yield t(x, i, t.const(scales), zeros, block_size=32, quantize_axis=1)
            yield t(x, i, t.const(scales), block_size=32, quantize_axis=1)
        yield t(
            t.n(dtype, 5, 48, low=low, high=high),
            t.of("int64", [4, 0]),
            t.const(t.f(5, 3)),
            t.n(dtype, 5, 3, low=low, high=high),
            block_size=16,
            quantize_axis=-1,
        )
        yield t(
            x,
            t.of("int64", [4, 0]),
            t.const(t.f(10, 2, dtype="float16")),
            block_size=32,
            quantize_axis=1,
        )
    yield t(
        t.const(t.n("uint8", 10, 5, 32, low=0, high=255)),
        t.of("int64", [[1, -3], [9, 0]]),
        t.const(t.f(10, 5, 4)),
        t.const(t.n("uint8", 10, 5, 2, low=0, high=255)),
        bits=4,
        block_size=16,
        quantize_axis=2,
    )
    for bits in (2, 4, 8):
        x, scales = t.n("uint8", 10, 64 * bits // 8, low=0, high=255), t.f(10, 2)
        yield t(
            t.const(x),
            t.n("int64", 2, 3, low=0, high=9),
            t.const(scales),
            t.const(t.n("uint8", 10, -(-2 * bits // 8), low=0, high=255)),
            bits=bits,
            block_size=32,
            quantize_axis=1,
        )
        yield t(
            t.const(x),
            t.n("int64", 2, 3, low=0, high=9),
            t.const(scales),
            bits=bits,
            block_size=32,
            quantize_axis=1,
        )
