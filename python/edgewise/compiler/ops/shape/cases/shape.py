"""Test cases of ops/shape/shape.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..shape import (
    constant_of_shape,
    expand,
    eye_like,
    flatten,
    identity,
    range_,
    reshape,
    shape,
    size,
    squeeze,
    unsqueeze,
)

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@identity.cases
def identity_cases(t: Toolbox) -> Cases:
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 2, 3))
    yield t(t.f())
    yield t(t.f(0, 3))


@shape.cases
def shape_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 4))
    yield t(t.f())
    yield t(t.f(0, 3, dtype="float16"))
    for start, end in ((1, 2), (-2, -1), (-9, 9), (2, 1), (1, -1)):
        yield t(t.n("int8", 2, 3, 4), start=start, end=end)
    yield t(t.f(2, 3, 4), start=-1)


@size.cases
def size_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 4))
    yield t(t.b())
    yield t(t.f(0, 3))


@reshape.cases
def reshape_cases(t: Toolbox) -> Cases:
    for wanted in ([6, 4], [-1], [0, -1], [4, 0, 2, -1], [2, 3, 4], [1, 24, 1], [4, -1, 2]):
        yield t(t.f(2, 3, 4), wanted)
    yield t(t.f(1, 1), [])
    yield t(t.f(), [1, 1])
    yield t(t.f(0, 3), [3, 0], allowzero=1)
    yield t(t.f(2, 0, 3), [0, 0, 3, 1])
    yield t(t.f(2, 3), [3, 2], opset=5)
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 2, 3), [3, -1])


@flatten.cases
def flatten_cases(t: Toolbox) -> Cases:
    for axis in (0, 1, 2, 3, -1, -2, -3):
        yield t(t.f(2, 3, 4), axis=axis)
    yield t(t.f(5))
    yield t(t.f(2, 0, 3), axis=2)
    yield t(t.f(2, 3, 4), opset=9)


@squeeze.cases
def squeeze_cases(t: Toolbox) -> Cases:
    x = t.f(1, 3, 1, 2)
    yield t(x)
    yield t(x, [0])
    yield t(x, [-2, 0])
    yield t(x, [2])
    yield t(x, opset=11, axes=[0, 2])
    yield t(x, opset=11, axes=[-2])
    yield t(x, opset=11)
    yield t(t.f(1, 1, dtype="float16"))
    yield t(t.f(1, 0))


@unsqueeze.cases
def unsqueeze_cases(t: Toolbox) -> Cases:
    for axes in ([0], [-1], [1, 2], [3, 0], [-1, 0]):
        yield t(t.f(2, 3), axes)
        yield t(t.f(2, 3), opset=11, axes=axes)
    yield t(t.n("int64"), [0])
    yield t(t.f(0, 2), [1])


@expand.cases
def expand_cases(t: Toolbox) -> Cases:
    for x, wanted in [
        ((3, 1), [2, 3, 4]),
        ((2, 3, 4), [1]),
        ((), [2, 2]),
        ((5,), [5]),
        ((1, 3, 1, 2), [4, 1, 5, 1]),
        ((0, 1), [0, 3]),
        ((1, 3), [0, 3]),
        ((2, 3), []),
    ]:
        yield t(t.f(*x), wanted)
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 3, 1), [3, 5])


@range_.cases
def range_cases(t: Toolbox) -> Cases:
    for dtype in ("int64", "int32", "int16", "float32", "float64"):
        for start, limit, delta in ((0, 5, 1), (5, 0, -2), (3, 3, 1), (4, 1, 1), (-7, 800, 3)):
            yield t(*[t.const(t.of(dtype, v)) for v in (start, limit, delta)])
    yield t(*[t.const(t.of("float32", v)) for v in (0.1, 1.0, 0.3)])
    yield t(*[t.const(t.of("float32", v)) for v in (1.0, -1.0, -0.25)])


@constant_of_shape.cases
def constant_of_shape_cases(t: Toolbox) -> Cases:
    yield t([2, 3])
    yield t([70, 70])
    yield t([])
    yield t([0, 2])
    for dtype in t.types:
        if dtype != "bfloat16":
            yield t([2, 3], value=t.attr(t.of(dtype, [1])))
            yield t([30, 30], value=t.attr(t.of(dtype, [1])))


@eye_like.cases
def eye_like_cases(t: Toolbox) -> Cases:
    for k in (-1, 0, 2, 9):
        yield t(t.n("int32", 4, 5), k=k)
    yield t(t.f(3, 3), dtype=11)
    yield t(t.n("int64", 2, 3), dtype=1)
    yield t(t.f(40, 30))
    yield t(t.f(0, 3))
