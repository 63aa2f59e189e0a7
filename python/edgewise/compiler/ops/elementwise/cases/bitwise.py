"""Test cases of ops/elementwise/bitwise.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import OPS
from ..bitwise import bit_shift, bitwise_not, is_inf

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@bit_shift.cases
def bit_shift_cases(t: Toolbox) -> Cases:
    signed = {"opset": 28, "trust": "onnx", "why": "onnxruntime does not know this opset"}
    for direction in ("LEFT", "RIGHT"):
        for dtype in ("uint8", "uint16", "uint32", "uint64"):
            only = (
                {"trust": "onnx", "why": "onnxruntime has not all types"}
                if dtype == "uint16"
                else {}
            )
            yield t(t.n(dtype, 3, 5), t.n(dtype, 3, 5, low=0, high=7), direction=direction, **only)
        for dtype in ("int8", "int16", "int32", "int64", "uint32", "uint8"):
            yield t(
                t.n(dtype, 3, 5), t.n(dtype, 3, 5, low=0, high=7), direction=direction, **signed
            )
            bits = 8 * t.n(dtype).itemsize
            x, y = (
                (
                    t.of(dtype, [[1], [100], [0]])
                    if dtype[0] == "u"
                    else t.of(dtype, [[-100], [100], [-1]])
                ),
                t.of(dtype, [bits, bits + 5, bits - 1]),
            )
            yield t(x, y, direction=direction, **signed)
        yield t(
            t.of("int32", [-7, 7, -7]), t.of("int32", [-1, -40, 40]), direction=direction, **signed
        )
        yield t(t.n("uint32", 4, 1), t.n("uint32", 5, low=0, high=31), direction=direction)


@bitwise_not.cases
def bitwise_not_cases(t: Toolbox) -> Cases:
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        yield t(t.n(dtype, 3, 7))
    yield t(t.n("int32"))
    yield t(t.n("int64", 0, 2))


@is_inf.cases
def is_inf_cases(t: Toolbox) -> Cases:
    values = [1.0, float("inf"), float("-inf"), float("nan"), -3.0, 0.0]
    for attrs in (
        {},
        {"detect_positive": 0},
        {"detect_negative": 0},
        {"detect_positive": 0, "detect_negative": 0},
    ):
        yield t(t.of("float32", values), **attrs)
        yield t(t.of("float64", values), opset=10, **attrs)
        yield t(t.of("float16", values), opset=20, **attrs)
    yield t(t.f(3, 4))
    yield t(t.f(0, 4))
    yield t(t.f())


def _bitwise_cases(t: Toolbox) -> Cases:
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        yield t(t.n(dtype, 3, 5), t.n(dtype, 3, 5))
    yield t(t.n("int32", 2, 3, 37), t.n("int32", 37))
    yield t(t.n("int64", 2, 1, 3), t.n("int64", 4, 1))
    yield t(t.n("int32", 0, 3), t.n("int32", 3))
    yield t(t.n("int32"), t.n("int32"))


for _name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
    OPS["", _name].cases(_bitwise_cases)
