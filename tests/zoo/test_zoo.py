"""Real exports give the stored outputs of onnxruntime on every engine."""

import edgewise
import numpy as np
import pytest

from .zoo import difference, folder, models


def test_the_zoo_is_complete():
    if folder() is None:
        pytest.skip(
            "the zoo is not there (set EDGEWISE_ZOO, or put it at ../shared/zoo): only the copies"
            " in tests/zoo/models were tested"
        )
    lms = [m for m in models() if m.is_causal_lm]
    assert len(lms) > 50 and len(models()) - len(lms) > 50


@pytest.mark.parametrize("model", models(), ids=repr)
def test_model(model, engine):
    session = edgewise.InferenceSession(str(model.path), engine=engine)
    names = list(model.expected)
    got = session.run(names, model.feeds)
    wrong = {
        n: d for n, g in zip(names, got) if (d := difference(g, model.expected[n], model.tolerance))
    }
    session.free()
    assert not wrong
    assert [type(g) for g in got] == [np.ndarray] * len(got)
