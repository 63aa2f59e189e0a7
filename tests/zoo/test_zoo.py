"""Real exports give what onnxruntime gave for them."""
import numpy as np
import pytest

import edgewise
from edgewise.errors import UnsupportedOp

from .zoo import difference, folder, models

LMS = [m for m in models() if m.is_causal_lm]
OTHERS = [m for m in models() if not m.is_causal_lm]


def test_the_zoo_is_there():
    if folder() is None:
        pytest.skip("the zoo is not there (set EDGEWISE_ZOO, or put it at ../shared/zoo): only the copies in tests/zoo/models were tested")
    assert len(LMS) > 50 and len(OTHERS) > 50


def check(model, session):
    names = list(model.expected)
    got = session.run(names, model.feeds)
    wrong = {n: d for n, g in zip(names, got) if (d := difference(g, model.expected[n], model.tolerance))}
    assert not wrong
    assert [type(g) for g in got] == [np.ndarray] * len(got)


@pytest.mark.parametrize("model", LMS, ids=repr)
def test_language_models(model, engine):
    session = edgewise.InferenceSession(str(model.path), engine=engine)
    check(model, session)
    session.free()


@pytest.mark.parametrize("model", OTHERS, ids=repr)
def test_other_models(model):
    """Whatever the op table covers must agree; the rest says which operator is missing, and where."""
    session = edgewise.InferenceSession(str(model.path))
    missing = model.missing()
    if not missing:
        return check(model, session)
    with pytest.raises(UnsupportedOp) as e:
        session.run(None, model.feeds)
    assert any(f"{d + '.' if d else ''}{op} " in e.value.what for d, op in missing), e.value
    assert e.value.where.startswith("node '") and e.value.remedy
