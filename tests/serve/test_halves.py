"""Models in two parts: one after the other they compute what the whole computes."""

import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.compiler.compile.halves import split_file
from edgewise.errors import InputError
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(0)


def weight(name, *shape):
    return numpy_helper.from_array(RANDOM.standard_normal(shape).astype(np.float32), name)


def model(path, bypass=False, declared=False):
    """An encoder of x, a decoder that also reads y, and an output of the encoder alone."""
    nodes = [
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("MatMul", ["x", "w1"], ["e0"], name="/encoder/layer.0/MatMul"),
        helper.make_node("Mul", ["e0", "two"], ["e1"], name="/encoder/layer.0/Mul"),
        helper.make_node("Relu", ["e1"], ["hidden"], name="/encoder/Relu"),
        helper.make_node("ReduceMean", ["hidden"], ["mean"], keepdims=0, name="/pool"),
        helper.make_node("MatMul", ["hidden", "w2"], ["d0"], name="/decoder/MatMul"),
        helper.make_node("Add", ["d0", "y"], ["d1"], name="/decoder/Add"),
        helper.make_node("Mul", ["d1", "two"], ["d2"], name="/decoder/Mul"),
    ]
    last = "d2"
    if bypass:
        nodes.append(helper.make_node("Add", ["d2", "e0"], ["d3"], name="/decoder/Residual"))
        last = "d3"
    nodes.append(helper.make_node("Softmax", [last], ["out"]))
    nodes.append(helper.make_node("Identity", ["e1"], ["early"]))

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "two parts",
        [info("x", "n", 4), info("y", 6)],
        [info("out", "n", 6), info("mean"), info("early", "n", 6)],
        [weight("w1", 4, 6), weight("w2", 6, 6)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    if declared:
        made = onnx.shape_inference.infer_shapes(made)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, path)
    return path


def run(path, feeds):
    session = onnxruntime.InferenceSession(str(path))
    names = [o.name for o in session.get_outputs()]
    given = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip(names, session.run(None, given)))


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize(
    "at, bypass",
    [(["hidden"], False), (["encoder"], False), (["e1"], False), (["hidden", "e0", "e1"], True)],
)
def test_the_parts_are_the_whole(tmp_path, at, bypass, declared):
    path = model(tmp_path / "model.onnx", bypass, declared)
    split_file(path, at, tmp_path)
    feeds = {
        "x": RANDOM.standard_normal((3, 4)).astype(np.float32),
        "y": RANDOM.standard_normal(6).astype(np.float32),
    }
    for name in ("first", "second"):
        onnx.checker.check_model(onnx.load(tmp_path / f"{name}.onnx"), full_check=True)
    first = run(tmp_path / "first.onnx", {"x": feeds["x"]})
    second = run(tmp_path / "second.onnx", {**first, "y": feeds["y"]})
    whole = run(path, feeds)
    assert set(whole) <= {**first, **second}.keys()
    for name, expected in whole.items():
        np.testing.assert_array_equal({**first, **second}[name], expected)
    given = {i.name for i in onnx.load(tmp_path / "second.onnx").graph.input}
    assert "x" not in given


def test_what_would_go_around_the_cut_is_told(tmp_path):
    path = model(tmp_path / "model.onnx", bypass=True)
    for at, words in (
        (["hidden"], "cross as well: e0"),
        (["nothing"], "no node computes"),
        (["d2"], "cross as well: e0"),
        (["out"], "no output depends"),
        ([], "no tensor is named"),
    ):
        with pytest.raises(InputError, match=words):
            split_file(path, at, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_inputs_of_both_parts_are_sent_when_allowed(tmp_path):
    path = model(tmp_path / "model.onnx")
    whole = onnx.load(path)
    whole.graph.node[6].input[1] = "shift"
    shift = helper.make_node("ReduceMean", ["x"], ["shift"], keepdims=0, name="/decoder/Mean")
    whole.graph.node.insert(0, shift)
    del whole.graph.input[1]
    onnx.save(whole, path)
    with pytest.raises(InputError, match="both parts read the inputs x"):
        split_file(path, ["hidden"], tmp_path / "parts")
    with pytest.raises(InputError, match="'z' is no input. It has x"):
        split_file(path, ["hidden"], tmp_path / "parts", send=["x", "z"])
    split_file(path, ["hidden"], tmp_path, send=["x"])
    x = RANDOM.standard_normal((2, 4)).astype(np.float32)
    first = run(tmp_path / "first.onnx", {"x": x})
    out = run(tmp_path / "second.onnx", {**first, "x": x})["out"]
    np.testing.assert_array_equal(out, run(path, {"x": x})["out"])
