"""Test cases of ops/contrib/matrices.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..matrices import distances, inverse, unfold

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@unfold.cases
def unfold_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 7, 3), dim=1, size=3, step=2)
    yield t(t.f(2, 7), dim=-1, size=2, step=1)
    yield t(t.f(7), dim=0, size=7, step=1)


@distances.cases
def distances_cases(t: Toolbox) -> Cases:
    for name in ("euclidean", "sqeuclidean"):
        yield t(t.f(4, 3), t.f(5, 3), metric=name, tol=1e-4)


@inverse.cases
def inverse_cases(t: Toolbox) -> Cases:
    for shape in ((1, 1), (0, 3, 3), (4, 1, 1), (3, 3), (2, 4, 4), (2, 1, 9, 9)):
        yield t(t.f(*shape), tol=1e-3)
    yield t(t.of("float32", [[0, 2, 0], [0, 0, 4], [1, 0, 0]]), tol=1e-4)  # rows change places
    yield t(t.f(3, 5, 5, dtype="float64"), tol=1e-6)
