"""Metadata, initializers that are inputs, and operators that Edgewise does not have."""

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.compiler.compile import compile_inference
from edgewise.errors import InputError
from edgewise.onnx import as_source
from engines.page_session import PageSession
from onnx import TensorProto, helper, numpy_helper

from .scripts import W, X, both, model, product, refused, value

METADATA = ("producer_name", "graph_name", "domain", "description", "graph_description", "version")


def test_metadata():
    def described(ort, data):
        meta = ort.InferenceSession(data).get_modelmeta()
        return {n: getattr(meta, n) for n in METADATA}, dict(meta.custom_metadata_map)

    m = onnx.load_from_string(product())
    both(described, m.SerializeToString())
    m.producer_name, m.producer_version, m.domain = "yolo", "8", "org.example"
    m.model_version, m.doc_string, m.graph.doc_string = 2**60 + 1, "what it does\n", "its graph"
    names = {"names": "{0: 'cat', 1: 'dög'}", "stride": "32", "empty": ""}
    helper.set_model_props(m, names)
    found, custom = both(described, m.SerializeToString())
    assert custom == names and found["version"] == 2**60 + 1


def same_in_page(data, *feeds):
    """A page's session and onnxruntime's, over all feeds in turn, also at a second visit."""
    session = onnxruntime.InferenceSession(data)
    for _ in range(2):
        page = PageSession(data, cache=True)
        assert [i["name"] for i in page.info["overridable"]] == [
            i.name for i in session.get_overridable_initializers()
        ]
        for f in feeds:
            for y, want in zip(page.run(None, f), session.run(None, f)):
                np.testing.assert_array_equal(y, want)


def fed(ort, data, *feeds):
    session = ort.InferenceSession(data)
    names = [
        [i.name for i in infos()]
        for infos in (session.get_inputs, session.get_overridable_initializers)
    ]
    return names, [[y.tolist() for y in session.run(None, f)] for f in feeds]


def test_an_initializer_that_is_an_input():
    """Fed, not fed, and fed again: no run computes with the values of another."""
    other = W * 10
    feeds = [{"x": X}, {"x": X, "w": other}, {"x": X}, {"x": X, "w": -other}]
    feeds += [f for f in feeds[1:] for _ in range(3)]  # often enough to be recorded
    both(fed, product(("x", "w")), *feeds)
    same_in_page(product(("x", "w")), *feeds)


def test_an_initializer_that_is_read_in_a_branch_and_folded():
    """What depends on it is a constant in one program and computed in the other: a product of its
    transpose, and a branch that reads it from outside.
    """
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["folded", "y0"], [name])], name, [], [value(name, None)]
        )
        for name, op in (("then", "Add"), ("else", "Sub"))
    }
    data = model(
        [
            helper.make_node("Transpose", ["w"], ["t"]),
            helper.make_node("MatMul", ["w", "t"], ["folded"]),
            helper.make_node("MatMul", ["x", "t"], ["y0"]),
            helper.make_node(
                "If", ["c"], ["y"], then_branch=branches["then"], else_branch=branches["else"]
            ),
        ],
        [value("x", [3, 2]), value("c", [], TensorProto.BOOL), value("w", [3, 2])],
        [value("y", [3, 3])],
        [numpy_helper.from_array(W, "w")],
    ).SerializeToString()
    feeds = [
        {"x": X, "c": np.array(c), **w}
        for c in (True, False)
        for w in ({}, {"w": W * 2}, {}, {"w": W - 1})
    ]
    both(fed, data, *feeds)
    same_in_page(data, *feeds)


def test_initializers_that_no_caller_may_feed():
    """Before IR version 4 initializers were inputs without a choice."""
    data = product(("x", "w"), 3, 7)
    both(fed, data, {"x": X})
    for wrong in ({"x": X, "w": W}, {"x": X, "nothing": W}):
        both(lambda ort, w=wrong: refused(ort, lambda: ort.InferenceSession(data).run(None, w)))
    with pytest.raises(InputError, match="'w': dimension 0 is 1, expected 3"):
        edgewise.InferenceSession(product(("x", "w"))).run(None, {"x": X, "w": W[:1]})


def test_unknown_operators_are_refused_when_the_session_is_made():
    """All of them are named, also those in branches and functions."""
    inner = helper.make_graph(
        [helper.make_node("InBranch", ["x"], ["b"])], "b", [], [value("b", None)]
    )
    function = helper.make_function(
        "local",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("InFunction", ["a"], ["b"], domain="other")],
        [helper.make_opsetid("other", 1)],
    )
    m = model(
        [
            helper.make_node("First", ["x"], ["y"], "the first"),
            helper.make_node("F", ["y"], ["z"], domain="local"),
            helper.make_node("If", ["c"], ["v"], then_branch=inner, else_branch=inner),
        ],
        [value("x", [2]), value("c", [], TensorProto.BOOL)],
        [value("z", [2]), value("v", [2])],
        opsets=[helper.make_opsetid("local", 1), helper.make_opsetid("other", 1)],
        functions=[function],
    ).SerializeToString()
    with pytest.raises(Exception, match="First"):
        onnxruntime.InferenceSession(m)
    with pytest.raises(NotImplementedError) as e:
        edgewise.InferenceSession(m)
    with pytest.raises(NotImplementedError) as in_page:
        PageSession(m)
    assert str(in_page.value) == str(e.value)
    with pytest.raises(NotImplementedError) as ahead_of_time:
        compile_inference({"model.onnx": as_source(m)})
    assert str(ahead_of_time.value) == str(e.value)
    text = str(e.value)
    assert all(n in text for n in ("First (opset 17)", "InBranch", "other.InFunction", "3 operato"))
    assert "the first" in text
