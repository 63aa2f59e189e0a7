"""Twenty steps from the same start and on the same data as PyTorch: the same losses, gradients and
parameters.
"""

import numpy as np
import pytest
from edgewise.training.session import TrainingSession

from ..zoo import ZooCase, cases

CASES = cases()
ROUNDING = 1e-6


@pytest.fixture(scope="module", params=list(CASES))
def case(request):
    return ZooCase(CASES[request.param])


def close(got, want, tol, what):
    scale = max(1e-3, float(np.abs(want).max())) if np.size(want) else 1
    worst = float(np.abs(got - want).max() / scale) if np.size(want) else 0
    assert worst <= tol, f"{what}: off by {worst:.2e}"


@pytest.mark.parametrize("form", ["torch", "ort"])
def test_trajectory(case, form, engine):
    if "dropout" in case.folder.name:
        pytest.skip("its masks are random: tests of dropout compare distributions")
    session = TrainingSession(case.program(form), engine)
    try:
        losses = [
            float(session.train(case.feeds(), case.spec["lr"])["loss"])
            for _ in range(case.spec["steps"])
        ]
        want = case.torch["loss_torch" if form == "torch" else "loss_hf"]
        np.testing.assert_allclose(losses, want[: len(losses)], rtol=1e-4, atol=1e-6)
        assert len(case.names) == len(case.spec.get("requires_grad") or case.spec["parameters"])
        if form == "ort":
            for theirs, (ours, turned) in case.names.items():
                if np.abs(case.torch[f"grad0/{theirs}"]).max() < ROUNDING:
                    # its true gradient is 0 (a bias in front of a batch norm): Adam makes steps of
                    # what rounding leaves
                    continue
                got = np.asarray(session.get(ours))
                close(got.T if turned else got, case.torch[f"final/{theirs}"], 1e-4, theirs)
    finally:
        session.free()


def test_gradients(case, engine):
    if "dropout" in case.folder.name:
        pytest.skip("its masks are random: tests of dropout compare distributions")
    session = TrainingSession(case.program(), engine)
    try:
        session.accumulate(case.feeds())
        for theirs, (ours, turned) in case.names.items():
            got = np.asarray(session.get(f"gradient/{ours}"))
            if np.abs(case.torch[f"grad0/{theirs}"]).max() < ROUNDING:
                assert np.abs(got).max() < 10 * ROUNDING
                continue
            close(got.T if turned else got, case.torch[f"grad0/{theirs}"], 1e-4, theirs)
    finally:
        session.free()
