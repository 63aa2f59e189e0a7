"""Test cases of ops/ml/linear.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..linear import linear_classifier, linear_regressor

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@linear_regressor.cases
def linear_regressor_cases(t: Toolbox) -> Cases:
    only = {"trust": "ort", "why": "ONNX's reference keeps the input's type, and has no transforms"}
    yield t(t.f(5, 4), coefficients=[1.0, -2.0, 3.0, 0.5], intercepts=[0.25], tol=1e-4, **only)
    yield t(
        t.f(5, 2),
        coefficients=[1.0, -2.0, 3.0, 0.5],
        intercepts=[0.25, 2.0],
        targets=2,
        tol=1e-4,
        **only,
    )
    for post in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield t(
            t.f(5, 2),
            coefficients=[1.0, -2.0, 3.0, 0.5],
            intercepts=[0.25, 2.0],
            targets=2,
            post_transform=post,
            tol=1e-4,
            **only,
        )
    yield t(
        t.f(5, 2, low=0, high=0.3),
        coefficients=[1.0, 1.0],
        intercepts=[0.05],
        post_transform="PROBIT",
        tol=1e-4,
        **only,
    )
    more = [i / 7 - 1 for i in range(12)]  # coefficients than there are features
    ignored = {"trust": "ort", "why": "ONNX's reference refuses what onnxruntime ignores"}
    yield t(t.f(5, 2), coefficients=more, intercepts=[0.25, 2, 1], targets=3, tol=1e-4, **ignored)


@linear_classifier.cases
def linear_classifier_cases(t: Toolbox) -> Cases:
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        yield t(
            t.f(7, 2),
            coefficients=[1.0, -2.0, 3.0, 0.5, -1.0, 0.3],
            intercepts=[0.25, 2.0, -0.5],
            classlabels_ints=[5, 2, 9],
            post_transform=post,
            outputs=2,
            tol=1e-4,
            multi_class=0,
        )
        yield t(
            t.f(7, 3),
            coefficients=[1.0, -2.0, 3.0],
            intercepts=[0.25],
            classlabels_ints=[-1, 1],
            post_transform=post,
            outputs=2,
            tol=1e-4,
            **(
                {"trust": "ort", "why": "onnxruntime writes 1 - score and score"}
                if post != "LOGISTIC"
                else {}
            ),
        )
    yield t(
        t.n("int64", 7, 2, low=-5, high=5),
        coefficients=[1.0, -2.0, 3.0, 0.5, -1.0, 0.3],
        intercepts=[0.25, 2.0, -0.5],
        classlabels_ints=[0, 1, 2],
        outputs=2,
        tol=1e-4,
    )
    more = [i / 7 - 1 for i in range(12)]  # coefficients than there are features
    ignored = {"trust": "ort", "why": "ONNX's reference refuses what onnxruntime ignores"}
    for intercepts, labels in (([0.25, 2.0, -0.5], [4, 0, 2]), ([0.25], [0, 1])):
        yield t(
            t.f(5, 2),
            coefficients=more,
            intercepts=intercepts,
            classlabels_ints=labels,
            outputs=2,
            tol=1e-4,
            **ignored,
        )
