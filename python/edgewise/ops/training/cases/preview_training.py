"""Test cases of ops/training/preview_training.py."""

from __future__ import annotations

from ..preview_training import gradient


@gradient.cases
def gradient_cases(t):
    """One node alone computes no gradient of anything else than its input:
    tests/ops/test_gradient_node.py has the others.
    """
    x = t.f(2, 3)
    yield t(x, fold=False, expect=[x * 0 + 1], why="no reference has it", y="x0", xs=["x0"])
