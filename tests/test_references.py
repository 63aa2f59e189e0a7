"""The references of integer products are exact on this processor, and mean what they replace."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ops.harness import all_cases
from passes.graphs import Graph
from references import PRODUCTS, exact_form

CASES = [
    (name, case)
    for name, case in all_cases()
    if case.name in PRODUCTS and case.trust != "onnx" and case.expect is None
]


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"]).run(None, feeds)


def run_as_it_is(model, feeds):
    """With weights as they are, whatever this processor makes of them."""
    session = object.__new__(onnxruntime.InferenceSession)
    plain = onnxruntime.InferenceSession.__init__.__wrapped__
    plain(session, model, None, ["CPUExecutionProvider"])
    return session.run(None, feeds)


def with_seven_bits(model):
    """Signed weights of half the size: no sum of two products leaves 16 bits on any processor."""
    for i, tensor in enumerate(model.graph.initializer):
        if tensor.data_type == TensorProto.INT8:
            halves = numpy_helper.to_array(tensor) // 2
            model.graph.initializer[i].CopyFrom(numpy_helper.from_array(halves, tensor.name))
    return model.SerializeToString()


@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_sums_are_those_of_integers(rows, constant, signed):
    """Of bytes of all sizes with signed weights: NumPy's, in 64 bits."""
    random = np.random.default_rng(rows)
    a = random.integers(0, 256, (rows, 130)).astype(np.uint8)
    a[0], w = 255, random.integers(-128, 128, (130, 33)).astype(np.int8)
    a, w[:, 0], zero = a.view(np.int8) if signed else a, 127, np.array(-3, np.int8)
    g = Graph()
    x = g.input(value=a)
    y = g.MatMulInteger(x, g.constant(w) if constant else g.input(value=w), "", zero)
    g.output(g.Cast(y, to=TensorProto.DOUBLE))
    model = onnx.load_from_string(g.model())
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    (got,) = run(model.SerializeToString(), g.feeds)
    assert np.array_equal(got, a.astype(np.int64) @ (w.astype(np.int64) + 3))


@pytest.mark.parametrize("case", [c for _, c in CASES], ids=[name for name, _ in CASES])
def test_the_exact_form_means_the_same(case):
    model, feeds = case.model(reference=True)
    feeds = {n: np.asarray(x // 2) if x.dtype == np.int8 else x for n, x in feeds.items()}
    data = with_seven_bits(model)
    want = run_as_it_is(data, feeds)
    for got, expected in zip(run_as_it_is(exact_form(data), feeds), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_every_operator_with_such_products_is_known():
    """On any processor: no other has signed bytes beside unsigned ones, or floats that it may
    quantize; but those that quantize and dequantize.
    """

    def mixes(case):
        types = {x.dtype.name for x, _ in case.inputs if x is not None and x.size > 2}
        return "int8" in types and types & {"uint8", "float16", "float32"}

    found = {case.name for _, case in all_cases() if mixes(case) and case.expect is None}
    assert found - {"QuantizeLinear", "DequantizeLinear"} == set(PRODUCTS)


def test_every_operator_has_a_case():
    """Whose weights the exact form makes unsigned."""
    changed = set()
    for _, case in CASES:
        data = case.model(reference=True)[0].SerializeToString()
        if exact_form(data) is not data:
            changed.add(case.name)
    assert changed == set(PRODUCTS)


def test_bytes_between_floats():
    """DequantizeLinear of weights with scales by column and no zero points, and in a branch."""
    g, random = Graph(17), np.random.default_rng(0)
    scale, zero = np.float32(0.02), np.uint8(128)
    x = g.DequantizeLinear(g.QuantizeLinear(g.input(5, 64), scale, zero), scale, zero)
    w = g.constant(random.integers(-128, 128, (64, 16)).astype(np.int8))
    w = g.DequantizeLinear(w, random.uniform(0.01, 0.02, 16).astype(np.float32), axis=1)
    y = g.MatMul(x, w)
    g.output(g.DequantizeLinear(g.QuantizeLinear(y, np.float32(0.1), zero), np.float32(0.1), zero))
    data = g.model()
    form = onnx.load_from_string(exact_form(data))
    weights = {i.name: i for i in form.graph.initializer}[form.graph.node[2].input[0]]
    assert weights.data_type == TensorProto.UINT8
    (got,), (want,) = run(data, g.feeds), floats(data, g.feeds)
    assert np.abs(got - want).max() <= 0.1001


def floats(data, feeds):
    """What onnxruntime computes in floats, operator by operator."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feeds)


def test_weights_of_a_branch():
    """They may be values of the graph around it; the shape of the model stays."""
    inner = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "w"], ["z"])],
        "inner",
        [],
        [helper.make_tensor_value_info("z", TensorProto.INT32, [4, 8])],
    )
    w = np.full((64, 8), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        "outer",
        [
            helper.make_tensor_value_info("a", TensorProto.UINT8, [4, 64]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 8])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"a": np.full((4, 64), 255, np.uint8), "c": np.array(True)}
    form = exact_form(model.SerializeToString())
    for data in (form, model.SerializeToString()):
        (got,) = run(data, feeds)
        assert (got == 64 * 255 * 127).all()
    onnx.checker.check_model(onnx.load_from_string(form))


def test_other_models_are_left_alone(tmp_path):
    g = Graph()
    g.output(g.Relu(g.input(2, 3)))
    data = g.model()
    (tmp_path / "model.onnx").write_bytes(data)
    path = tmp_path / "model.onnx"
    for model in (data, path, str(path), b"MatMulInteger", str(tmp_path / "none.onnx"), None):
        assert exact_form(model) is model
