"""Test cases of ops/image/regions.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..regions import max_roi_pool, roi_align

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@roi_align.cases
def roi_align_cases(t: Toolbox) -> Cases:
    boxes = t.of(
        "float32",
        [[0, 0, 9, 9], [0, 5, 4, 9], [5.3, 5.1, 8.7, 7.9], [-3, -2, 30, 14], [4, 4, 4, 4]],
    )
    for mode in ("avg", "max"):
        for samples in (0, 1, 2, 3):
            for opset in (10, 16):
                yield t(
                    t.f(2, 3, 10, 12),
                    boxes,
                    t.of("int64", [0, 1, 0, 1, 1]),
                    mode=mode,
                    output_height=3,
                    output_width=4,
                    sampling_ratio=samples,
                    opset=opset,
                    tol=1e-4,
                    **(
                        {"trust": "ort", "why": "ONNX's reference knows the newest definition only"}
                        if opset < 16
                        else {}
                    ),
                )
    for half in ("half_pixel", "output_half_pixel"):
        yield t(
            t.f(1, 2, 10, 10),
            boxes,
            t.of("int64", [0] * 5),
            coordinate_transformation_mode=half,
            output_height=5,
            output_width=5,
            sampling_ratio=2,
            spatial_scale=0.5,
            opset=16,
            tol=1e-4,
        )
    yield t(t.f(1, 2, 10, 10), t.f(0, 4), t.n("int64", 0), opset=16)
    x = t.f(2, 3, 10, 12)
    x[0, 0, 0, 0] = x[1, 1, 7, 2] = x[0, 2, 5, 6] = float("nan")
    places = t.of("int64", [0, 1, 0, 1, 1])
    yield t(x, boxes, places, mode="max", output_height=3, output_width=4, sampling_ratio=2)


@max_roi_pool.cases
def max_roi_pool_cases(t: Toolbox) -> Cases:
    boxes = t.of(
        "float32",
        [
            [0, 0, 0, 9, 9],
            [1, 0, 5, 4, 9],
            [0, 5.3, 5.1, 8.7, 7.9],
            [1, 2, 2, 30, 14],
            [1, 4, 4, 4, 4],
        ],
    )
    for size in ([3, 4], [1, 1], [12, 2]):
        yield t(t.f(2, 3, 10, 12), boxes, pooled_shape=size)
        yield t(t.f(2, 3, 10, 12), boxes, pooled_shape=size, spatial_scale=0.5)
    yield t(t.f(1, 2, 10, 10), t.f(0, 5), pooled_shape=[2, 2])
