"""Test cases of ops/image/space_depth.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..space_depth import depth_to_space, space_to_depth

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@depth_to_space.cases
def depth_to_space_cases(t: Toolbox) -> Cases:
    for shape, size in (((2, 8, 3, 4), 2), ((1, 9, 2, 5), 3), ((1, 3, 4, 4), 1)):
        yield t(t.f(*shape), blocksize=size)
        yield t(t.f(*shape), blocksize=size, mode="CRD")
    yield t(t.f(2, 8, 3, 4), blocksize=2, opset=1)


@space_to_depth.cases
def space_to_depth_cases(t: Toolbox) -> Cases:
    for shape, size in (((2, 2, 6, 4), 2), ((1, 3, 6, 9), 3), ((1, 3, 4, 4), 1)):
        yield t(t.f(*shape), blocksize=size)
        yield t(
            t.f(*shape),
            blocksize=size,
            mode="CRD",
            opset=28,
            trust="onnx",
            why="newer than onnxruntime",
        )
