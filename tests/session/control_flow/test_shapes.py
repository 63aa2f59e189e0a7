"""Shapes and branches that depend on values, which only a run knows."""

import edgewise
import numpy as np
from onnx import AttributeProto
from onnx import TensorProto as T
from onnx import helper as h

from .models import SCALAR, B, F, I, R, c, check, counting, graph, model, n, same, seq, value


# ---- data-dependent shapes in the middle of a model ----
def test_nonzero_in_the_middle(engine):
    """The form in which exporters write masks: indices that are gathered, computed with, and
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
