"""Test cases of ops/shape/gather.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..gather import gather, gather_elements, gather_nd

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@gather.cases
def gather_cases(t: Toolbox) -> Cases:
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


@gather_elements.cases
def gather_elements_cases(t: Toolbox) -> Cases:
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
def gather_nd_cases(t: Toolbox) -> Cases:
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
