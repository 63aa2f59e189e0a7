"""Loop and Scan, against onnxruntime."""

import edgewise
import numpy as np
import pytest
from edgewise.errors import Aborted, EdgewiseError, ModelError
from edgewise.session import RunOptions

from .models import (
    LOOP_IN,
    SCALAR,
    B,
    F,
    I,
    R,
    c,
    check,
    counting,
    forever,
    graph,
    model,
    n,
    same,
    seq,
    value,
)


# ---- Loop ----
def test_loop(engine):
    body = counting(
        [
            n("Add", "s w", "t"),
            n("Mul", "t t", "square"),
            n("Cast", "i", "fi", to=F),
            n("Add", "square fi", "out"),
        ],
        [("s", "t", F, [3])],
        [value("out", F, [3])],
    )
    data = model(
        [n("Loop", "M  x", "y outs", body=body)],
        [SCALAR, value("x", F, [3])],
        [value("y"), value("outs")],
        [c("w", [1.5, -2, 0], np.float32)],
    )
    check(data, *[{"M": np.array(m), "x": np.float32([1, 2, 3])} for m in (0, 1, 5)], engine=engine)


@pytest.mark.parametrize("trips, start", [(10, True), (10, False), (0, True), (3, True)])
def test_loop_ends_early(trips, start):
    """With a trip count and a condition, each of them absent, too."""
    body = graph(
        [n("Add", "s one", "t"), n("Less", "t limit", "more"), n("Identity", "t", "out")],
        [*LOOP_IN, value("s", F, [])],
        [value("more", B, []), value("t", F, []), value("out", F, [])],
    )
    common = (
        [value("x", F, [])],
        [value("y"), value("outs")],
        [c("one", 1.0), c("limit", 6.0), c("M", trips, np.int64), c("C", start)],
    )
    feeds = [{"x": np.array(v, "f4")} for v in (0, 5, 7)]
    for inputs in ("M C x", "M  x"):
        check(model([n("Loop", inputs, "y outs", body=body)], *common), *feeds)
    if start:
        check(model([n("Loop", " C x", "y outs", body=body)], *common), *feeds)


def test_counter_and_condition_of_one_element():
    """As keras2onnx, onnxmltools and CNTK declare them."""
    body = graph(
        [n("Concat", "s i", "t", axis=0), n("Concat", "i i", "out", axis=0)]
        + [n("Identity", "go", "more")],
        [value("i", I, [1]), value("go", B, [1]), value("s", I, None)],
        [value("more", B, [1]), value("t", I, None), value("out", I, [2])],
    )
    data = model(
        [n("Loop", "M C x", "y outs", body=body)],
        [SCALAR, value("x", I, ["k"])],
        [value("y", I), value("outs", I)],
        [c("C", [True])],
    )
    check(data, *[{"M": np.array(m), "x": np.arange(k)} for m, k in ((3, 1), (1, 2), (4, 0))])


def test_nested_loops_and_branches():
    """Loop in If in Loop, with values from around them at each level, and shapes that change from
    trip to trip.
    """
    inner = counting(
        [n("Mul", "u x", "v"), n("Add", "v fi", "w")], [("u", "w", F, None)], level="2"
    )
    then = graph([n("Loop", "two  s", "a", body=inner)], [], [value("a")], name="then")
    other = graph(
        [n("Neg", "s", "b0"), n("Add", "b0 k", "b")],
        [],
        [value("b")],
        [c("k", [0.5], np.float32)],
        name="else",
    )
    body = counting(
        [
            n("Cast", "i", "fi", to=F),
            n("Mod", "i two", "odd"),
            n("Cast", "odd", "is_odd", to=B),
            n("If", "is_odd", "r", then_branch=then, else_branch=other),
            n("Concat", "grown r", "more", axis=0),
        ],
        [("s", "r", F, None), ("grown", "more", F, None)],
    )
    data = model(
        [n("Loop", "M  x x", "y z", body=body)],
        [SCALAR, value("x", F, ["n"])],
        [value("y"), value("z")],
        [c("two", 2, np.int64)],
    )
    check(
        data,
        *[
            {"M": np.array(m), "x": R.standard_normal(k).astype("f4") * 0.5}
            for m in (0, 1, 5)
            for k in (1, 3)
        ],
    )


def test_slices_by_the_trip():
    """What is sliced is decided by each trip's number: only that node is compiled again."""
    body = counting(
        [
            n("Add", "i one", "end"),
            n("Unsqueeze", "i zero", "b1"),
            n("Unsqueeze", "end zero", "e1"),
            n("Slice", "x b1 e1 zero", "row"),
            n("Tanh", "row", "t"),
            n("Add", "s t", "s2"),
        ],
        [("s", "s2", F, None)],
        [value("row", F, None)],
    )
    data = model(
        [n("Loop", "M  s0", "y rows", body=body)],
        [SCALAR, value("x", F, ["n", 4])],
        [value("y"), value("rows")],
        [c("one", 1, np.int64), c("zero", [0], np.int64), c("s0", np.zeros((1, 4), np.float32))],
    )
    session = edgewise.InferenceSession(data)
    x = R.standard_normal((60, 4)).astype("f4")
    y, rows = session.run(None, {"M": np.array(60), "x": x})
    same(rows, x[:, None])
    same(y, np.tanh(x).sum(0, keepdims=True), rtol=1e-4)


def test_a_decoder():
    """Greedy choice in a loop, as exporters write it: the condition depends on what was chosen."""
    body = graph(
        [
            n("Gather", "table token", "h"),
            n("MatMul", "h w", "logits"),
            n("ArgMax", "logits", "next", axis=-1, keepdims=0),
            n("Equal", "next end", "done"),
            n("Not", "done", "more0"),
            n("Squeeze", "more0", "more"),
        ],
        [*LOOP_IN, value("token", I, [1])],
        [value("more", B, []), value("next", I, [1]), value("next2", I, [1])],
    )
    body.node.append(n("Identity", "next", "next2"))
    data = model(
        [n("Loop", "M  t", "last all", body=body)],
        [value("t", I, [1])],
        [value("last", I), value("all", I)],
        [
            c("M", 50, np.int64),
            c("end", [3], np.int64),
            c("table", R.standard_normal((9, 5)).astype("f4")),
            c("w", R.standard_normal((5, 9)).astype("f4")),
        ],
    )
    check(data, *[{"t": np.array([t])} for t in range(9)])


def test_loop_of_sequences():
    body = graph(
        [n("SequenceInsert", "s x", "s2"), n("Identity", "go", "go_on")],
        [*LOOP_IN, value("s", seq())],
        [value("go_on", B, []), value("s2", seq())],
    )
    data = model(
        [
            n("SequenceEmpty", "", "s0"),
            n("Loop", "M  s0", "y", body=body),
            n("SequenceLength", "y", "k"),
        ],
        [SCALAR, value("x", F, [2])],
        [value("y", seq()), value("k", I)],
    )
    check(data, *[{"M": np.array(m), "x": np.float32([1, 2])} for m in (0, 3)])


def test_no_trips_have_declared_shapes():
    body = counting(
        [n("Identity", "s", "t"), n("Expand", "s five", "out")],
        [("s", "t", F, [])],
        [value("out", F, [5])],
    )
    data = model(
        [n("Loop", "M  x", "y outs", body=body)],
        [SCALAR, value("x", F, [])],
        [value("y"), value("outs")],
        [c("five", [5], np.int64)],
    )
    check(data, *[{"M": np.array(m), "x": np.array(1, "f4")} for m in (0, 2)])


def test_a_loop_that_never_ends():
    o = edgewise.SessionOptions()
    o.max_loop_trips = 2000
    s = edgewise.InferenceSession(forever(), o)
    for _ in range(2):
        with pytest.raises(ModelError, match="2000 iterations"):
            s.run(None, {"x": np.float32([1])})


def test_a_loop_that_is_stopped():
    options = RunOptions()
    options.terminate = True
    with pytest.raises(Aborted):
        edgewise.InferenceSession(forever()).run(None, {"x": np.float32([1])}, options)


def test_a_loop_that_grows():
    """The state doubles in each iteration: an error, and the session still works."""
    options = edgewise.SessionOptions()
    options.max_memory_bytes = 1 << 26
    s = edgewise.InferenceSession(forever(nodes=[n("Concat", "s s", "t", axis=0)]), options)
    s.pool.most = 1 << 24
    with pytest.raises(EdgewiseError):
        s.run(None, {"x": np.zeros(100, "f4")})
    s.pool.trim(-1)
    assert s.pool.used < 1 << 20


# ---- Scan ----
def scan_body():
    return graph(
        [n("Add", "s x", "t"), n("Mul", "t z", "out"), n("ReduceSum", "out", "total", keepdims=0)],
        [value("s", F, [3]), value("x", F, [3]), value("z", F, [3])],
        [value("t", F, [3]), value("out", F, [3]), value("total", F, [])],
    )


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"scan_input_directions": [1, 0]},
        {"scan_output_directions": [0, 1]},
        {"scan_input_axes": [1, 0]},
        {"scan_output_axes": [1, 0]},
        {"scan_input_axes": [-1, 0], "scan_input_directions": [1, 1], "scan_output_axes": [-1, 0]},
    ],
)
def test_scan(attrs, engine):
    data = model(
        [n("Scan", "s0 xs zs", "s outs totals", body=scan_body(), num_scan_inputs=2, **attrs)],
        [value("s0", F, [3]), value("xs", F, None), value("zs", F, None)],
        [value("s"), value("outs"), value("totals")],
    )
    feeds = [
        {
            "s0": R.standard_normal(3).astype("f4"),
            "xs": R.standard_normal((3, k) if "scan_input_axes" in attrs else (k, 3)).astype("f4"),
            "zs": R.standard_normal((k, 3)).astype("f4"),
        }
        for k in (4, 1)
    ]
    check(data, *feeds, engine=engine)


def test_scan_of_opset_8():
    data = model(
        [
            n(
                "Scan",
                "lengths s0 xs zs",
                "s outs totals",
                body=scan_body(),
                num_scan_inputs=2,
                directions=[0, 1],
            )
        ],
        [
            value("lengths", I, [2]),
            value("s0", F, [2, 3]),
            value("xs", F, [2, 4, 3]),
            value("zs", F, [2, 4, 3]),
        ],
        [value("s"), value("outs"), value("totals")],
        opset=8,
    )
    x = {
        "s0": R.standard_normal((2, 3)).astype("f4"),
        "xs": R.standard_normal((2, 4, 3)).astype("f4"),
        "zs": R.standard_normal((2, 4, 3)).astype("f4"),
    }
    check(data, x | {"lengths": np.array([4, 4])}, x | {"lengths": np.array([4, 2])})
