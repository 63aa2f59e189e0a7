"""Test cases of ops/shape/concat.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..concat import concat, concat_training, split, split_training

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@concat.cases
def concat_cases(t: Toolbox) -> Cases:
    for axis in (0, 1, 2, -1, -3):
        shapes = [[2, 3, 4] for _ in range(3)]
        for i, s in enumerate(shapes):
            s[axis] = i + 1
        yield t(*[t.f(*s) for s in shapes], axis=axis)
    yield t(t.f(2, 3), axis=0)
    yield t(t.f(0, 3), t.f(2, 3), axis=0)
    yield t(t.f(2, 0), t.f(2, 3), t.f(2, 0), t.f(2, 1), axis=1)
    yield t(t.f(0, 3), t.f(0, 2), axis=1)
    yield t(t.f(2, 3), t.f(2, 3), opset=9, axis=1)
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 2, 3), t.any(dtype, 2, 1), axis=1)


@split.cases
def split_cases(t: Toolbox) -> Cases:
    yield t(t.f(6, 4), [1, 2, 3], outputs=3)
    yield t(t.f(6, 4), [1, 0, 3], outputs=3, axis=-1)
    yield t(t.f(6, 4), outputs=3, opset=13)
    yield t(t.f(6, 4), outputs=2, opset=11, axis=1, split=[3, 1])
    yield t(t.f(6, 4), outputs=2, opset=11, axis=1)
    yield t(t.f(7, 4), outputs=3, num_outputs=3)
    yield t(t.f(2, 5), outputs=2, num_outputs=2, axis=1)
    yield t(t.f(0, 4), outputs=2, num_outputs=2, axis=1)
    for dtype in (*t.types, *t.small):
        yield t(t.any(dtype, 3, 5), [2, 3], outputs=2, axis=1)


@concat_training.cases
def concat_training_cases(t: Toolbox) -> Cases:
    xy = t.f(2, 7)
    yield t(
        xy[:, :3].copy(),
        xy[:, 3:].copy(),
        outputs=2,
        axis=1,
        expect=[xy, t.of("int64", [3, 4])],
        why="onnxruntime has it in training builds only",
    )


@split_training.cases
def split_training_cases(t: Toolbox) -> Cases:
    x = t.f(2, 7)
    yield t(
        x,
        [3, 4],
        outputs=2,
        axis=1,
        expect=[x[:, :3], x[:, 3:]],
        why="onnxruntime has it in training builds only",
    )
