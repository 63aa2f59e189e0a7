"""Infinities, and NaN of every payload, beside numpy: raw bits reach kernels from files."""

import edgewise
import numpy as np
import pytest
from onnx import TensorProto, helper

PAYLOADS = np.array([0x7FC00000, 0x7FC00001, 0xFFC00001, 0x7F800001, 0x7FFFFFFF], "<u4")
WIDTHS = (1, 3, 4, 16, 37, 300)


def session(op: str, opset: int = 17, **attributes) -> edgewise.InferenceSession:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return edgewise.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("width", WIDTHS)
def test_log_sum_exp_of_infinities(axis, width) -> None:
    x = np.random.default_rng(width).normal(size=(5, width)).astype("f4")
    x[0, 0], x[1, -1], x[2, :], x[3, 0] = np.inf, -np.inf, -np.inf, 120
    got = session("ReduceLogSumExp", axes=[axis], keepdims=0).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, np.logaddexp.reduce(x.astype("f8"), axis), rtol=1e-5)


@pytest.mark.parametrize("op", ["Sigmoid", "Softmax", "LogSoftmax", "Exp", "Tanh"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nan_stays(op, width) -> None:
    x = np.zeros((len(PAYLOADS), width), "f4")
    x[:, width // 2] = PAYLOADS.view("f4")
    got = session(op).run(None, {"x": x})[0]
    of_rows = op.endswith("Softmax")
    assert np.array_equal(np.isnan(got), np.isnan(x) | (of_rows and np.ones_like(x, bool)))
