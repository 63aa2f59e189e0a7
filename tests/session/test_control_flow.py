"""Loops, branches, scans, sequences, optionals, maps and strings as a session runs them, against
onnxruntime.
"""

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.errors import Aborted, EdgewiseError, InputError, ModelError
from edgewise.session.inference import RunOptions
from engines.page_session import PageSession
from onnx import AttributeProto, numpy_helper
from onnx import TensorProto as T
from onnx import helper as h
from onnx.reference import ReferenceEvaluator

F, I, B, S = T.FLOAT, T.INT64, T.BOOL, T.STRING
R = np.random.default_rng(4)


def value(name, kind=F, shape=None):
    return (
        h.make_tensor_value_info(name, kind, shape)
        if isinstance(kind, int)
        else h.make_value_info(name, kind)
    )


def seq(kind=F):
    return h.make_sequence_type_proto(h.make_tensor_type_proto(kind, None))


def c(name, x, dtype=None):
    return numpy_helper.from_array(
        np.asarray(x, dtype if dtype is not None else np.float32 if isinstance(x, float) else None),
        name,
    )


def n(op, inputs, outputs, **attrs):
    return h.make_node(
        op,
        inputs.split(" ") if inputs else [],
        outputs.split(" "),
        name=f"the_{outputs.split(' ')[0]}",
        **attrs,
    )


def graph(nodes, inputs=(), outputs=(), constants=(), name="body"):
    return h.make_graph(nodes, name, list(inputs), list(outputs), list(constants))


def model(nodes, inputs, outputs, constants=(), opset=17, functions=(), ml=None):
    imports = (
        [h.make_opsetid("", opset)]
        + ([h.make_opsetid("ai.onnx.ml", ml)] if ml else [])
        + ([h.make_opsetid("local", 1)] if functions else [])
    )
    return h.make_model(
        graph(nodes, inputs, outputs, constants, "g"),
        opset_imports=imports,
        ir_version=8,
        functions=list(functions),
    ).SerializeToString()


def same(got, want, rtol=1e-5):
    if want is None or isinstance(want, (dict, str)):
        assert got == want
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
    else:
        want = np.asarray(want)
        assert got.shape == want.shape and (got.dtype == want.dtype), (
            got.dtype,
            got.shape,
            want.dtype,
            want.shape,
        )
        (
            np.testing.assert_array_equal(got, want)
            if want.dtype.kind not in "f"
            else np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-6)
        )


def check(data, *feeds, engine=None, reference="ort"):
    """Runs it on each set of feeds, twice, here and as pages do, and compares with onnxruntime (or
    ONNX's reference). Returns the last outputs.
    """
    other = (
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        if reference == "ort"
        else ReferenceEvaluator(data)
    )
    wants = [list(other.run(None, f)) for f in feeds]
    session = edgewise.InferenceSession(data, engine=engine)
    try:
        for f, want in [*zip(feeds, wants)] * 2:
            got = session.run(None, f)
            same(got, want)
    finally:
        session.free()
    check_page(data, feeds, wants)
    return got


def check_page(data, feeds, wants):
    """A page's session: one that compiles, and one of the next visit, which has all plans without
    Python. Only what Python alone can run is asked of it.
    """
    for visit in (1, 2):
        session = PageSession(data, cache=True)
        for f, want in [*zip(feeds, wants)] * 2:
            same(session.run(None, f), want)
            assert session.used == 0, "all engine memory of a run is given back"
        asked = [what for what in session.asked if what != "node"]
        assert visit == 1 or not asked or "node" in session.asked and asked == ["open"], asked


LOOP_IN = [value("i", I, []), value("go", B, [])]
SCALAR = value("M", I, [])


def counting(nodes, states, scans=(), constants=(), level=""):
    """A loop body: states as [(name in, name out, type, shape)]."""
    return graph(
        [*nodes, n("Identity", "go" + level, "go_on" + level)],
        [
            value("i" + level, I, []),
            value("go" + level, B, []),
            *[value(a, t, s) for a, _, t, s in states],
        ],
        [value("go_on" + level, B, []), *[value(b, t, s) for _, b, t, s in states], *scans],
        constants,
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


def forever(state="s", out="t", nodes=None):
    body = counting(nodes or [n("Identity", "s", "t")], [(state, out, F, None)])
    return model([n("Loop", "  x", "y", body=body)], [value("x", F, None)], [value("y")])


def test_a_loop_that_never_ends():
    o = edgewise.SessionOptions()
    o.max_loop_trips = 2000
    s = edgewise.InferenceSession(forever(), o)
    for _ in range(2):
        with pytest.raises(ModelError, match="2000 times"):
            s.run(None, {"x": np.float32([1])})


def test_a_loop_that_is_stopped():
    options = RunOptions()
    options.terminate = True
    with pytest.raises(Aborted):
        edgewise.InferenceSession(forever()).run(None, {"x": np.float32([1])}, options)


def test_a_loop_that_grows():
    """Twice as long in each trip: an error, and the session goes on."""
    s = edgewise.InferenceSession(forever(nodes=[n("Concat", "s s", "t", axis=0)]))
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


# ---- data-dependent shapes in the middle of a model ----
def test_nonzero_in_the_middle(engine):
    """What masks are turned into by exporters: places, which are gathered, computed with, and
    scattered back.
    """
    data = model(
        [
            n("Greater", "x zero", "mask"),
            n("NonZero", "mask", "at"),
            n("Transpose", "at", "places", perm=[1, 0]),
            n("GatherND", "x places", "v"),
            n("Sqrt", "v", "r"),
            n("Shape", "r", "count"),
            n("ConstantOfShape", "count", "ones", value=c("", [1], np.float32)),
            n("Add", "r ones", "u"),
            n("ScatterND", "x places u", "y"),
            n("ReduceSum", "ones", "k", keepdims=0),
        ],
        [value("x", F, ["a", "b"])],
        [value("y"), value("k")],
        [c("zero", 0.0)],
    )
    check(
        data,
        *[{"x": R.standard_normal(s).astype("f4")} for s in ((3, 4), (1, 1), (7, 2), (3, 4))],
        {"x": -np.ones((2, 2), "f4")},
        engine=engine,
    )


def test_what_a_shape_is_computed_from():
    """A number through float arithmetic, float16 and a composite op into a shape."""
    data = model(
        [
            n("ReduceMax", "x", "top", keepdims=0),
            n("Mul", "top two", "d"),
            n("Cast", "d", "half", to=T.FLOAT16),
            n("Range", "zero half one", "r"),
            n("Cast", "r", "y", to=F),
            n("Cast", "d", "k", to=I),
            n("Unsqueeze", "k ax", "k1"),
            n("OneHot", "i k onoff", "z"),
        ],
        [value("x", F, ["n"]), value("i", I, [2])],
        [value("y"), value("z")],
        [
            c("two", 2.0),
            c("zero", 0, np.float16),
            c("one", 1, np.float16),
            c("ax", [0], np.int64),
            c("onoff", [0.0, 1.0], np.float32),
        ],
    )
    session = edgewise.InferenceSession(data)
    for top in (1, 3, 2, 1):
        y, z = session.run(None, {"x": np.float32([0.5, top]), "i": np.array([0, 1])})
        same(y, np.arange(2 * top).astype("f4"))
        assert z.shape == (2, 2 * top) and z[1, 1] == 1


def test_functions_that_need_a_run():
    """A model-local function with a shape from data, one with a loop and an attribute in its body,
    each called twice.
    """
    sized = h.make_function(
        "local",
        "Sized",
        ["a", "count"],
        ["b"],
        [
            h.make_node("Constant", [], ["nil"], value_int=0),
            h.make_node("Constant", [], ["unit"], value_int=1),
            n("Range", "nil count unit", "r"),
            n("ReduceSum", "r", "total", keepdims=1),
            n("Expand", "a total", "b"),
        ],
        [h.make_opsetid("", 17)],
    )
    scaled = h.make_node("Constant", [], ["k"])
    scaled.attribute.append(
        AttributeProto(name="value_float", type=AttributeProto.FLOAT, ref_attr_name="factor")
    )
    body = counting([scaled, n("Mul", "s k", "t")], [("s", "t", F, None)])
    powers = h.make_function(
        "local",
        "Powers",
        ["a", "M"],
        ["b"],
        [n("Loop", "M  a", "b", body=body)],
        [h.make_opsetid("", 17)],
        attributes=["factor"],
    )
    data = model(
        [
            h.make_node("Sized", ["x", "M"], ["b1"], domain="local"),
            h.make_node("Powers", ["b1", "M"], ["b2"], domain="local", factor=2.0),
            h.make_node("Powers", ["b2", "two"], ["y"], domain="local", factor=3.0),
        ],
        [SCALAR, value("x", F, [1])],
        [value("y")],
        [c("two", 2, np.int64)],
        functions=[sized, powers],
    )
    session = edgewise.InferenceSession(data)
    for m in (2, 3, 4, 2):
        same(
            session.run(None, {"M": np.array(m), "x": np.float32([1])})[0],
            np.full(m * (m - 1) // 2, 9 * 2**m, np.float32),
        )


def test_what_is_fed_decides_the_branch():
    """Branches that give sequences, and one that a shape inside of a branch depends on."""
    then = graph(
        [
            n("ReduceSum", "sizes", "k", keepdims=1),
            n("Range", "nil k0 unit", "r"),
            n("Squeeze", "k", "k0"),
            n("ReduceSum", "r", "m", keepdims=1),
            n("Expand", "x m", "a"),
        ],
        [],
        [value("a")],
        name="then",
    )
    then.node.insert(1, then.node.pop(2))
    other = graph([n("Identity", "x", "b")], [], [value("b")], name="else")
    data = model(
        [n("If", "go", "y", then_branch=then, else_branch=other), n("Neg", "y", "z")],
        [value("go", B, []), value("sizes", I, [2]), value("x", F, [1])],
        [value("z")],
        [c("nil", 0, np.int64), c("unit", 1, np.int64)],
    )
    check(
        data,
        *[
            {"go": np.array(g), "sizes": np.array([1, k]), "x": np.float32([3])}
            for g in (True, False)
            for k in (1, 3)
        ],
    )
    first = graph([n("SequenceConstruct", "x x", "a")], [], [value("a", seq())], name="then")
    second = graph([n("SplitToSequence", "x", "b", axis=0)], [], [value("b", seq())], name="else")
    data = model(
        [n("If", "go", "y", then_branch=first, else_branch=second), n("SequenceAt", "y at", "z")],
        [value("go", B, []), value("at", I, []), value("x", F, [3])],
        [value("y", seq()), value("z")],
    )
    check(
        data,
        *[
            {"go": np.array(g), "at": np.array(k), "x": np.float32([3, 4, 5])}
            for g in (True, False)
            for k in (1, -1)
        ],
    )


# ---- sequences, optionals, maps ----
def test_sequences_in_and_out(engine):
    data = model(
        [
            n("SequenceInsert", "s x at", "t"),
            n("SequenceErase", "t first", "u"),
            n("SequenceLength", "u", "k"),
            n("ConcatFromSequence", "u", "y", axis=0),
            n("SequenceAt", "u last", "z"),
        ],
        [value("s", seq()), value("x", F, None), value("at", I, [])],
        [value("t", seq()), value("u", seq()), value("k", I), value("y"), value("z")],
        [c("first", 0, np.int64), c("last", -1, np.int64)],
    )
    s = [R.standard_normal((k, 2)).astype("f4") for k in (1, 3, 2)]
    check(
        data,
        *[
            {"s": s, "x": np.ones((k, 2), "f4"), "at": np.array(at)}
            for k, at in ((1, 0), (4, -1), (2, 3))
        ],
        engine=engine,
    )
    session = edgewise.InferenceSession(data)
    assert (
        [i.type for i in session.get_inputs()]
        == [i.type for i in onnxruntime.InferenceSession(data).get_inputs()]
        == ["seq(tensor(float))", "tensor(float)", "tensor(int64)"]
    )
    for feeds, words in (
        ({"s": s, "x": s[0], "at": np.array(9)}, "the_t"),
        ({"s": s[0], "x": s[0], "at": np.array(0)}, "sequence"),
        ({"s": [s[0], "a"], "x": s[0], "at": np.array(0)}, r"s\[1\]"),
        ({"s": [s[0].astype("f8")], "x": s[0], "at": np.array(0)}, "float64"),
    ):
        with pytest.raises((InputError, ModelError), match=words):
            session.run(None, feeds)


@pytest.mark.parametrize("split, keep", [(None, 1), (None, 0), (2, 1), ([1, 4], 1), ([5, 0], 1)])
def test_split_to_sequence(split, keep):
    for fed in (False, True):
        if split is None and fed:
            continue
        inputs = [value("x", F, ["n", 5])] + ([value("k", I, list(np.shape(split)))] if fed else [])
        data = model(
            [n("SplitToSequence", "x" if split is None else "x k", "y", axis=1, keepdims=keep)],
            inputs,
            [value("y", seq())],
            [c("k", split, np.int64)] if split is not None and not fed else [],
        )
        check(
            data,
            {"x": R.standard_normal((2, 5)).astype("f4")} | ({"k": np.array(split)} if fed else {}),
        )


def test_sequence_map():
    body = graph(
        [n("Mul", "a b", "p"), n("Add", "p w", "q"), n("Shape", "q", "k")],
        [value("a", F, None), value("b", F, None)],
        [value("q", F, None), value("k", I, None)],
    )
    data = model(
        [n("SequenceMap", "s t", "y k", body=body)],
        [value("s", seq()), value("t", F, [2])],
        [value("y", seq()), value("k", seq(I))],
        [c("w", 0.5)],
    )
    for s in ([], [np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])]):
        session = edgewise.InferenceSession(data)
        y, k = session.run(None, {"s": s, "t": np.float32([2, 3])})
        same(y, [x * np.float32([2, 3]) + np.float32(0.5) for x in s])
        same(k, [np.array(x.shape) for x in s])


def test_optionals():
    kind = h.make_optional_type_proto(h.make_tensor_type_proto(F, [2]))
    has = graph([n("OptionalGetElement", "o", "a")], [], [value("a", F, [2])], name="then")
    none = graph([n("Identity", "w", "b")], [], [value("b", F, [2])], name="else")
    data = model(
        [
            n("OptionalHasElement", "o", "has"),
            n("If", "has", "y", then_branch=has, else_branch=none),
            n("Identity", "o", "same"),
        ],
        [value("o", kind)],
        [value("has", B), value("y"), value("same", kind)],
        [c("w", [7, 8], np.float32)],
        opset=18,
    )
    session = edgewise.InferenceSession(data)
    assert session.get_inputs()[0].type == "optional(tensor(float))"
    x = np.float32([1, 2])
    for o in (x, None, x):
        has, y, back = session.run(None, {"o": o})
        assert has == (o is not None)
        same(y, x if o is not None else np.float32([7, 8]))
        same(back, o)


def test_maps():
    kind = h.make_sequence_type_proto(
        h.make_map_type_proto(T.STRING, h.make_tensor_type_proto(F, []))
    )
    node = h.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    check(
        model([node], [value("x", F, ["n", 2])], [value("y", kind)], ml=1),
        {"x": np.float32([[0.25, 0.75], [1, 0]])},
    )
    pairs = h.make_map_type_proto(T.STRING, h.make_tensor_type_proto(F, []))
    check(
        model(
            [
                h.make_node(
                    "DictVectorizer",
                    ["x"],
                    ["y"],
                    domain="ai.onnx.ml",
                    string_vocabulary=["b", "z", "a"],
                )
            ],
            [value("x", pairs)],
            [value("y")],
            ml=1,
        ),
        {"x": {"a": 1.5, "b": 2.0}},
    )
    pairs = h.make_map_type_proto(T.INT64, h.make_tensor_type_proto(F, []))
    for attrs in ({}, {"map_form": "SPARSE", "max_map": 6}):
        check(
            model(
                [h.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml", **attrs)],
                [value("x", pairs)],
                [value("y")],
                ml=1,
            ),
            {"x": {5: 1.5, 1: 2.0}},
        )


# ---- strings ----
def words(*text):
    return np.array(text, dtype=object)


STRINGS = [
    ("Reshape", "x two", {}),
    ("Gather", "x i", {}),
    ("Concat", "x x", {"axis": 0}),
    ("Slice", "x b e", {}),
    ("Identity", "x", {}),
    ("Squeeze", "x", {}),
    ("Equal", "x y", {}),
    (
        "StringNormalizer",
        "x",
        {"locale": "C", "case_change_action": "UPPER", "stopwords": ["the", "A"]},
    ),
    (
        "StringNormalizer",
        "x",
        {
            "locale": "C",
            "is_case_sensitive": 1,
            "stopwords": ["the", "of"],
            "case_change_action": "LOWER",
        },
    ),
    ("Expand", "x three", {}),
    ("Tile", "x i", {}),
    ("Where", "mask x y", {}),
    ("Size", "x", {}),
    ("Shape", "x", {}),
]


@pytest.mark.parametrize(
    "op, inputs, attrs", STRINGS, ids=lambda x: x if isinstance(x, str) and x.isalpha() else ""
)
def test_strings(op, inputs, attrs):
    x, y = words("the", "Sea", "of", "A"), words("the", "sea", "of", "bc")
    constants = [
        c("two", [2, 2], np.int64),
        c("i", [3], np.int64),
        c("b", [1], np.int64),
        c("e", [3], np.int64),
        c("three", [3, 4], np.int64),
        c("mask", [True, False, False, True]),
    ]
    used = [k for k in constants if k.name in inputs.split()]
    feeds = {k: v for k, v in (("x", x), ("y", y)) if k in inputs.split()}
    kind = B if op == "Equal" else I if op in ("Size", "Shape") else S
    data = model(
        [n(op, inputs, "z", **attrs)],
        [value(k, S, [4]) for k in feeds],
        [value("z", kind)],
        used,
        opset=19,
    )
    check(data, feeds)
    assert edgewise.InferenceSession(data).get_inputs()[0].type == "tensor(string)"


def test_string_constants_and_lists():
    data = model(
        [n("Constant", "", "k", value_strings=["a", "b"]), n("Concat", "k w x", "z", axis=0)],
        [value("x", S, [1])],
        [value("z", S)],
        [h.make_tensor("w", S, [2], ["c", "dé"])],
    )
    (got,) = edgewise.InferenceSession(data).run(None, {"x": ["é"]})
    assert got.tolist() == ["a", "b", "c", "dé", "é"]
    for bad in ([1], np.array([1.0]), ["a", ["b"]], [None]):
        with pytest.raises(InputError):
            edgewise.InferenceSession(data).run(None, {"x": bad})


def test_unique_strings():
    data = model(
        [n("Unique", "x", "y first inverse counts")],
        [value("x", S, ["n"])],
        [value("y", S), value("first", I), value("inverse", I), value("counts", I)],
    )
    check(data, {"x": words("b", "a", "b", "c", "a")})


@pytest.mark.parametrize(
    "pattern, texts",
    [
        (r"(\w+)@(\w+\.)+com", ["a@b.com", "a@b.c.com", "@.com", ""]),
        (r"a*b+c?", ["b", "aabbc", "ac", "abcc"]),
        (r"(?i)[^x-z]{2,3}", ["ab", "aX", "ABC", "abcd"]),
        (r"(a|ab)(c|bcd)(d*)", ["abcd", "ac", "abd"]),
        (r"\d{3}-\d{4}|none", ["555-1234", "none", "5-1"]),
        ("(a*)*b", ["a" * 40, "aab"]),
    ],
)
def test_regular_expressions(pattern, texts):
    """Also one that takes exponential time where alternatives are tried one by one."""
    data = model(
        [n("RegexFullMatch", "x", "y", pattern=pattern)],
        [value("x", S, ["n"])],
        [value("y", B)],
        opset=20,
    )
    check(data, {"x": words(*texts)})


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(?=a)b", "(", "((a{1000}){1000}){1000}", "(){4000000000}"]
)
def test_regular_expressions_refused(pattern):
    with pytest.raises(ModelError, match="the_y"):
        edgewise.InferenceSession(
            model(
                [n("RegexFullMatch", "x", "y", pattern=pattern)],
                [value("x", S, ["n"])],
                [value("y", B)],
                opset=20,
            )
        ).run(None, {"x": ["a"]})


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips, low, high", [(0, 1, 1), (0, 2, 2), (3, 1, 2), (1, 2, 3)])
def test_tf_idf(mode, skips, low, high):
    attrs = {
        "mode": mode,
        "max_skip_count": skips,
        "min_gram_length": low,
        "max_gram_length": high,
        "ngram_counts": [0, 4, 10],
        "ngram_indexes": [0, 1, 2, 3, 6, 5, 4, 7],
        "weights": [1.0, 2.0, 3.0, 4.0, 0.5, 0.25, 0.125, 8.0],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 5, 6, 7],
    }
    data = model([n("TfIdfVectorizer", "x", "y", **attrs)], [value("x", I, None)], [value("y")])
    check(
        data,
        {"x": np.array([1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8])},
        {"x": np.array([[1, 2, 5, 6, 7, 8], [8, 6, 7, 6, 7, 2]])},
    )


@pytest.mark.parametrize(
    "keys, values, x",
    [
        ("keys_strings", "values_int64s", words("a", "b", "z")),
        ("keys_int64s", "values_strings", np.array([1, 2, 9])),
        ("keys_floats", "values_floats", np.float32([1, np.nan, 3])),
        ("keys_int64s", "values_floats", np.array([2, 2, 0])),
        ("keys_strings", "values_floats", words("b", "", "a")),
    ],
)
def test_label_encoder(keys, values, x):
    of = {"strings": ["a", "b"], "int64s": [1, 2], "floats": [1.0, float("nan")]}
    kinds = {"strings": S, "int64s": I, "floats": F}
    node = h.make_node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        **{
            keys: of[keys.split("_")[1]],
            values: {"strings": ["u", "v"], "int64s": [7, 8], "floats": [0.5, 2.5]}[
                values.split("_")[1]
            ],
        },
    )
    check(
        model(
            [node],
            [value("x", kinds[keys.split("_")[1]], None)],
            [value("y", kinds[values.split("_")[1]])],
            ml=4,
        ),
        {"x": x},
    )


def test_category_mapper():
    for kinds, x in (((S, I), words("a", "c", "b")), ((I, S), np.array([5, 7, 1]))):
        node = h.make_node(
            "CategoryMapper",
            ["x"],
            ["y"],
            domain="ai.onnx.ml",
            cats_strings=["a", "b"],
            cats_int64s=[5, 7],
        )
        check(model([node], [value("x", kinds[0], [3])], [value("y", kinds[1])], ml=1), {"x": x})
