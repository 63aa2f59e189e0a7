"""Test cases of ops/norm/batch_normalization.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..batch_normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    lp_norm,
    lrn,
    mean_variance_norm,
)

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@batch_norm.cases
def batch_norm_cases(t: Toolbox) -> Cases:
    for shape in ((2, 3, 4, 5), (4, 7), (2, 5, 33), (1, 3, 2, 3, 4), (3, 1, 9, 9), (2, 16, 8, 8)):
        c = shape[1]
        statistics = [t.f(c), t.f(c), t.f(c), t.f(c, low=0.5, high=2.0)]
        yield t(t.f(*shape) + 3, *statistics, tol=1e-4)
        yield t(
            t.f(*shape),
            *statistics,
            tol=1e-4,
            epsilon=1e-2,
            opset=9,
            trust="ort",
            why="ONNX's reference of opset 9 takes the statistics of the batch",
        )
        yield t(t.f(*shape) + 3, *statistics, tol=1e-4, training_mode=1, momentum=0.8, outputs=3)
        yield t(t.f(*shape), *statistics, tol=1e-4, training_mode=1, opset=15)
    yield t(
        t.f(2, 3, 4, 4), *[t.f(3) for _ in range(3)], t.f(3, low=0.5, high=2.0), tol=1e-4, opset=7
    )
    yield t(
        t.f(2, 3, 4, 4, dtype="float16"),
        *[t.f(3, dtype="float16") for _ in range(3)],
        t.f(3, low=0.5, high=2.0, dtype="float16"),
        tol=4e-3,
    )
    # one dimension is a batch of one channel
    statistics = [t.f(1), t.f(1), t.f(1), t.f(1, low=0.5, high=2.0)]
    by_definition = {"trust": "ort", "why": "ONNX's reference takes the dimension for channels"}
    for n in (4, 1):
        yield t(t.f(n), *statistics, tol=1e-4, **by_definition)
    for dims in ((2,), (2, 3)):  # statistics of each position of each channel
        x, scale, bias, mean = (t.f(*n, 3, *dims) for n in ((2,), (), (), ()))
        variance = t.f(3, *dims, low=0.5, high=2.0)
        yield t(
            *(x, scale, bias, mean, variance),
            spatial=0,
            opset=7,
            tol=1e-4,
            trust="ort",
            why="ONNX's reference does not know spatial",
        )


@instance_norm.cases
def instance_norm_cases(t: Toolbox) -> Cases:
    for shape in ((2, 3, 4, 5), (2, 5, 33), (1, 3, 2, 3, 4), (1, 512, 10)):
        yield t(t.f(*shape) + 3, t.f(shape[1]), t.f(shape[1]), tol=1e-4)
        yield t(t.f(*shape), t.f(shape[1]), t.f(shape[1]), tol=1e-4, epsilon=1e-2, opset=6)


@group_norm.cases
def group_norm_cases(t: Toolbox) -> Cases:
    for shape, groups in (
        ((2, 6, 4, 5), 3),
        ((1, 8, 9), 2),
        ((2, 4, 3, 3), 4),
        ((2, 4, 3, 3), 1),
        ((1, 32, 8, 8), 8),
    ):
        yield t(t.f(*shape) + 3, t.f(shape[1]), t.f(shape[1]), num_groups=groups, tol=1e-4)
        yield t(
            t.f(*shape),
            t.f(groups),
            t.f(groups),
            num_groups=groups,
            epsilon=1e-2,
            opset=18,
            tol=1e-4,
        )


@lrn.cases
def lrn_cases(t: Toolbox) -> Cases:
    why = "ONNX's reference cuts windows off at the number of items"
    for size in (1, 3, 5):
        yield t(
            t.f(2, 7, 4, 5),
            size=size,
            alpha=0.5,
            beta=0.6,
            bias=2.0,
            tol=1e-4,
            trust="ort",
            why=why,
        )
    yield t(t.f(1, 4, 3, 3), size=3, tol=1e-4, trust="ort", why=why)
    yield t(t.f(1, 4, 3, 3), size=3, opset=1, tol=1e-4, trust="ort", why=why)


@lp_norm.cases
def lp_norm_cases(t: Toolbox) -> Cases:
    for p in (1, 2):
        for axis in (-1, 0, 1):
            yield t(
                t.f(3, 4, 5),
                p=p,
                axis=axis,
                tol=1e-4,
                **(
                    {
                        "trust": "ort",
                        "why": "ONNX's reference divides by the sum, not by the sum of magnitudes",
                    }
                    if p == 1
                    else {}
                ),
            )
    yield t(t.f(3, 4), tol=1e-4)
    yield t(t.of("float32", [[0, 0], [3, 4]]), trust="ort", why="ONNX's reference divides by zero")


@mean_variance_norm.cases
def mean_variance_norm_cases(t: Toolbox) -> Cases:
    yield t(t.f(2, 3, 4, 5), tol=1e-4)
    for axes in ([0], [0, 2, 3], [1, 2, 3], [-1]):
        yield t(t.f(2, 3, 4, 5), axes=axes, tol=1e-4)
