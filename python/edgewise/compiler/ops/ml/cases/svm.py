"""Test cases of ops/ml/svm.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..svm import classifier, regressor

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

_ORT = {
    "trust": "ort",
    "why": "ONNX's reference has other rules for two classes, for offsets and for probabilities",
}


def _machine(
    t: Toolbox,
    classes: int = 3,
    features: int = 4,
    kernel: str = "RBF",
    degree: float = 3.0,
    probabilities: bool = False,
    post: str = "NONE",
    labels: tuple[int, ...] = (7, 3, 9, 1),
) -> dict[str, Any]:
    """Attributes of a random SVMClassifier."""
    sizes, pairs = [3, 2, 4, 2][:classes], classes * (classes - 1) // 2

    def draw(n: int) -> list[float]:
        return t.f(n).tolist()

    out = {
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, degree],
        "post_transform": post,
        "classlabels_ints": list(labels[:classes]),
        "vectors_per_class": sizes,
        "support_vectors": draw(sum(sizes) * features),
        "coefficients": draw((classes - 1) * sum(sizes)),
        "rho": draw(pairs),
    }
    return (
        {**out, "prob_a": [-abs(x) for x in draw(pairs)], "prob_b": draw(pairs)}
        if probabilities
        else out
    )


@classifier.cases
def classifier_cases(t: Toolbox) -> Cases:
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        for classes in (2, 3, 4):
            for probabilities in (False, True):
                yield t(
                    t.f(9, 4),
                    outputs=2,
                    tol=1e-3,
                    **_ORT,
                    **_machine(t, classes, kernel=kernel, probabilities=probabilities),
                )
    for post in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        for classes in (2, 3):
            for probabilities in (False, True):
                yield t(
                    t.f(5, 4),
                    outputs=2,
                    tol=1e-3,
                    **_ORT,
                    **_machine(t, classes, probabilities=probabilities, post=post),
                )
        for classes in (1, 2, 3):
            yield t(
                t.f(5, 4),
                outputs=2,
                tol=1e-3,
                **_ORT,
                coefficients=t.f(4 * classes).tolist(),
                rho=[0.25],
                kernel_params=[0.0, 0.0, 0.0],
                classlabels_ints=[5, 2, 8][:classes],
                post_transform=post,
            )
    for coefficients in (t.f(8).tolist(), abs(t.f(8)).tolist()):
        yield t(
            t.f(9, 4) / 4,
            outputs=2,
            tol=1e-3,
            **_ORT,
            coefficients=coefficients,
            rho=[-0.125],
            kernel_params=[0.0, 0.0, 0.0],
            classlabels_ints=[5, 2],
        )
    for dtype in ("float64", "int64", "int32"):
        yield t((t.f(9, 4) * 3).astype(dtype), outputs=2, tol=1e-3, **_ORT, **_machine(t))
    yield t(t.f(4), outputs=2, tol=1e-3, **_ORT, **_machine(t))


@regressor.cases
def regressor_cases(t: Toolbox) -> Cases:
    for kernel, degree in (
        ("LINEAR", 0.0),
        ("POLY", 2.0),
        ("POLY", 3.0),
        ("POLY", 2.5),
        ("RBF", 0.0),
        ("SIGMOID", 0.0),
    ):
        for one_class in (0, 1):
            yield t(
                abs(t.f(9, 4)),
                tol=1e-3,
                **_ORT,
                kernel_type=kernel,
                kernel_params=[0.5, 0.25, degree],
                n_supports=5,
                support_vectors=abs(t.f(20)).tolist(),
                coefficients=t.f(5).tolist(),
                rho=[0.375],
                one_class=one_class,
            )
    yield t(
        t.f(5, 4),
        tol=1e-3,
        **_ORT,
        kernel_params=[0.0, 0.0, 0.0],
        n_supports=0,
        coefficients=[1.0, 2.0, -1.0, 0.5],
        rho=[0.25],
    )
