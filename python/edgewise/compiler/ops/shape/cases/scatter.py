"""Test cases of ops/shape/scatter.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..scatter import scatter, scatter_elements, scatter_nd

if TYPE_CHECKING:
    from typing import Any

    from ....declare.annotations import Cases, Toolbox


def _reduced(t: Toolbox, index: Any, *updates: int) -> Cases:
    """Each reduction of each type; unsigned numbers with their highest bits."""
    for dtype in t.types:
        for reduction in ("add", "mul", "min", "max"):
            x, u = t.any(dtype, 5, 3), t.any(dtype, *updates)
            if dtype[0] == "u":
                x, u = (t.of(dtype, 0) - v for v in (x, u))
            yield t(x, index, u, reduction=reduction, opset=18, tol=1e-2 if "16" in dtype else None)


@scatter.cases
def scatter_cases(t: Toolbox) -> Cases:
    for axis in (0, 1):
        yield t(t.f(4, 5), t.of("int64", [[0, 1, 2], [3, 2, 1]]), t.f(2, 3), opset=9, axis=axis)
    yield t(t.f(4, 5), t.of("int32", [[0, 1, 2]]), t.f(1, 3), opset=10)


@scatter_elements.cases
def scatter_elements_cases(t: Toolbox) -> Cases:
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
    yield from _reduced(t, t.of("int64", [[4, 0, 1], [4, 2, 1]]), 2, 3)


@scatter_nd.cases
def scatter_nd_cases(t: Toolbox) -> Cases:
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
    yield from _reduced(t, t.of("int64", [[4], [2], [4]]), 3, 3)
