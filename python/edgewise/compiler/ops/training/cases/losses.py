"""Test cases of ops/training/losses.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..losses import nll, softmax_cross_entropy

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


def _cases(t: Toolbox, outputs: int) -> Cases:
    for opset in (12, 13):
        for reduction in ("none", "mean", "sum"):
            for shape in ((5, 7), (1, 3), (3, 4, 2), (2, 5, 3, 4), (40, 300)):
                labels = shape[:1] + shape[2:]
                for dtype in ("int32", "int64"):
                    y = t.n(dtype, *labels, low=0, high=shape[1] - 1)
                    yield t(
                        t.f(*shape), y, reduction=reduction, opset=opset, tol=1e-4, outputs=outputs
                    )
                yield t(
                    t.f(*shape),
                    y,
                    t.f(shape[1], low=0.1, high=2),
                    reduction=reduction,
                    opset=opset,
                    tol=1e-4,
                )
        y = t.n("int64", 6, 2, low=0, high=4)
        y[0], y[3, 1] = -100, -100
        yield t(t.f(6, 5, 2), y, opset=opset, ignore_index=-100, tol=1e-4, outputs=outputs)
        yield t(t.f(6, 5, 2), y, t.f(5, low=0.1, high=2), opset=opset, ignore_index=-100, tol=1e-4)
        yield t(t.f(6, 5, 2), y, opset=opset, ignore_index=-100, reduction="none", tol=1e-4)
        yield t(t.f(6, 5), t.n("int64", 6, low=0, high=4), opset=opset, ignore_index=2, tol=1e-4)
    yield t(
        t.of("float32", [[90, -90, 0], [1e4, 1, 2]]),
        t.of("int64", [1, 0]),
        reduction="none",
        tol=1e-4,
    )


@softmax_cross_entropy.cases
def softmax_cross_entropy_cases(t: Toolbox) -> Cases:
    yield from _cases(t, 2)
    yield t(t.f(3, 4, dtype="float16"), t.n("int64", 3, low=0, high=3), tol=4e-3)


@nll.cases
def nll_cases(t: Toolbox) -> Cases:
    yield from _cases(t, 1)
