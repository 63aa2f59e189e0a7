"""Test cases of ops/elementwise/cast.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....declare.formula import INF, NAN
from ..cast import cast, cast_like

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@cast.cases
def cast_cases(t: Toolbox) -> Cases:
    # long, but only a list of cases
    numbers = {
        1: "float32",
        2: "uint8",
        3: "int8",
        4: "uint16",
        5: "int16",
        6: "int32",
        7: "int64",
        9: "bool",
        10: "float16",
        11: "float64",
        12: "uint32",
        13: "uint64",
        16: "bfloat16",
    }
    for a in numbers.values():
        x = (
            t.b(3, 11)
            if a == "bool"
            else abs(t.f(3, 11, dtype=a) * 20)
            if "float" in a
            else t.n(a, 3, 11, low=0)
        )
        for code in numbers:
            yield t(x, to=code)
    for code in (3, 5, 6, 7, 9, 10, 11):
        yield t(t.of("float32", [-3.7, 3.7, -0.5, 0.5, 1e-9, 100.99, 0]), to=code)
        yield t(t.of("int64", [-3, 100, 0, 1]), to=code)
    for code in (1, 9, 10, 11, 16):
        yield t(
            t.of(
                "float32",
                [
                    NAN,
                    INF,
                    -INF,
                    -0.0,
                    65519,
                    65520,
                    1e-8,
                    5.9604645e-8,
                    2049,
                    2051,
                    1.0009766,
                    1.0004883,
                ],
            ),
            to=code,
        )
    yield t(t.of("int64", [2**40 + 5, -(2**40) - 7, 300, -129]), to=6)
    yield t(t.of("int32", [300, -129, 255, 256]), to=2)
    yield t(t.f(0, 2), to=7)
    yield t(t.f(), to=7)
    mine = {"trust": "onnx", "opset": 25, "why": "onnxruntime has not all of them"}
    small = {
        17: "float8_e4m3fn",
        18: "float8_e4m3fnuz",
        19: "float8_e5m2",
        20: "float8_e5m2fnuz",
        21: "uint4",
        22: "int4",
        23: "float4_e2m1fn",
        25: "uint2",
        26: "int2",
        27: "float6_e2m3fn",
        28: "float6_e3m2fn",
    }
    hard = [
        0.0,
        -0.0,
        INF,
        -INF,
        1e9,
        -1e9,
        448,
        464,
        464.1,
        240,
        248,
        57344,
        61439,
        61440,
        3.25,
        -3.5,
        0.25,
        0.75,
        1e-6,
        0.0009765625,
        2**-9,
        2**-10,
        3 * 2**-11,
        5,
        6,
        7.75,
        28,
        29.9,
        -7.25,
    ]
    for code, dtype in small.items():
        opset = {**mine, "opset": 28} if "float6" in dtype else mine
        yield t(t.f(3, 37) * 3 if "float" in dtype else t.n("float32", 3, 7), to=code, **opset)
        for to in (1, 3, 10, 11, 7):
            yield t(t.any(dtype, 3, 11), to=to, **opset)
        yield t(t.any("int64", 3, 5), to=code, **opset)
        if "float" in dtype:
            yield t(t.of("float32", [NAN, *hard]), to=code, **opset)
            yield t(t.of("float64", hard), to=code, **opset)
            if "float8" in dtype:
                yield t(t.of("float32", [NAN, *hard]), to=code, saturate=0, **opset)
    yield t(
        t.of("float64", [1.0625, 1.0625 + 2**-40, 1.1875 - 2**-40]),
        to=17,
        expect=[t.of("float8_e4m3fn", [1, 1.125, 1.125])],
        why="the reference rounds twice, to float32 first",
    )
    for dtype in ("uint8", "int8", "float8_e4m3fn"):
        yield t(t.any(dtype, 9), to=21, **mine)
        yield t(t.any(dtype, 9), to=19, **mine)
    yield t(
        t.of("int4", [-8, -1, 7]),
        to=21,
        expect=[t.of("uint4", [8, 15, 7])],
        why="the reference fails at it",
    )
    powers = t.of("float32", [NAN, 1.0, 1.5, 1.25, 1.75, 2, 3, 0.1, 1e-30, 1.7e38, 2.5e38, 1e30])
    for mode in ("up", "down", "nearest"):
        yield t(powers, to=24, round_mode=mode, **mine)
    yield t(t.of("float8_e8m0fnu", [NAN, 1.0, 0.5, 2**-127, 2.0**127, 8]), to=1, **mine)
    yield t(
        t.of("float32", [0.0, INF, 1.0]),
        to=24,
        expect=[t.of("float8_e8m0fnu", [2**-127, 2.0**127, 1.0])],
        opset=25,
        why="the reference makes NaN of infinity, against ONNX's table",
    )
    yield t(
        t.of("float32", [0.0, INF, 1.0]),
        to=24,
        saturate=0,
        round_mode="nearest",
        expect=[t.of("float8_e8m0fnu", [NAN, NAN, 1.0])],
        opset=25,
        why="the reference makes 2^-127 of 0, against ONNX's table",
    )


@cast_like.cases
def cast_like_cases(t: Toolbox) -> Cases:
    for dtype in ("float32", "float16", "float64", "int64", "bool"):
        yield t(t.f(3, 5), t.any(dtype, 2))
        yield t(t.n("int32", 3, 5), t.any(dtype, 0))
