"""Recorded runs of a page (worker/inference/recorded.ts): what they give is what the driver gives
in a new session, and onnxruntime.
"""

import itertools

import numpy as np
import onnxruntime
import pytest
from edgewise.errors import EdgewiseError, InputError, OutOfMemory
from engines.page_session import PageSession

from . import models
from .models import F, I, constant, node, value
from .test_direct import onnxruntime_type, same

MAX_PLANS = 16  # of a part, in a page


def both(data, feeds, outputs=None):
    """The outputs of a new session, after a comparison with onnxruntime."""
    got = PageSession(data).run(outputs, feeds)
    for g, w in zip(got, onnxruntime.InferenceSession(data).run(outputs, feeds), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    return got


def run_all(data, cases, driven=None, **options):
    """Runs (outputs, feeds) one after the other in one session, then each in a new one.

    Args:
        driven: runs that the driver has made after each case; None: not compared.
    """
    session, found, counts = PageSession(data, **options), [], []
    for outputs, feeds in cases:
        found.append(session.run(outputs, feeds))
        counts.append(session.driven)
        assert session.used == 0
    for (outputs, feeds), got in zip(cases, found, strict=True):
        assert same(got, both(data, feeds, outputs))
    assert driven is None or counts == driven


def test_the_second_run_is_recorded():
    data, feed = models.perceptron()
    rows = (3, 3, 3, 5, 5, 3, 5)
    cases = [(None, feed(n)) for n in rows]
    run_all(data, cases, [1, 1, 1, 2, 2, 2, 2])


def test_outputs_are_part_of_the_key():
    data = models.model(
        [node("Neg", "x", "y"), node("Exp", "y", "z"), node("Shape", "x", "shape")],
        [value("x", F, ("n", 2))],
        [value("y", F, None), value("z", F, None), value("shape", I, None)],
    )
    feeds = {"x": models.normal(3, 2)}
    wanted = [["y", "z"], ["z", "y"], ["y"], ["shape", "z"], ["y", "z"], ["z", "y"], ["shape", "z"]]
    run_all(data, [(names, feeds) for names in wanted], [1, 2, 3, 4, 4, 4, 4])


def test_outputs_that_are_inputs_or_known():
    data = models.model(
        [node("Identity", "x", "same"), node("Shape", "x", "shape"), node("Neg", "x", "y")],
        [value("x", F, ("n", "m"))],
        [value("same", F, None), value("shape", I, None), value("y", F, None)],
    )
    cases = [(None, {"x": models.normal(rows, 4)}) for rows in (2, 2, 3, 3, 2, 3)]
    run_all(data, cases, [1, 1, 2, 2, 2, 2])


@pytest.mark.parametrize("dtype", ["float16", "float64", "int64", "int8", "uint8", "bool", "int32"])
def test_types(dtype):
    kind = onnxruntime_type(dtype)
    data = models.model(
        [node("Identity", "x", "t"), node("Concat", "t x", "y", axis=0)],
        [value("x", kind, ("n", 3))],
        [value("y", kind, None)],
    )
    run_all(data, [(None, {"x": models.normal(2, 3).astype(dtype)}) for _ in range(3)])


def test_one_plan_for_many_lengths():
    """Its register is that of the run, not of the one before."""
    data = models.model(
        [
            node("MatMul", "x w", "a"),
            node("Softmax", "a", "b", axis=0),
            node("Concat", "b x", "y", axis=0),
        ],
        [value("x", F, ("n", 4))],
        [value("y", F, None)],
        [constant("w", models.normal(4, 4))],
    )
    lengths = (3, 5, 9, 4, 3, 9, 4, 5, 3, 30, 9, 3)
    run_all(data, [(None, {"x": models.normal(n, 4)}) for n in lengths])


def test_more_shapes_than_plans_are_kept():
    data = models.model(
        [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")],
        [value("x", F, (1, 2, "h", "w"))],
        [value("y", F, None)],
        [constant("w", models.normal(3, 2, 3, 3))],
    )
    sides = [*range(2, 20), 2, 2, 3, 19, 19, 5, 2]
    run_all(data, [(None, {"x": models.normal(1, 2, n, n + 1)}) for n in sides])


def test_numbers_that_decide_are_compared():
    """A shape or a branch that depends on data is that of the run."""
    data, feed = models.voice_detector()
    run_all(data, [(None, feed(rate)) for rate in (16000, 16000, 8000, 8000, 16000)])
    data = models.model(
        [node("Reshape", "x shape", "r"), node("Add", "r one", "y")],
        [value("x", F, ("n",)), value("shape", I, (2,))],
        [value("y", F, None)],
        [constant("one", np.float32(1))],
    )
    x = np.arange(12, dtype="f4")
    shapes = ((3, 4), (3, 4), (4, 3), (3, 4), (-1, 3), (-1, 3))
    run_all(data, [(None, {"x": x, "shape": np.array(s)}) for s in shapes], [1, 1, 2, 2, 3, 3])


def test_random_numbers_are_new_in_each_run():
    data = models.model(
        [node("RandomUniformLike", "x", "r"), node("Add", "x r", "y")],
        [value("x", F, (8,))],
        [value("y", F, (8,))],
    )
    session, feeds = PageSession(data), {"x": np.zeros(8, "f4")}
    assert len({session.run(None, feeds)[0].tobytes() for _ in range(5)}) == 5


def test_feeds_that_do_not_fit():
    data, feed = models.perceptron()
    session, feeds = PageSession(data), feed(3)
    want = both(data, feeds)
    for wrong in (
        {"x": feeds["x"].astype("f8")},
        {"x": feeds["x"][:, :3]},
        {"x": feeds["x"], "z": feeds["x"]},
        {"z": feeds["x"]},
        {},
    ):
        assert same(session.run(None, feeds), want)
        with pytest.raises(InputError):
            session.run(None, wrong)
    assert same(session.run(None, feeds), want)


def test_a_recorded_run_that_fails():
    """It fails with the driver's error, and the session still works."""
    data = models.model(
        [node("Gather", "table i", "y")],
        [value("i", I, ("n",))],
        [value("y", F, None)],
        [constant("table", models.normal(5, 2))],
    )
    with pytest.raises(InputError, match="out of range") as new:
        PageSession(data).run(None, {"i": np.array([1, 5])})
    session = PageSession(data)
    for _ in range(3):
        assert session.run(None, {"i": np.array([1, 4])})[0].shape == (2, 2)
        with pytest.raises(InputError) as failed:
            session.run(None, {"i": np.array([1, 5])})
        assert str(failed.value) == str(new.value)
    session.run(None, {"i": np.array([1, 4])})
    assert session.driven == 1 and session.used == 0


def test_outputs_that_stay_are_kept_beside():
    """What stays in the engine is not overwritten by recorded runs, and may be fed."""
    data, feed = models.perceptron()
    session, first, second = PageSession(data), feed(3), feed(3)
    wanted, other = both(data, first), both(data, second)
    session.run(None, first)
    (stays,) = session.run(None, first, pinned=["y"])
    held = session.used
    for _ in range(3):
        assert same(session.run(None, second), other) and session.used == held
    assert same([session.read(stays)], wanted)
    doubled = models.model(
        [node("Add", "x x", "y")], [value("x", F, ("n",))], [value("y", F, ("n",))]
    )
    session, x = PageSession(doubled), np.float32([1, 2, 4])
    session.run(None, {"x": x})
    (stays,) = session.run(None, {"x": x}, pinned=["y"])
    for feeds in ({"x": x}, {"x": stays}, {"x": x}, {"x": stays}):
        factor = 4 if feeds["x"] is stays else 2
        assert same(session.run(None, feeds), [x * np.float32(factor)])
    assert session.drop(stays) == 0


@pytest.mark.parametrize("way", ["pinned", "copied"])
def test_states_that_stay_are_fed_by_recorded_runs(way):
    """The second run is the first one that is fed a tensor of the engine; later ones are recorded,
    and hold no more than it.
    """
    data = models.model(
        [node("MatMul", "state w", "m"), node("Add", "m x", "s"), node("Tanh", "s", "next")]
        + [node("Neg", "next", "y")],
        [value("x", F, ("n", 4)), value("state", F, ("n", 4))],
        [value("next", F, None), value("y", F, None)],
        [constant("w", models.normal(4, 4))],
    )
    peer, session = onnxruntime.InferenceSession(data), PageSession(data)
    expected = state = models.normal(3, 4)
    used = []
    for step in range(6):
        x, before = models.normal(3, 4), state
        want = peer.run(None, {"x": x, "state": expected})
        got = session.run(None, {"x": x, "state": state}, **{way: ["next"]})
        state = got[0] if way == "pinned" else session.copies["next"]
        there = session.read(state)
        np.testing.assert_allclose(there, want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-6)
        if way == "copied":
            assert same([there], got[:1])
        expected = want[0]
        if step:
            used.append(session.drop(before))
    assert session.driven == 2 and len(set(used)) == 1
    # numbers, other outputs, and a tensor that has been dropped are not what was recorded
    feeds = {"x": x, "state": there}
    assert same(session.run(["y"], feeds), both(data, feeds, ["y"]))
    assert session.drop(state) == 0
    # of a copy, the page is asked for its numbers
    with pytest.raises(InputError if way == "pinned" else EdgewiseError):
        session.run(None, {"x": x, "state": state}, **{way: ["next"]})


def test_what_a_run_may_hold_is_as_the_drivers():
    data = models.model([node("Exp", "x", "y")], [value("x", F, ("n",))], [value("y", F, ("n",))])
    session = PageSession(data, max_memory_bytes=1 << 16)
    for _ in range(3):
        session.run(None, {"x": np.zeros(8000, "f4")})
    assert session.driven == 1
    (stays,) = session.run(None, {"x": np.zeros(1000, "f4")}, pinned=["y"])
    with pytest.raises(OutOfMemory, match="max_memory_bytes"):
        session.run(None, {"x": np.zeros(8000, "f4")})
    session.drop(stays)
    session.run(None, {"x": np.zeros(8000, "f4")})
    assert session.driven == 2 and session.used == 0


def many_plans():
    """(model, shapes): each shape has a plan of its own, one more than a part keeps beside the
    first.
    """
    data = models.model(
        [node("Add", "x w", "y")],
        [value("x", F, tuple("abcde"))],
        [value("y", F, None)],
        [constant("w", models.normal(*[3] * 5))],
    )
    shapes = list(itertools.product((3, 1), repeat=5))[: 2 + MAX_PLANS]
    return data, shapes


def test_a_plan_that_was_dropped_is_not_run():
    """Runs that are not recorded use the plans of a part up, and drop that of a recorded run."""
    data, shapes = many_plans()
    session, feeds = PageSession(data), {"x": models.normal(*shapes[0])}
    want = both(data, feeds)
    for _ in range(2):
        assert same(session.run(None, feeds), want)
    assert session.driven == 1
    for shape in shapes[1:]:
        session.drop(*session.run(None, {"x": models.normal(*shape)}, pinned=["y"]))
    compiled = len(session.asked)
    assert same(session.run(None, feeds), want) and len(session.asked) > compiled
    assert session.driven == len(shapes) + 1


def test_a_plan_in_use_is_the_last_to_be_dropped():
    data, shapes = many_plans()
    session, feeds = PageSession(data), {"x": models.normal(*shapes[0])}
    want = session.run(None, feeds)
    for shape in shapes[1:]:
        session.run(None, {"x": models.normal(*shape)})
        assert same(session.run(None, feeds), want)
    assert session.driven == len(shapes)
