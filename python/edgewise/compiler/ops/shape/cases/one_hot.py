"""Test cases of ops/shape/one_hot.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..one_hot import hardmax, one_hot

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@one_hot.cases
def one_hot_cases(t: Toolbox) -> Cases:
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
def hardmax_cases(t: Toolbox) -> Cases:
    old = {"trust": "ort", "why": "ONNX's reference knows the newest definition only"}
    for axis in (0, 1, 2, -1):
        yield t(t.f(3, 4, 5), axis=axis)
        yield t(t.f(3, 4, 5), axis=axis, opset=11, **old)
    yield t(t.f(3, 4))
    yield t(t.f(3, 4, 2), opset=9, **old)
    yield t(t.of("float32", [[3, 3, 3, 1], [0, 1, 1, 0]]))
    yield t(t.f(3, 4, dtype="float64"))
