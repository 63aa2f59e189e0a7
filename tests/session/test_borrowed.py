"""Large input arrays are read without a copy (session/compiled.py): results, lifetimes, and
independence of the outputs from the inputs.
"""

import gc
import weakref

import numpy as np
import onnxruntime
import pytest
from edgewise.host.session.memory import Pool
from edgewise.session.inference import InferenceSession

from . import models
from .models import F, node, value

ROWS, COLUMNS = 1024, 64  # 256 kB: above compiled.LARGE


@pytest.fixture
def model() -> bytes:
    """Outputs: x + y, and x itself."""
    shape = ["n", COLUMNS]
    nodes = [node("Add", "x y", "sum"), node("Identity", "x", "same")]
    return models.model(
        nodes,
        [value("x", F, shape), value("y", F, shape)],
        [value("sum", F, shape), value("same", F, shape)],
    )


def feeds(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal((ROWS, COLUMNS), np.float32) for name in "xy"}


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the engine memory that runs take."""
    seen: list[int] = []
    take = Pool.take
    monkeypatch.setattr(
        Pool, "take", lambda pool, nbytes: (seen.append(nbytes), take(pool, nbytes))[1]
    )
    return seen


def test_large_feeds_are_not_copied(model, copied):
    feed = feeds(0)
    got = InferenceSession(model).run(["sum"], feed)
    assert copied == [feed["x"].nbytes]  # the output's memory alone
    np.testing.assert_array_equal(got[0], onnxruntime.InferenceSession(model).run(["sum"], feed)[0])


def test_other_layouts_are_copied(model, copied):
    feed = feeds(1)
    feed["x"].flags.writeable = False
    feed["y"] = np.asfortranarray(feed["y"])
    got = InferenceSession(model).run(["sum"], feed)
    assert copied == [feed["x"].nbytes] * 2  # that of the output, and a copy of x
    np.testing.assert_array_equal(got[0], feed["x"] + feed["y"])


def test_outputs_are_no_views_of_what_was_fed(model):
    session, feed = InferenceSession(model), feeds(2)
    total, same = session.run(None, feed)
    want = [total.copy(), same.copy()]
    assert not any(np.shares_memory(out, x) for out in (total, same) for x in feed.values())
    feed["x"][:] = 7
    np.testing.assert_array_equal(total, want[0])
    np.testing.assert_array_equal(same, want[1])
    np.testing.assert_array_equal(session.run(["sum"], feed)[0], 7 + feed["y"])


def test_an_array_fed_twice_and_changed_arrays(model):
    session, x = InferenceSession(model), feeds(3)["x"]
    for factor in (1, 2, 3):
        x *= factor
        np.testing.assert_array_equal(session.run(["sum"], {"x": x, "y": x})[0], 2 * x)


def test_a_session_keeps_no_array_alive(model):
    session, feed = InferenceSession(model), feeds(4)
    session.run(None, feed)
    gone = [weakref.ref(x) for x in feed.values()]
    feed.clear()
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    feed = feeds(5)  # at the same addresses, or at others
    np.testing.assert_array_equal(session.run(["sum"], feed)[0], feed["x"] + feed["y"])
