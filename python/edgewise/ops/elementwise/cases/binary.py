"""Test cases of ops/elementwise/binary.py."""

from __future__ import annotations

from ..binary import clip, pow_
from ..unary import INF, NAN


@pow_.cases
def pow_cases(t):
    for e in (2.0, 3.0, 1.0, 0.5, -1.0, 0.0, 1.7):
        yield t(t.f(3, 37, low=0.1, high=5), e)
    for e in (2.0, 3.0, -2.0):
        yield t(t.f(3, 5), e)
    yield t(t.f(3, 1, 5, low=0, high=3), t.f(2, 5))
    yield t(t.f(3, 5), 2)
    yield t(t.f(3, 5, dtype="float64"), t.of("float32", [2, 3, 1, 0, 5]))
    yield t(t.f(5, low=0.5, high=2, dtype="float16"), t.of("float16", [2, 3, 1, 0, 5]))
    yield t(t.n("int32", 3, 4, low=-4, high=4), t.n("int32", 4, low=0, high=4))
    yield t(t.n("int64", 3, 4, low=-4, high=4), 2)
    yield t(t.n("int64", 3, 5, low=0, high=9), t.f(5, low=0, high=4))
    yield t(t.n("int32", 3, 4, low=-4, high=4), 3.0)
    yield t(t.f(2, 1), t.f(1, 1, 1, 1))
    yield t(t.f(0, 3), 2.0)
    yield t(
        t.of("float32", [0.0, -0.0, INF, -INF, NAN, 2.0, -8.0]).reshape(7, 1),
        t.of("float32", [0.0, 0.5, 2.0, 3.0, -1.0, INF, NAN]),
    )


@clip.cases
def clip_cases(t):
    yield t(t.f(3, 7), -0.5, 0.5)
    yield t(t.f(3, 7), None, 0.5)
    yield t(t.f(3, 7), -0.5)
    yield t(t.f(3, 7))
    yield t(t.f(3, 7), 0.5, -0.5)
    yield t(t.f(3, 7), -0.5, 0.5, opset=11)
    yield t(t.f(3, 7), opset=6, min=-0.5, max=0.5)
    yield t(t.f(3, 7), opset=6, min=-0.5)
    yield t(t.f(3, 7), opset=6)
    yield t(t.of("float32", [NAN, INF, -INF, 0.2]), -0.5, 0.5)
    yield t(t.f(5, dtype="float64"), t.of("float64", -0.5), t.of("float64", 0.1))
    yield t(t.f(5, dtype="float16"), t.of("float16", -0.5), t.of("float16", 0.1))
    for dtype in ("uint8", "int8", "int32", "int64", "uint64"):
        yield t(t.n(dtype, 9), t.of(dtype, 10), t.of(dtype, 40))
    yield t(t.f(0, 7), -0.5, 0.5)
