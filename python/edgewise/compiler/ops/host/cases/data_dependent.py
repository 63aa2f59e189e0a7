"""Test cases of ops/host/data_dependent.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data_dependent import compress, nms, non_zero, unique, unique_unsorted, warping

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@non_zero.cases
def non_zero_cases(t: Toolbox) -> Cases:
    for dtype in t.types:
        yield t(t.of(dtype, [[1, 0, 3], [0, 0, 1]]))
    yield t(t.of("float32", [0.0, -0.0, float("nan"), 1e-40]))
    yield t((t.f(2, 3, 4, 5) > 0).astype("float32"))
    yield t(t.b(40, 33))
    yield t(t.of("int64", [0, 0]))
    yield t(t.f(0, 3))


@compress.cases
def compress_cases(t: Toolbox) -> Cases:
    for axis in (0, 1, -1):
        yield t(t.f(3, 2), t.of("bool", [0, 1]), axis=axis)
    yield t(t.f(3, 2), t.of("bool", [0, 1, 0, 0, 1]))
    yield t(t.f(3, 2), t.of("bool", [0, 0]), axis=0)
    for dtype in t.types:
        yield t(t.any(dtype, 4, 3), t.of("bool", [1, 0, 1]), axis=0)


@unique.cases
def unique_cases(t: Toolbox) -> Cases:
    x = t.of("float32", [2, 1, 1, 3, 4, 3, -0.0, 0])
    for order in (0, 1):
        yield t(x, outputs=4, sorted=order)
        yield t(t.n("int64", 6, 3, low=0, high=1), outputs=4, sorted=order, axis=0)
    yield t(x, outputs=[True, False, True, False])
    yield t(t.n("int64", 300, low=-50, high=50), outputs=4)
    yield t(t.n("int64", 1000, low=0, high=400), outputs=4, sorted=0)
    for order in (0, 1):
        yield t(t.n("int64", 3, 7, low=0, high=1), outputs=4, sorted=order, axis=1)
        yield t(t.n("int8", 2, 9, 2, low=0, high=1), outputs=4, sorted=order, axis=-2)
    for dtype in ("float64", "int8", "int64"):
        yield t(t.n(dtype, 40, low=0, high=9), outputs=4)


@nms.cases
def nms_cases(t: Toolbox) -> Cases:
    for center in (0, 1):
        boxes = t.f(2, 60, 4, low=0.1, high=1.0)
        scores = t.f(2, 3, 60, low=0, high=1)
        for most, iou, score in (
            (10, 0.5, 0.3),
            (60, 0.2, 0.0),
            (3, 0.0, 0.9),
            (100, 1.0, 0.5),
            (0, 0.5, 0.0),
        ):
            yield t(
                boxes,
                scores,
                t.of("int64", [most]),
                t.of("float32", [iou]),
                t.of("float32", [score]),
                center_point_box=center,
            )
    yield t(boxes, scores, t.of("int64", 4))
    yield t(boxes, scores.round(1), t.of("int64", [20]), t.of("float32", [0.3]))


@unique_unsorted.cases
def unique_unsorted_cases(t: Toolbox) -> Cases:
    for count in (40, 1, 0):
        yield t(t.f(count).round(), outputs=3)


@warping.cases
def warping_cases(t: Toolbox) -> Cases:
    for shape in ((7, 12), (1, 5, 3), (1, 9), (6, 1), (30, 25)):
        yield t(t.f(*shape))
    yield t(t.f(4, 4) * 0)  # all paths cost the same
    yield t(t.n("int8", 12, 9, low=0, high=3).astype("float32"))
