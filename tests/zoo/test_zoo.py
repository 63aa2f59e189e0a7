"""Real exports give the stored outputs of onnxruntime on every engine, in arenas that are hardly
larger than what is alive at once.
"""

import edgewise
import numpy as np
import pytest
from engines import open_engine, quick_engines

from .zoo import difference, folder, models

LARGEST = 1.10  # arena, as a multiple of the lower bound


def test_the_zoo_is_complete():
    if folder() is None:
        pytest.skip(
            "the zoo is not there (set EDGEWISE_ZOO, or put it at ../shared/zoo): only the copies"
            " in tests/zoo/models were tested"
        )
    lms = [m for m in models() if m.is_causal_lm]
    assert len(lms) > 50 and len(models()) - len(lms) > 50


@pytest.mark.parametrize("number, model", list(enumerate(models())), ids=repr)
def test_model(number, model):
    names, wrong = list(model.expected), {}
    for engine in quick_engines(number):
        session = edgewise.InferenceSession(str(model.path), engine=open_engine(engine))
        got = session.run(names, model.feeds)
        for c in session.plans.values():
            assert c.plan.arena_least <= c.plan.arena_bytes <= LARGEST * c.plan.arena_least
        session.free()
        assert [type(g) for g in got] == [np.ndarray] * len(got)
        for n, g in zip(names, got):
            if d := difference(g, model.expected[n], model.tolerance):
                wrong[engine, n] = d
    assert not wrong
