"""Test cases of ops/quantized/quantize.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quantize import dynamic_quantize, quantize

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

INF, NAN = float("inf"), float("nan")


@dynamic_quantize.cases
def dynamic_quantize_cases(t: Toolbox) -> Cases:
    yield t(
        t.of("float32", [0, 0]),
        outputs=3,
        trust="ort",
        why="nothing to scale: ONNX leaves the scale open",
    )
    nothing = {"trust": "ort", "why": "ONNX's reference finds no range"}
    yield t(t.f(0), outputs=3, **nothing)
    yield t(t.f(2, 0, 3), outputs=3, **nothing)
    for x in (
        t.f(3, 37),
        t.f(5, low=1, high=3),
        t.f(5, low=-3, high=-1),
        t.f(1),
        t.of("float32", [0, 0.5, 1.5, 2.5, 255]),
    ):
        yield t(x, outputs=3)
    yield t(t.f(2, 3), outputs=[True, False, False])
    yield t(t.f(2, 3), outputs=[False, True, True])


@quantize.cases
def quantize_cases(t: Toolbox) -> Cases:
    # Over 60 lines: a list of cases.
    for dtype in ("uint8", "int8", "uint16", "int16"):
        yield t(t.f(3, 37), 0.05, t.n(dtype, low=0, high=20))
        yield t(t.f(3, 4, 5), t.f(4, low=0.01, high=0.1), t.n(dtype, 4, low=0, high=9))
        yield t(t.f(3, 4, 5), t.f(3, low=0.01, high=0.1), t.n(dtype, 3, low=0, high=9), axis=0)
        yield t(
            t.f(3, 10),
            t.f(3, 3, low=0.01, high=0.1),
            t.n(dtype, 3, 3, low=0, high=9),
            axis=1,
            block_size=4,
        )
        yield t(
            t.f(8, 3),
            t.f(2, 3, low=0.01, high=0.1),
            t.n(dtype, 2, 3, low=0, high=9),
            axis=0,
            block_size=4,
        )
    yield t(t.f(3, 37), 0.05)
    yield t(
        t.of("float32", [0.5, 1.5, 2.5, -0.5, 300, -300, INF, -INF]),
        1.0,
        t.n("int8", low=0, high=0),
        trust="ort",
        why="infinity saturates; the reference evaluator wraps it around",
    )
    yield t(t.f(3, 4), t.f(4, low=0.01, high=0.1), t.n("uint8", 4), opset=13)
    yield t(t.f(3, 4), 0.05, output_dtype=3)
    yield t(t.f(0, 4), 0.05)
    yield t(t.n("int32", 3, 37), 1.5, t.n("uint8", low=0, high=20))
    mine = {"trust": "onnx", "opset": 25, "why": "onnxruntime has not all of them"}
    for dtype in ("uint4", "int4", "uint2", "int2"):
        yield t(t.f(3, 37), 0.5, t.n(dtype), **mine)
        yield t(t.f(3, 4, 5) * 5, t.f(4, low=0.5, high=1), t.n(dtype, 4), **mine)
        yield t(
            t.f(3, 10) * 3,
            t.f(3, 3, low=0.1, high=1),
            t.n(dtype, 3, 3),
            axis=1,
            block_size=4,
            **mine,
        )
    for dtype in (
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float4_e2m1fn",
    ):
        for x in (
            t.f(3, 37),
            t.of(
                "float32",
                [0.0, -0.0, NAN, INF, -INF, 1e9, -1e9, 464, 465, 61440, 3.25, 1e-6, 0.0009765625],
            ),
        ):
            yield t(x, 1.0, t.of(dtype, 0), **mine)
            if dtype[5] == "8" and "4m3fn" not in dtype:
                yield t(x, 1.0, t.of(dtype, 0), saturate=0, **mine)
        yield t(t.f(3, 4, 5), t.f(4, low=0.01, high=0.1), t.of(dtype, [0] * 4), **mine)
        yield t(
            t.f(8, 3),
            t.f(2, 3, low=0.01, high=0.1),
            t.of(dtype, [[0] * 3] * 2),
            axis=0,
            block_size=4,
            **mine,
        )
    yield t(t.f(3, 7), 0.25, output_dtype=21, **mine)
    yield t(t.f(3, 7), 0.25, output_dtype=17, **mine)
    yield t(t.f(3, 700), 0.013, precision=10, output_dtype=3, **mine)
    yield t(t.f(3, 7), t.of("float8_e8m0fnu", 0.25), output_dtype=3, **mine)
