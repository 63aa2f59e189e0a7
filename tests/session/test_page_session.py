"""A page's session, in Node with CPython as its compiler: what is particular to pages.

(What models compute is compared in control_flow and onnx_suite/test_page.py.)
"""

import base64

import edgewise
import numpy as np
import onnxruntime
import pytest
from browser.inference.damage import DAMAGE
from edgewise.errors import Aborted, InputError, ModelError, OutOfMemory, UnsupportedOp
from engines.page_session import PageSession
from onnx import TensorProto, helper

from .control_flow.models import (
    LOOP_IN,
    SCALAR,
    B,
    F,
    I,
    S,
    c,
    counting,
    forever,
    graph,
    model,
    n,
    same,
    seq,
    value,
)


def test_one_engine_and_no_python_once_shapes_are_known():
    """A branch that data decides: each branch is compiled when it is first taken; then Python is
    asked no more.
    """
    then = graph([n("Mul", "x w", "a")], [], [value("a")], name="then")
    other = graph([n("Sub", "x w", "b")], [], [value("b")], name="else")
    data = model(
        [
            n("ReduceSum", "x", "total", keepdims=0),
            n("Greater", "total zero", "positive"),
            n("If", "positive", "y", then_branch=then, else_branch=other),
            n("Neg", "y", "z"),
        ],
        [value("x", F, [3])],
        [value("z")],
        [c("zero", 0.0), c("w", [1, 2, 3], np.float32)],
    )
    s = PageSession(data)
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for sign in (1, -1):
        same(
            s.run(None, {"x": sign * np.float32([1, 2, 3])}),
            want.run(None, {"x": sign * np.float32([1, 2, 3])}),
        )
    asked = len(s.asked)
    for _ in range(3):
        for sign in (1, -1):
            same(
                s.run(None, {"x": sign * np.float32([3, 2, 1])}),
                want.run(None, {"x": sign * np.float32([3, 2, 1])}),
            )
    assert len(s.asked) == asked and s.used == 0


def test_shapes_that_grow():
    """Caches that get longer in each round of a loop: a plan for a range of lengths, which is kept
    for the next visit.
    """
    body = counting([n("Concat", "s x", "t", axis=0)], [("s", "t", F, None)])
    data = model([n("Loop", "M  x", "y", body=body)], [SCALAR, value("x", F, [2])], [value("y")])
    s = PageSession(data, cache=True)
    for m in (3, 20, 5):
        same(
            s.run(None, {"M": np.array(m), "x": np.float32([1, 2])})[0],
            np.tile(np.float32([1, 2]), m + 1),
        )
    s = PageSession(data, cache=True)
    same(
        s.run(None, {"M": np.array(30), "x": np.float32([1, 2])})[0],
        np.tile(np.float32([1, 2]), 31),
    )
    assert not s.asked
    same(
        s.run(None, {"M": np.array(200), "x": np.float32([1, 2])})[0],
        np.tile(np.float32([1, 2]), 201),
    )
    assert "open" in s.asked  # for the lengths that are new


def test_a_damaged_entry_is_made_again():
    """Whatever is stored: the model is compiled again, with the same result, and stored again."""
    rng = np.random.default_rng(0)
    data = model(
        [
            n("Conv", "x w", "c", pads=[1, 1, 1, 1]),
            n("Relu", "c", "r"),
            n("ReduceMean", "r", "y", keepdims=0),
        ],
        [value("x", F, ["b", 3, 8, 8])],
        [value("y")],
        [c("w", rng.standard_normal((6, 3, 3, 3)), np.float32)],
    )
    x = {"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)}
    first = PageSession(data, cache=True)
    before = set(first.kept())
    want = first.run(None, x)
    same(want, onnxruntime.InferenceSession(data).run(None, x))
    (name,) = set(first.kept()) - before
    good = first.kept()[name]
    for how, damage in DAMAGE.items():
        bad = damage(good)
        assert bad != good, how
        first.kept(**{name: bad})
        again = PageSession(data, cache=True)
        same(again.run(None, x), want)
        assert again.asked and again.kept()[name] == good, how
    last = PageSession(data, cache=True)
    same(last.run(None, x), want)
    assert not last.asked


def test_bounds():
    x = {"x": np.float32([1])}
    s = PageSession(forever(), max_loop_trips=2000)
    for _ in range(2):
        with pytest.raises(ModelError, match="2000 iterations.*max_loop_trips"):
            s.run(None, x)
    s = PageSession(forever(nodes=[n("Concat", "s s", "t", axis=0)]), max_memory_bytes=1 << 20)
    for _ in range(2):
        with pytest.raises(OutOfMemory, match="max_memory_bytes"):
            s.run(None, {"x": np.zeros(100, "f4")})
    twice = counting([n("StringConcat", "s s", "t")], [("s", "t", S, None)])
    longer = model(
        [n("Loop", "  x", "y", body=twice)], [value("x", S, ["n"])], [value("y", S)], opset=20
    )
    with pytest.raises(OutOfMemory, match="max_memory_bytes"):
        PageSession(longer, max_memory_bytes=1 << 20).run(None, {"x": np.array(["word"], object)})
    s = PageSession(forever(nodes=[n("Concat", "s x", "t", axis=0)]), max_compilations=5)
    with pytest.raises(ModelError, match="5 plans.*max_compilations"):
        s.run(None, x)
    with pytest.raises(Aborted, match="longer than 0.2 s"):
        PageSession(forever(), max_run_seconds=0.2, max_loop_trips=1 << 40).run(None, x)
    s = PageSession(forever(), max_loop_trips=1 << 40)
    for _ in range(2):
        with pytest.raises(Aborted, match="signal"):
            s.run(None, x, abort=100)


def test_what_stays_in_the_engine():
    """A cache that is handed from run to run, and an output that is an input."""
    data = model(
        [
            n("Concat", "past x", "present", axis=0),
            n("ReduceSum", "present", "total", keepdims=0),
            n("Identity", "cross", "cross_out"),
        ],
        [value("past", F, ["n", 4]), value("x", F, [1, 4]), value("cross", F, [7])],
        [value("total"), value("present"), value("cross_out")],
    )
    s = PageSession(data)
    x, cross = np.float32([[1, 2, 3, 4]]), np.arange(7, dtype=np.float32)
    past, all_of_them, seen = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32), []
    for i in range(4):
        total, past, same_cross = s.run(
            None, {"past": past, "x": x + i, "cross": cross}, pinned=["present", "cross_out"]
        )
        assert same_cross is cross, "it travels neither way"
        all_of_them = np.concatenate([all_of_them, x + i])
        np.testing.assert_array_equal(s.read(past), all_of_them)
        assert total == all_of_them.sum()
        seen.append(past)
    assert s.used > 0
    assert s.drop(*seen[:2]) > 0 and s.drop(*seen[2:]) == 0
    with pytest.raises(InputError, match="disposed of"):
        s.run(None, {"past": past, "x": x, "cross": cross})
    with pytest.raises(InputError, match="expected"):
        past = s.run(
            None, {"past": np.zeros((1, 4), np.float32), "x": x, "cross": cross}, pinned=["present"]
        )[1]
        s.run(None, {"past": all_of_them, "x": x, "cross": past})
    same(s.run(["total"], {"past": past, "x": x, "cross": cross}), [np.float32(20)])


def test_a_failed_run_loses_nothing():
    """A shape that cannot be, in the middle of a program, and the next run."""
    body = counting([n("Reshape", "x shape", "r"), n("Add", "s r", "t")], [("s", "t", F, None)])
    data = model(
        [n("Loop", "M  x", "y", body=body)],
        [SCALAR, value("x", F, ["n"]), value("shape", I, ["k"])],
        [value("y")],
    )
    s = PageSession(data)
    good = {"M": np.array(2), "x": np.float32([1, 2]), "shape": np.array([2])}
    for _ in range(2):
        with pytest.raises(ModelError, match="the_r"):
            s.run(None, {**good, "shape": np.array([3])})
        same(s.run(None, good), [np.float32([3, 6])])
        assert s.used == 0


def test_a_failed_run_keeps_the_copies_that_it_was_sent_with():
    """A run that was sent before the failure feeds the copy by its number."""
    s = PageSession(
        model([n("Add", "x y", "z")], [value("x", F, [2]), value("y", F, [2])], [value("z")])
    )

    def fed(array, **more) -> dict:
        data = base64.b64encode(array.tobytes()).decode()
        return {"type": "float32", "dims": list(array.shape), "data": data, **more}

    copy, wrong = fed(np.float32([1, 2]), keep=-1), fed(np.float32([1, 2, 3]))
    with pytest.raises(InputError, match="feed 'x'"):
        s._call({"run": {"feeds": {"x": wrong, "y": copy}, "outputs": ["z"]}})
    same(
        s.run(None, {"x": np.float32([5, 6]), "y": {"type": "float32", "dims": [2], "pinned": -1}}),
        [np.float32([6, 8])],
    )
    assert s.drop({"pinned": -1}) == 0


def test_types_that_are_not_javascripts():
    """bfloat16 and types of less than a byte, in and out."""
    data = model(
        [
            n("Cast", "x", "f", to=F),
            n("Add", "f f", "g"),
            n("Cast", "g", "y", to=TensorProto.BFLOAT16),
            n("Identity", "q", "p"),
        ],
        [value("x", TensorProto.BFLOAT16, ["n"]), value("q", TensorProto.INT4, [3])],
        [value("y", TensorProto.BFLOAT16), value("p", TensorProto.INT4)],
        opset=21,
    )
    import ml_dtypes

    feeds = {
        "x": np.array([1, -2.5, 3], ml_dtypes.bfloat16),
        "q": np.array([1, -8, 7], ml_dtypes.int4),
    }
    y, p = PageSession(data).run(None, feeds)
    assert y.dtype == ml_dtypes.bfloat16 and y.astype(np.float32).tolist() == [2, -5, 6]
    assert p.astype(np.int8).tolist() == [1, -8, 7]


def test_random_numbers_follow_from_the_runs_seed():
    """Each round of a loop draws others."""
    body = counting(
        [
            n("RandomNormalLike", "s", "noise"),
            n("Add", "s noise", "t"),
            n("Identity", "noise", "out"),
        ],
        [("s", "t", F, None)],
        [value("out", F, None)],
    )
    data = model(
        [n("Loop", "M  x", "y all", body=body)],
        [SCALAR, value("x", F, [4])],
        [value("y"), value("all")],
    )
    rounds = PageSession(data).run(None, {"M": np.array(3), "x": np.zeros(4, np.float32)})[1]
    assert len({r.tobytes() for r in rounds}) == 3


@pytest.mark.parametrize(
    "feeds, words",
    [
        ({"M": np.array(1)}, "missing"),
        ({"M": np.array(1), "s": [], "z": np.array(1)}, "no such input"),
        ({"M": np.array(1), "s": np.float32([1])}, "not a sequence"),
        ({"M": np.array(1), "s": [np.float32([1]), np.array(["a"], object)]}, "s'\\[1\\].*string"),
        ({"M": np.array(["a"], object), "s": []}, "string"),
    ],
)
def test_feeds_that_do_not_fit(feeds, words):
    s = PageSession(
        model(
            [n("SequenceLength", "s", "k"), n("Add", "k M", "y")],
            [SCALAR, value("s", seq())],
            [value("y", I)],
        )
    )
    with pytest.raises(InputError, match=words):
        s.run(None, feeds)
    same(s.run(None, {"M": np.array(1), "s": [np.float32([1]), np.float32([2, 3])]}), [np.array(3)])


def test_metadata():
    s = PageSession(
        model([n("SequenceAt", "s i", "y")], [value("s", seq()), value("i", I, [])], [value("y")])
    )
    assert (
        s.info["inputs"][0]["type"] == "sequence"
        and s.info["inputs"][0]["elem"]["dtype"] == "float32"
    )


def test_an_operator_that_nobody_has():
    node = helper.make_node("Nonsense", ["x"], ["y"], name="the_y", domain="nowhere")
    data = helper.make_model(
        graph([node], [value("x", F, [1])], [value("y")], name="g"),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)],
        ir_version=8,
    )
    with pytest.raises(UnsupportedOp, match="the_y.*Nonsense"):
        PageSession(data.SerializeToString()).run(None, {"x": np.float32([1])})


def test_words_through_a_loop():
    body = graph(
        [n("StringConcat", "s x", "t"), n("Identity", "go", "go_on")],
        [*LOOP_IN, value("s", S, None)],
        [value("go_on", B, []), value("t", S, None)],
    )
    data = model(
        [n("Loop", "M  x", "y", body=body)],
        [SCALAR, value("x", S, ["n"])],
        [value("y", S)],
        opset=20,
    )
    feeds = {"M": np.array(3), "x": np.array(["a", "ß"], object)}
    same(PageSession(data).run(None, feeds), edgewise.InferenceSession(data).run(None, feeds))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_sequences_of_halves(kind):
    """Each element is converted to float16 by its own plan; Python gets one request at a time."""
    data = model(
        [
            n("Cast", "x", "a", to=kind),
            n("Cast", "z", "b", to=kind),
            n("SequenceConstruct", "a b a", "y"),
        ],
        [value("x", F, ["n"]), value("z", F, ["m", 2])],
        [value("y", seq(kind))],
    )
    x, z = np.float32([1, -2.5]), np.float32([[1, 2], [3, 4], [0.5, 0]])
    s = PageSession(data)
    got = s.run(None, {"x": x, "z": z})[0]
    assert [g.dtype.name for g in got] == [
        TensorProto.DataType.Name(kind).lower()
    ] * 3 and s.used == 0
    for g, want in zip(got, [x, z, x]):
        np.testing.assert_array_equal(g.astype(np.float32), want)


def test_splits_stay_within_the_budget():
    """One text of many words makes the rows of all others as long."""
    data = model(
        [n("StringSplit", "x", "y k")],
        [value("x", S, ["n"])],
        [value("y", S), value("k", I)],
        opset=20,
    )
    s = PageSession(data, max_memory_bytes=1 << 26)
    with pytest.raises(OutOfMemory, match="max_memory_bytes"):
        s.run(None, {"x": np.array(["a " * 20_000, *["b"] * 20_000], object)})
    same(s.run(["k"], {"x": np.array(["a b", "c "], object)}), [np.array([2, 1])])


def test_many_strings_are_moved():
    """More than a function call has room for."""
    words = np.array([str(i) for i in range(200_000)], object)
    data = model(
        [n("Slice", "x from to", "y")],
        [value("x", S, ["n"])],
        [value("y", S)],
        [c("from", [-2]), c("to", [200_000])],
    )
    same(PageSession(data).run(None, {"x": words}), [words[-2:]])


def test_sequences_that_grow():
    """Each view of a sequence keeps its own length, whatever is appended to it later; nothing stays
    in the engine.
    """
    body = counting(
        [
            n("SequenceInsert", "s x", "t"),
            n("SequenceInsert", "t x", "other"),
            n("SequenceInsert", "s k", "third"),
            n("ConcatFromSequence", "third", "out", axis=0),
            n("ReduceSum", "out", "total", keepdims=0),
        ],
        [("s", "t", seq(), None)],
        [value("total", F, [])],
    )
    body.input[2].CopyFrom(value("s", seq()))
    data = model(
        [
            n("SequenceEmpty", "", "none"),
            n("SequenceInsert", "none x", "one"),
            n("Loop", "M  one", "y totals", body=body),
            n("SequenceInsert", "one k", "two"),
        ],
        [SCALAR, value("x", F, [2]), value("k", F, [1])],
        [value("y", seq()), value("totals"), value("two", seq())],
    )
    feeds = {"M": np.array(5), "x": np.float32([1, 2]), "k": np.float32([7])}
    s = PageSession(data)
    for _ in range(2):
        same(
            s.run(None, feeds),
            onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds),
        )
        assert s.used == 0


def test_a_plan_that_does_not_fit_names_a_node():
    data = model(
        [n("Expand", "x shape", "e"), n("Sin", "e", "f"), n("ReduceSum", "f", "y", keepdims=0)],
        [value("x", F, [1])],
        [value("y", F, [])],
        [c("shape", [1 << 30])],
    )
    s = PageSession(data)
    for _ in range(2):
        with pytest.raises(OutOfMemory, match="node 'the_e'"):
            s.run(None, {"x": np.float32([1])})


def test_nodes_that_python_runs_stay_within_the_budget():
    """They have the remaining budget of the page's run, and reduce it."""
    encode = helper.make_node(
        "OneHotEncoder",
        ["s"],
        ["y"],
        name="the_y",
        domain="ai.onnx.ml",
        cats_strings=[f"w{i}" for i in range(1000)],
        zeros=1,
    )
    data = helper.make_model(
        helper.make_graph([encode], "g", [value("s", S, ["n"])], [value("y")]),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)],
        ir_version=8,
    ).SerializeToString()
    s = PageSession(data, max_memory_bytes=1 << 22)
    for count in (1000, 2000):
        with pytest.raises(OutOfMemory, match="the_y"):
            s.run(None, {"s": np.array(["w1"] * count, object)})
        np.testing.assert_array_equal(
            s.run(None, {"s": np.array(["w2", "none"], object)})[0].nonzero(), ([0], [2])
        )


def test_rounds_of_a_node_that_python_runs_count():
    from ops.test_search import PROMPTS, f32, i32, search

    data, feeds = search("GreedySearch", [PROMPTS, i32(14), i32(12), f32(1)], ["sequences"])
    s = PageSession(data, max_loop_trips=4)
    for _ in range(2):
        with pytest.raises(ModelError, match="4 iterations.*max_loop_trips"):
            s.run(None, feeds)
    same(PageSession(data).run(None, feeds), edgewise.InferenceSession(data).run(None, feeds))
