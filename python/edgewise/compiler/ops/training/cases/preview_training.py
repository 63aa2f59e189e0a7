"""Test cases of ops/training/preview_training.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ... import OPS
from ..preview_training import DOMAIN, gradient

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@gradient.cases
def gradient_cases(t: Toolbox) -> Cases:
    """One node alone computes no gradient of anything else than its input:
    tests/ops/gradients/test_gradient_node.py has the others.
    """
    x = t.f(2, 3)
    yield t(x, fold=False, expect=[x * 0 + 1], why="no reference has it", y="x0", xs=["x0"])


def _cases(states: int, *attributes: dict[str, Any]) -> Callable[[Toolbox], Cases]:
    def cases(t: Toolbox) -> Cases:
        only = {"trust": "onnx", "why": "onnxruntime does not have it"}
        for dtype in ("float64", "float32"):
            for attrs in attributes:
                for step in (0, 1, 7):
                    count = (
                        2 if states == 2 and dtype == "float32" else 1
                    )  # the reference's Adam keeps that type for several tensors only
                    x = [
                        abs(t.f(2, 3, dtype=dtype)) if k > 1 else t.f(2, 3, dtype=dtype)
                        for k in range(2 + states)
                        for _ in range(count)
                    ]
                    yield t(
                        t.of("float32", 0.1),
                        t.of("int64", step),
                        *x,
                        outputs=count * (1 + states),
                        tol=1e-4,
                        **only,
                        **attrs,
                    )
        x = [v for k in range(2 + states) for v in (abs(t.f(2, 3)), abs(t.f(4)))]
        yield t(
            t.of("float32", 0.1),
            t.of("int64", 3),
            *x,
            outputs=2 * (1 + states),
            tol=1e-4,
            **only,
            **attributes[0],
        )

    return cases


OPS[DOMAIN, "Adagrad"].cases(
    _cases(1, {"norm_coefficient": 0.01, "epsilon": 1e-5, "decay_factor": 0.1})
)
OPS[DOMAIN, "Adam"].cases(
    _cases(
        2,
        {"norm_coefficient": 0.001, "alpha": 0.95, "beta": 0.85, "epsilon": 1e-2},
        {"norm_coefficient_post": 0.1, "epsilon": 1e-2},
    )
)
OPS[DOMAIN, "Momentum"].cases(
    _cases(
        1,
        {"norm_coefficient": 0.01, "alpha": 0.95, "beta": 0.85, "mode": "standard"},
        {"norm_coefficient": 0.0, "alpha": 0.95, "beta": 0.85, "mode": "nesterov"},
    )
)
