"""Test cases of ops/product/determinant.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..determinant import det

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@det.cases
def det_cases(t: Toolbox) -> Cases:
    for shape in ((1, 1), (2, 2), (3, 3), (2, 3, 4, 4), (7, 7), (20, 20)):
        yield t(t.f(*shape), tol=1e-4)
    yield t(t.of("float32", [[0, 1, 2], [0, 3, 4], [0, 5, 6]]))
    yield t(t.of("float32", [[0, 2, 1], [3, 0, 0], [0, 1, 5]]))
    yield t(t.f(0, 3, 3), trust="onnx", why="onnxruntime gives 1 or nothing")
    yield t(t.f(3, 3, dtype="float64"), opset=11)
