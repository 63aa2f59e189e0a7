"""Weights are in engine memory once for all plans, and freed after init steps have packed them."""

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.engine import open_engine
from edgewise.errors import EngineError, ModelError
from edgewise.onnx import BytesSource
from onnx import TensorProto, helper, numpy_helper

K, N = 256, 264


class Counting(BytesSource):
    """Records the ranges that are read, and can be made to fail."""

    def __init__(self, data):
        super().__init__(data, "counted")
        self.reads, self.broken = [], False

    def read(self, offset, size):
        if self.broken and size >= K * N:
            raise ModelError("it could not be read", self.name, "Choose it again.")
        self.reads.append((offset, size))
        return super().read(offset, size)

    def weights_read(self):
        count = sum(size == K * N for _, size in self.reads)
        self.reads.clear()
        return count


def quantized(also=False):
    """y = DynamicQuantize(x) · w, where w is packed on loading; with `also` its bytes are an
    output, too.
    """
    random = np.random.default_rng(0)
    w = random.integers(-127, 128, (K, N), np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", N])]
    if also:
        nodes.append(helper.make_node("Gather", ["w", "i"], ["row"]))
        outputs.append(helper.make_tensor_value_info("row", TensorProto.INT8, None))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])] + (
        [helper.make_tensor_value_info("i", TensorProto.INT64, [1])] if also else []
    )
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(w, "w")]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    return model.SerializeToString(), w


def reference(model, feeds):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)


def test_packed_weights_lie_there_once(engine):
    model, _ = quantized()
    source = Counting(model)
    session = edgewise.InferenceSession(source, engine=engine)
    for rows in (
        3,
        5,
    ):  # the second plan finds what the first one computed, and does not ask for the weight
        feeds = {"x": np.random.default_rng(rows).standard_normal((rows, K), np.float32)}
        np.testing.assert_allclose(
            session.run(None, feeds)[0], reference(model, feeds)[0], rtol=1e-5, atol=1e-4
        )
        assert source.weights_read() == (1 if rows == 3 else 0)
        assert not [t.name for _, t, _ in session.store.weights.values() if t.name == "w"]
    session.free()


def test_who_needs_it_later_reads_it_again():
    """A plan that reads the weight itself gets it from its source, and then it stays."""
    model, w = quantized(also=True)
    source = Counting(model)
    session = edgewise.InferenceSession(source, engine=open_engine(1))
    feeds = {"x": np.ones((2, K), np.float32), "i": np.array([7])}
    (y,) = session.run(["y"], feeds)
    assert source.weights_read() == 1 and not [
        t for _, t, _ in session.store.weights.values() if t.name == "w"
    ]
    source.broken = True
    with pytest.raises(ModelError, match="could not be read"):
        session.run(["row"], feeds)
    np.testing.assert_array_equal(session.run(["y"], feeds)[0], y)  # nothing was lost
    source.broken = False
    np.testing.assert_array_equal(session.run(["row"], feeds)[0], w[7:8])
    np.testing.assert_array_equal(
        session.run(["y"], {**feeds, "x": np.ones((4, K), np.float32)})[0], np.repeat(y[:1], 4, 0)
    )
    assert source.weights_read() == 1 and [
        t for _, t, _ in session.store.weights.values() if t.name == "w"
    ]
    session.free()


def test_a_slot_that_was_let_go_of_is_not_read():
    """Init steps that run again without their weights fail with an error."""
    model, _ = quantized()
    session = edgewise.InferenceSession(model, engine=open_engine(1))
    session.run(None, {"x": np.ones((2, K), np.float32)})
    loaded = next(iter(session.plans.values())).loaded
    at = next(i for i, s in enumerate(loaded.plan.slots) if s.name == "w")
    assert loaded.in_init(at) and not loaded.in_runs(at)
    with pytest.raises(EngineError, match="not bound"):
        loaded.init()
    session.free()
