"""Runs for shapes that were seen before (session/direct.py): what they give is what the driver
gives, and onnxruntime.
"""

import threading

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.errors import EngineError, InputError
from edgewise.session import InferenceSession, RunOptions

from . import models
from .models import F, I, constant, node, value


def both(data, feeds, outputs=None):
    """The outputs of the driver in a separate session, after a comparison with onnxruntime."""
    got = InferenceSession(data).run(outputs, feeds)
    for g, w in zip(got, onnxruntime.InferenceSession(data).run(outputs, feeds)):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    return got


def same(got, want):
    return all(
        g.dtype == w.dtype and g.shape == w.shape and g.tobytes() == w.tobytes()
        for g, w in zip(got, want, strict=True)
    )


def watched(session, monkeypatch):
    """A list that gets an entry for each run that the driver makes."""
    seen, start = [], session.driver.start
    monkeypatch.setattr(session.driver, "start", lambda *a: (seen.append(1), start(*a))[1])
    return seen


def test_the_third_run_is_direct(monkeypatch):
    data, feed = models.perceptron()
    session = InferenceSession(data)
    driven = watched(session, monkeypatch)
    for rows, _runs in ((3, 2), (3, 2), (3, 2), (5, 3), (5, 4), (5, 4), (3, 4)):
        feeds = feed(rows)
        assert same(session.run(None, feeds), both(data, feeds))
    assert len(driven) == 4
    feeds = feed(3)
    strided = {"x": np.asfortranarray(feeds["x"])}
    assert same(session.run(None, strided), both(data, feeds)) and len(driven) == 4
    assert same(session.run(["y"], feeds), both(data, feeds)) and len(driven) == 5
    assert same(session.run(None, feeds, RunOptions()), both(data, feeds)) and len(driven) == 6
    with pytest.raises(InputError):
        session.run(None, {"x": feeds["x"].astype("f8")})
    with pytest.raises(InputError):
        session.run(None, {"x": feeds["x"], "z": feeds["x"]})
    with pytest.raises(InputError):
        session.run(None, {})


def test_outputs_are_the_callers():
    data, feed = models.perceptron()
    session = InferenceSession(data)
    feeds = [feed() for _ in range(6)]
    kept = [session.run(None, f)[0] for f in feeds]
    want = [both(data, f)[0] for f in feeds]
    assert same(kept, want)
    kept[-1][...] = 0
    assert same(session.run(None, feeds[-1]), want[-1:])


def test_a_branch_that_changes(monkeypatch):
    """The numbers that decide are compared in each run; every branch is right, in any order."""
    data, feed = models.voice_detector()
    session = InferenceSession(data)
    driven = watched(session, monkeypatch)
    for rate in (16000, 16000, 16000, 8000, 8000, 8000, 16000, 8000, 16000):
        feeds = feed(rate)
        assert same(session.run(None, feeds), both(data, feeds)), rate
    assert len(driven) < 9


def test_numbers_that_shapes_depend_on():
    data = models.model(
        [node("Reshape", "x shape", "r"), node("Add", "r one", "y")],
        [value("x", F, ("n",)), value("shape", I, (2,))],
        [value("y", F, None)],
        [constant("one", np.float32(1))],
    )
    session, x = InferenceSession(data), np.arange(12, dtype="f4")
    for shape in (
        (3, 4),
        (3, 4),
        (3, 4),
        (4, 3),
        (4, 3),
        (3, 4),
        (2, 6),
        (-1, 3),
        (-1, 3),
        (-1, 3),
    ):
        feeds = {"x": x, "shape": np.array(shape)}
        assert same(session.run(None, feeds), both(data, feeds)), shape


def test_outputs_that_are_inputs_or_known():
    data = models.model(
        [node("Identity", "x", "same"), node("Shape", "x", "shape"), node("Neg", "x", "y")],
        [value("x", F, ("n", "m"))],
        [value("same", F, None), value("shape", I, None), value("y", F, None)],
    )
    session = InferenceSession(data)
    for rows in (2, 2, 2, 3, 3, 3, 2):
        feeds = {"x": models.normal(rows, 4)}
        assert same(session.run(None, feeds), both(data, feeds))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "int8", "uint8", "bool", "int32"])
def test_types(dtype):
    kind = onnxruntime_type(dtype)
    data = models.model(
        [node("Identity", "x", "t"), node("Concat", "t x", "y", axis=0)],
        [value("x", kind, ("n", 3))],
        [value("y", kind, None)],
    )
    session = InferenceSession(data)
    for _ in range(4):
        feeds = {"x": models.normal(2, 3).astype(dtype)}
        assert same(session.run(None, feeds), both(data, feeds))


def onnxruntime_type(dtype):
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def test_random_numbers_are_new_in_each_run():
    data = models.model(
        [node("RandomUniformLike", "x", "r"), node("Add", "x r", "y")],
        [value("x", F, (8,))],
        [value("y", F, (8,))],
    )
    session, feeds = InferenceSession(data), {"x": np.zeros(8, "f4")}
    drawn = [session.run(None, feeds)[0].tobytes() for _ in range(6)]
    assert len(set(drawn)) == 6


def test_plans_that_are_freed():
    data, feed = models.perceptron()
    session = InferenceSession(data)
    session.MAX_PLANS = 3
    for _ in range(2):
        for rows in (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5):
            feeds = feed(rows)
            assert same(session.run(None, feeds), both(data, feeds))
    session.free()
    assert not session.direct.kept
    assert same(session.run(None, feeds), both(data, feeds))


def test_profiles_see_every_run():
    data, feed = models.perceptron()
    session, feeds = InferenceSession(data), feed()
    for _ in range(4):
        session.run(None, feeds)
    with session.profile() as p:
        for _ in range(3):
            session.run(None, feeds)
    assert p.runs == 3


def test_an_index_out_of_range():
    """A direct run fails with the same error as the driver, and the session still works."""
    data = models.model(
        [node("Gather", "table i", "y")],
        [value("i", I, ("n",))],
        [value("y", F, None)],
        [constant("table", models.normal(5, 2))],
    )
    session = InferenceSession(data)
    for _ in range(4):
        assert session.run(None, {"i": np.array([1, 4])})[0].shape == (2, 2)
    with pytest.raises((InputError, EngineError), match="the_y"):
        session.run(None, {"i": np.array([1, 5])})
    assert session.run(None, {"i": np.array([1, 4])})[0].shape == (2, 2)
    assert edgewise.InferenceSession is InferenceSession


def test_a_direct_run_that_waited_while_its_plan_was_freed():
    data, feed = models.perceptron()
    session, feeds, outputs = InferenceSession(data), feed(3), []
    for _ in range(3):
        want = session.run(None, feeds)
    direct = session.direct.kept[None][0]
    handles, run_plan = [], direct.run_plan
    direct.run_plan = lambda handle: (handles.append(handle), run_plan(handle))[1]
    with session.lock:
        other = threading.Thread(target=lambda: outputs.append(session.run(None, feeds)))
        other.start()
        for rows in range(5, 20):  # more shapes than are kept
            for _ in range(3):
                session.run(None, feed(rows))
        session.free()
    other.join()
    assert not handles, "the plan that was freed has been run"
    assert same(outputs[0], want)


def test_buffers_of_direct_runs_are_not_part_of_a_runs_budget():
    data, feed = models.perceptron()
    options = edgewise.SessionOptions()
    options.max_memory_bytes = 2_000_000
    session = InferenceSession(data, options)
    for rows in range(1500, 1507):
        for _ in range(3):
            session.run(None, feed(rows))
    for names in ([o.name for o in session.get_outputs()], None):
        for _ in range(3):
            session.run(names, feed(2))
    assert len(session.direct.kept) <= 4
