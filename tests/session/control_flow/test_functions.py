"""Functions that a model defines, against onnxruntime with ONNX's inliner. (Alone, onnxruntime and
ONNX's reference evaluator take functions that differ in their overload for one another.)
"""

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.errors import ModelError, UnsupportedOp
from edgewise.onnx import ModelEditor
from onnx import TensorProto, helper, inliner, numpy_helper

DOMAIN = "functions"


def node(op, inputs, outputs, overload="", domain=DOMAIN, **attributes):
    n = helper.make_node(op, inputs, outputs, domain=domain, **attributes)
    n.overload = overload
    return n


def function(name, nodes, overload="", opset=21, attributes=(), inputs=("x",)):
    return helper.make_function(
        DOMAIN,
        name,
        list(inputs),
        ["y"],
        nodes,
        [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)],
        list(attributes),
        overload=overload,
    )


def scaled(factor, overload=""):
    """A function "scaled" that multiplies with a number."""
    number = numpy_helper.from_array(np.float32(factor))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=number),
        helper.make_node("Mul", ["x", "c"], ["y"]),
    ]
    return function("scaled", nodes, overload)


def model(nodes, functions, shape=(2, 3)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(n.output[0]) for n in nodes],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)


def check(made, x, inlined=True):
    theirs = (inliner.inline_local_functions(made) if inlined else made).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    want = onnxruntime.InferenceSession(theirs, options).run(None, {"x": x})
    got = edgewise.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def overloads():
    functions = [scaled(2), scaled(3, "three"), scaled(5, "five")]
    functions.append(
        function(
            "both", [node("scaled", ["x"], ["h"], "five"), node("scaled", ["h"], ["y"], "three")]
        )
    )
    nodes = [node("scaled", ["x"], ["a"]), node("scaled", ["x"], ["b"], "three")]
    return model([*nodes, node("both", ["x"], ["c"])], functions)


def test_overloads():
    check(overloads(), X)


def test_an_overload_that_runs_between_plans():
    """NonZero's output depends on data: the session runs the function part by part."""
    nodes = [node("scaled", ["x"], ["s"], "zero"), helper.make_node("NonZero", ["s"], ["y"])]
    found = function("found", nodes, "there")
    functions = [scaled(0, "zero"), scaled(1), found, function("found", [nodes[1]])]
    functions[3].node[0].input[0] = "x"
    calls = [node("found", ["x"], ["a"]), node("found", ["x"], ["b"], "there")]
    check(model(calls, functions), X)


def test_an_overload_that_is_missing():
    made = model([node("scaled", ["x"], ["a"], "four")], [scaled(2), scaled(3, "three")])
    with pytest.raises(UnsupportedOp, match="scaled:four"):
        edgewise.InferenceSession(made.SerializeToString()).run(None, {"x": X})


def test_two_functions_of_one_name():
    made = model([node("scaled", ["x"], ["a"], "t")], [scaled(2, "t"), scaled(3, "t")])
    with pytest.raises(ModelError, match="two functions"):
        edgewise.InferenceSession(made.SerializeToString())


def test_overloads_are_written(tmp_path):
    """In nodes that were changed, too."""
    made = overloads()
    changed = ModelEditor(made.SerializeToString())
    changed.graph.nodes[1].name = "renamed"
    changed.write(tmp_path / "changed.onnx")
    written = onnx.load(tmp_path / "changed.onnx")
    made.graph.node[1].name = "renamed"
    assert list(written.graph.node) == list(made.graph.node)
    assert list(written.functions) == list(made.functions)


def test_versions_of_a_function():
    """Softmax of opset 12, in a model of opset 21, is over all dimensions from `axis` on."""
    old = function("old", [helper.make_node("Softmax", ["x"], ["y"], axis=1)], opset=12)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    made = model([node("old", ["x"], ["a"])], [old], x.shape)
    rows = np.exp(x.reshape(2, 12))
    want = (rows / rows.sum(1, keepdims=True)).reshape(x.shape)
    [got] = edgewise.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_attributes_by_reference():
    """With a default, of the caller, and through a second function."""
    inner = helper.make_node("LeakyRelu", ["x"], ["y"])
    inner.attribute.append(reference("alpha", "slope"))
    leaky = function("leaky", [inner], attributes=["slope"])
    call = node("leaky", ["x"], ["y"])
    call.attribute.append(reference("slope", "steep"))
    outer = function("outer", [call])
    outer.attribute_proto.append(helper.make_attribute("steep", 0.25))
    nodes = [
        node("leaky", ["x"], ["a"], slope=0.5),
        node("outer", ["x"], ["b"]),
        node("outer", ["x"], ["c"], steep=0.125),
    ]
    check(model(nodes, [leaky, outer]), X, inlined=False)  # ONNX's inliner drops defaults


def reference(name, other):
    attribute = helper.make_attribute(name, 1.0)
    attribute.ClearField("f")
    attribute.ref_attr_name = other
    return attribute
