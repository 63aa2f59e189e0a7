"""Test cases of ops/quantized/quantize.py."""

from __future__ import annotations

from ..quantize import dequantize, dynamic_quantize, fake_quant, gather_quantized, quantize

INF, NAN = float("inf"), float("nan")


@dynamic_quantize.cases
def dynamic_quantize_cases(t):
    yield t(
        t.of("float32", [0, 0]),
        outputs=3,
        trust="ort",
        why="nothing to scale: ONNX leaves the scale open",
    )
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
def quantize_cases(t):
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


@fake_quant.cases
def fake_quant_cases(t):
    x = t.of("float32", [[-3, 0.26, 0.2, 0.6], [1, 70, 63.7, 12.34]])
    yield t(
        x,
        0.25,
        4.0,
        outputs=2,
        expect=[
            t.of("float32", [[-1, 0.25, 0.25, 0.5], [1, 62.75, 62.75, 12.25]]),
            t.of("bool", [[False, True, True, True], [True, False, False, True]]),
        ],
        why="onnxruntime has it in training builds only",
    )


@dequantize.cases
def dequantize_cases(t):
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


@gather_quantized.cases
def gather_quantized_cases(t):
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
