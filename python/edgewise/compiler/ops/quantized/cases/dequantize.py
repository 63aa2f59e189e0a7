"""Test cases of ops/quantized/dequantize.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dequantize import dequantize

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@dequantize.cases
def dequantize_cases(t: Toolbox) -> Cases:
    for dtype in ("uint8", "int8", "uint16", "int16", "uint4", "int4"):
        low, high = {"uint4": (0, 15), "int4": (-8, 7), "int8": (-128, 127)}.get(dtype, (0, 255))
        q = lambda *shape: t.n(dtype, *shape, low=low, high=high)
        yield t(q(3, 37), 0.05, q())
        yield t(q(3, 37), 0.05)
        yield t(q(3, 4, 5), t.f(4, low=0.01, high=0.1), q(4))
        yield t(q(3, 5), t.f(3, low=0.01, high=0.1), q(3), axis=0)
        yield t(q(3, 10), t.f(3, 3, low=0.01, high=0.1), q(3, 3), axis=1, block_size=4)
        yield t(q(8, 3), t.f(2, 3, low=0.01, high=0.1), axis=0, block_size=4)
    yield t(t.n("int32", 3, 5), 0.05)
    yield t(t.n("int32", 3, 5), t.f(5))
    yield t(t.n("uint8", 3, 4), t.f(4), t.n("uint8", 4), opset=13)
    yield t(t.n("int8", 3, 4), t.f(1), t.n("int8", 1), opset=10)
    yield t(t.n("uint8", 0, 4), 0.05)
    mine = {"trust": "onnx", "opset": 25, "why": "onnxruntime has not all of them"}
    for dtype in (
        "uint2",
        "int2",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float4_e2m1fn",
    ):
        q = lambda *shape: t.any(dtype, *shape)
        zero = lambda *shape: (
            t.n(dtype, *shape)
            if "int" in dtype
            else t.of(
                dtype,
                (
                    0
                    if not shape
                    else [0] * shape[0]
                    if len(shape) == 1
                    else [[0] * shape[1]] * shape[0]
                ),
            )
        )
        yield t(q(3, 37), 0.05, zero(), **mine)
        yield t(q(3, 37), 0.05, **mine)
        yield t(q(3, 4, 5), t.f(4, low=0.01, high=0.1), zero(4), **mine)
        yield t(q(3, 10), t.f(3, 3, low=0.01, high=0.1), zero(3, 3), axis=1, block_size=4, **mine)
        yield t(q(8, 3), t.f(2, 3, low=0.01, high=0.1), axis=0, block_size=4, **mine)
    yield t(t.n("int8", 3, 5), t.of("float8_e8m0fnu", 0.25), output_dtype=1, **mine)
