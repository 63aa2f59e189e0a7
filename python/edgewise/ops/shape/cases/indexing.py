"""Test cases of ops/shape/indexing.py."""

from __future__ import annotations

from ..indexing import (
    gather,
    gather_elements,
    gather_nd,
    hardmax,
    one_hot,
    scatter,
    scatter_elements,
    scatter_nd,
)


@gather.cases
def gather_cases(t):
    x = t.f(5, 6, 7)
    for axis in (0, 1, 2, -1, -3):
        yield t(x, t.n("int64", 2, 3, low=-5, high=4), axis=axis)
        yield t(x, t.n("int32", 4, low=-5, high=4), axis=axis)
        yield t(x, 2, axis=axis)
        yield t(x, -1, axis=axis)
        yield t(x, [3], axis=axis)
        yield t(x, t.of("int64", 4), axis=axis)
    yield t(x, t.n("int64", 0, 2), axis=1)
    yield t(t.f(3, 0), t.of("int64", [1, 2]))
    yield t(t.f(4, 300), t.of("int64", [[1, 3], [0, -4]]))
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 5, 3), t.of("int64", [4, 0, -5]))


@one_hot.cases
def one_hot_cases(t):
    for axis in (0, 1, 2, -1, -3):
        yield t(t.n("int64", 2, 3, low=-9, high=8), 7, t.f(2), axis=axis)
    yield t(t.n("int32", 4, low=0, high=4), t.of("int64", 5), t.n("int64", 2))
    yield t(t.const(t.of("float32", [1, 0, 2])), t.const(t.of("float32", 3)), t.f(2))
    yield t(
        t.of("int64", 1),
        [3],
        t.of("float32", [0.5, 2]),
        expect=[t.of("float32", [0.5, 2, 0.5])],
        why="neither reference takes a scalar",
    )
    yield t(t.n("int64", 0), 3, t.f(2))


@hardmax.cases
def hardmax_cases(t):
    old = {"trust": "ort", "why": "ONNX's reference knows the newest definition only"}
    for axis in (0, 1, 2, -1):
        yield t(t.f(3, 4, 5), axis=axis)
        yield t(t.f(3, 4, 5), axis=axis, opset=11, **old)
    yield t(t.f(3, 4))
    yield t(t.f(3, 4, 2), opset=9, **old)
    yield t(t.of("float32", [[3, 3, 3, 1], [0, 1, 1, 0]]))
    yield t(t.f(3, 4, dtype="float64"))


@gather_elements.cases
def gather_elements_cases(t):
    for axis in (0, 1, 2, -1):
        shape = [2, 3, 4]
        shape[axis] = 5
        yield t(t.f(2, 3, 4), t.n("int64", *shape, low=-2, high=1), axis=axis)
    yield t(t.f(5, 6), t.n("int32", 2, 3, low=-5, high=4))
    yield t(t.f(5, 6), t.n("int64", 0, 6))
    yield t(t.f(7), t.n("int64", 9, low=-7, high=6))
    for axis in (0, 3, 6):
        yield t(
            t.f(2, 1, 3, 2, 2, 1, 2),
            t.n(
                "int64",
                *[4 if k == axis else d for k, d in enumerate((2, 1, 3, 2, 2, 1, 2))],
                low=-2,
                high=1,
            ),
            axis=axis,
        )
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 5, 3), t.n("int64", 2, 3, low=0, high=4))


@gather_nd.cases
def gather_nd_cases(t):
    x = t.f(3, 4, 5)
    for depth in (1, 2, 3):
        yield t(x, t.n("int64", 2, 3, depth, low=-3, high=2))
        yield t(x, t.n("int64", depth, low=-3, high=2))
    yield t(x, t.n("int64", 3, 2, 1, low=-4, high=3), batch_dims=1)
    yield t(x, t.n("int64", 3, 2, low=-4, high=3), batch_dims=1)
    yield t(t.f(3, 4, 5, 2), t.n("int64", 3, 4, 1, low=-5, high=4), batch_dims=2)
    yield t(x, t.n("int64", 0, 2))
    for dtype in t.types:
        yield t(t.any(dtype, 5, 3), t.of("int64", [[4, 0], [-5, 2]]))


@scatter.cases
def scatter_cases(t):
    for axis in (0, 1):
        yield t(t.f(4, 5), t.of("int64", [[0, 1, 2], [3, 2, 1]]), t.f(2, 3), opset=9, axis=axis)
    yield t(t.f(4, 5), t.of("int32", [[0, 1, 2]]), t.f(1, 3), opset=10)


@scatter_elements.cases
def scatter_elements_cases(t):
    for axis in (0, 1, -1):
        yield t(
            t.f(4, 5),
            t.of("int64", [[0, -1, 2], [1, 2, 3]] if axis == 0 else [[0, 1, -1], [3, 2, 4]]),
            t.f(2, 3),
            axis=axis,
        )
    yield t(t.f(2, 3, 4), t.n("int32", 2, 1, 3, low=0, high=0), t.f(2, 1, 3), axis=1)
    yield t(t.f(4), t.n("int64", 0), t.f(0))
    for reduction in ("add", "mul", "min", "max"):
        yield t(
            t.f(4, 5), t.n("int64", 6, 5, low=-4, high=3), t.f(6, 5), reduction=reduction, opset=18
        )
        yield t(
            t.n("int64", 4, 5),
            t.n("int64", 3, 9, low=0, high=4),
            t.n("int64", 3, 9),
            axis=1,
            reduction=reduction,
            opset=18,
        )
    for dtype in t.types:
        yield t(t.any(dtype, 5, 3), t.of("int64", [[4, 0, 1]]), t.any(dtype, 1, 3))


@scatter_nd.cases
def scatter_nd_cases(t):
    yield t(t.f(4, 5), t.of("int64", [[1], [3]]), t.f(2, 5))
    yield t(t.f(4, 5), t.of("int64", [[1, 2], [-1, -5]]), t.f(2))
    yield t(t.f(2, 3, 4), t.of("int64", [[[0, 0], [1, 2]]]), t.f(1, 2, 4))
    yield t(t.f(4, 5), t.n("int64", 0, 1), t.f(0, 5))
    places = t.of("int64", [[[i, j] for j in range(3)] for i in range(2)])
    yield t(t.f(2, 3), places, t.f(2, 3))
    yield t(t.f(2, 3), places[::-1].copy(), t.f(2, 3))
    for reduction in ("add", "mul", "min", "max"):
        yield t(t.f(4, 5), t.of("int64", [[1], [3], [1]]), t.f(3, 5), reduction=reduction, opset=18)
        yield t(
            t.n("int64", 4),
            t.of("int64", [[1], [3], [1]]),
            t.n("int64", 3),
            reduction=reduction,
            opset=18,
        )
    for dtype in t.types:
        yield t(t.any(dtype, 5, 3), t.of("int64", [[4, 0], [-5, 2]]), t.any(dtype, 2))
