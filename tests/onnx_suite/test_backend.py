"""The backend beyond what ONNX's suite calls: nodes by themselves, inputs by name, devices,
engines, and what it refuses.
"""

import ml_dtypes
import numpy as np
import onnx
import pytest
from edgewise.errors import InputError, ModelError, UnsupportedOp
from onnx import TensorProto, helper

from . import backend

X = np.array([[-1, 2, -3]], np.float32)


def model(op="Add", domain="", inputs=("a", "b")):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in inputs]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["the sum"], domain=domain)],
        "g",
        infos,
        [helper.make_tensor_value_info("the sum", TensorProto.FLOAT, [1, 3])],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, 17 if not d else 1) for d in {"", domain}]
    )


def test_inputs_and_outputs_by_place_and_name(engine):
    ready = backend.prepare(model(), engine=engine)
    by_place, by_name = ready.run([X, 2 * X]), ready.run({"b": 2 * X, "a": X})
    for outputs in (by_place, by_name, backend.run_model(model(), (X, 2 * X), engine=engine)):
        assert isinstance(outputs, tuple) and len(outputs) == 1
        np.testing.assert_array_equal(outputs[0], 3 * X)
        np.testing.assert_array_equal(outputs["the sum"], 3 * X)


def test_one_input_needs_no_list():
    np.testing.assert_array_equal(
        backend.run_model(model("Relu", inputs=("x",)), X)[0], np.maximum(X, 0)
    )


def test_models_are_messages_bytes_and_files(tmp_path):
    onnx.save(model(), tmp_path / "m.onnx")
    for m in (model(), model().SerializeToString(), tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        assert backend.is_compatible(m)
        np.testing.assert_array_equal(backend.run_model(m, [X, X])[0], 2 * X)


def test_nodes():
    node = helper.make_node
    np.testing.assert_array_equal(
        backend.run_node(node("Add", ["a", "b"], ["y"]), [X, X])["y"], 2 * X
    )
    np.testing.assert_array_equal(backend.run_node(node("Add", ["a", "a"], ["y"]), [X])[0], 2 * X)
    np.testing.assert_array_equal(
        backend.run_node(node("Clip", ["x", "", "high"], ["y"]), [X, None, np.float32(1)])[0],
        np.minimum(X, 1),
    )
    np.testing.assert_array_equal(
        backend.run_node(node("Clip", ["x", "", "high"], ["y"]), [X, np.float32(1)])[0],
        np.minimum(X, 1),
    )
    np.testing.assert_array_equal(
        backend.run_node(node("Clip", ["x"], ["y"], max=1.0), [X], opset_version=6)[0],
        np.minimum(X, 1),
    )
    np.testing.assert_array_equal(
        backend.run_node(node("Relu", ["x"], ["y"]), [X], outputs_info=[(np.float32, X.shape)])[0],
        np.maximum(X, 0),
    )
    (y,) = backend.run_node(node("Add", ["a", "b"], ["y"]), [X.astype(ml_dtypes.bfloat16)] * 2)
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), 2 * X)


def test_what_is_no_valid_model():
    with pytest.raises(onnx.checker.ValidationError):
        backend.run_node(helper.make_node("Add", ["a"], ["y"]), [X])
    with pytest.raises(onnx.checker.ValidationError):
        backend.run_node(
            helper.make_node("Clip", ["x"], ["y"], max=1.0), [X]
        )  # an attribute until opset 6
    with pytest.raises(ModelError):
        backend.prepare(b"no model")


def test_devices():
    assert (
        backend.supports_device("CPU")
        and backend.supports_device("CPU:0")
        and not backend.supports_device("CUDA")
    )
    with pytest.raises(InputError, match="CUDA"):
        backend.prepare(model(), "CUDA")


def test_operators_that_are_not_there():
    unknown = model("Nonsense", "test.domain")
    assert not backend.is_compatible(unknown)
    with pytest.raises(UnsupportedOp, match="test.domain.Nonsense"):
        backend.run_model(unknown, [X, X])


@pytest.mark.parametrize(
    "call",
    [
        lambda: backend.run_model(model(), [X]),
        lambda: backend.run_model(model(), {"a": X}),
        lambda: backend.run_model(model(), [X, X[0]]),
        lambda: backend.run_node(helper.make_node("Add", ["a", "b"], ["y"]), [X]),
        lambda: backend.run_node(helper.make_node("Add", ["a", "b"], ["y"]), [X, object()]),
        lambda: backend.run_node(
            helper.make_node("Add", ["a", "b"], ["y"]), [X, X], outputs_info=[]
        ),
        lambda: backend.run_node(
            helper.make_node("Add", ["a", "a"], ["y"]), [X.astype("datetime64[s]")]
        ),
    ],
)
def test_what_does_not_fit(call):
    with pytest.raises(InputError):
        call()
