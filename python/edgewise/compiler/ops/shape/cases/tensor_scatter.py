"""Test cases of ops/shape/tensor_scatter.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tensor_scatter import tensor_scatter

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@tensor_scatter.cases
def tensor_scatter_cases(t: Toolbox) -> Cases:
    new = {"opset": 24}
    yield t(t.f(2, 3, 6, 4), t.f(2, 3, 2, 4), t.of("int64", [1, 4]), **new)
    yield t(t.f(2, 3, 6, 4), t.f(2, 3, 6, 4), **new)
    yield t(t.f(3, 6, 4), t.f(3, 3, 4), t.of("int64", [0, 3, 1]), axis=1, **new)
    yield t(t.f(2, 3, 6, 4), t.f(2, 3, 4, 4), t.of("int64", [1, 5]), mode="circular", **new)
    yield t(t.f(2, 3, 6), t.f(2, 3, 2), t.of("int64", [1, 4]), axis=-1, **new)
    yield t(
        t.f(2, 3, 6, 4, dtype="float16"),
        t.f(2, 3, 1, 4, dtype="float16"),
        t.of("int64", [1, 5]),
        **new,
    )
