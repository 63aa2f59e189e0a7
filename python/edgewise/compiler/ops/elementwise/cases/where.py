"""Test cases of ops/elementwise/where.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..where import where

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@where.cases
def where_cases(t: Toolbox) -> Cases:
    yield t(t.b(2, 3), t.f(2, 3), t.f(2, 3))
    yield t(t.b(3), t.f(2, 1, 3), t.f(4, 1))
    yield t(t.b(2, 1, 1, 5), t.f(3, 4, 5), t.f())
    yield t(t.b(), t.f(3), t.f(3))
    yield t(t.b(0, 3), t.f(1, 3), t.f())
    for dtype in (
        "float64",
        "float16",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint64",
        "bool",
    ):
        yield t(t.b(3, 5), t.any(dtype, 3, 5), t.any(dtype, 5))
