"""Test cases of ops/contrib/hyper.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hyper import after, before, gate, norm

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@norm.cases
def norm_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 4, 6), tol=1e-4)
    for scale in ((6,), (4, 6), (24,)):
        yield t(t.f(2, 3, 4, 6), t.f(*scale), epsilon=1e-3, tol=1e-4)
        yield t(t.f(5, 24), t.f(*scale), num_branches=4, tol=1e-4)


@before.cases
def before_cases(t: Toolbox) -> Cases:
    for factors in ((2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 6)):
        yield t(t.f(2, 3, 4, 6), t.f(*factors), tol=1e-4)
        yield t(t.f(2, 3, 24), t.f(*factors), num_branches=4, reduction_scale=0.25, tol=1e-4)
    yield t(t.f(2, 3, 24), t.f(2, 3, 24), num_branches=4, tol=1e-4)


@after.cases
def after_cases(t: Toolbox) -> Cases:
    for factors in ((2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 6)):
        yield t(t.f(2, 3, 4, 6), t.f(2, 3, 6), t.f(*factors), tol=1e-4)
        yield t(
            *(t.f(2, 3, 24), t.f(2, 3, 6), t.f(*factors), t.f(2, 3, 4, 4)), num_branches=4, tol=1e-4
        )


@gate.cases
def gate_cases(t: Toolbox) -> Cases:
    for normed in (False, True):
        yield t(
            *(t.f(2, 3, 4, 6), t.f(2, 3, 4, 6), t.f(2, 3, 6), t.f(4, 6), t.f(4, 6)),
            *([t.f(4, 6)] if normed else []),
            outputs=1 + normed,
            tol=1e-4,
        )
