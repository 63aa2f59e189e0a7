"""Gradients and optimizers on a GPU that no language model needs: pools, 8-bit moments."""

import numpy as np
from edgewise.compiler.targets import target_of
from edgewise.engine.native import NativeEngine
from edgewise.onnx import BytesSource, read_model
from edgewise.training.program import Program
from edgewise.training.session import TrainingSession
from onnx import TensorProto, helper, numpy_helper

from .adapters import gpu

RNG = np.random.default_rng(8)


def picture_model():
    def weight(name, *shape):
        return numpy_helper.from_array(0.3 * RNG.standard_normal(shape).astype("f4"), name)

    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "c1"], ["h1"], **window),
        helper.make_node("MaxPool", ["h1"], ["p1"], strides=[2, 2], **window),
        helper.make_node("Conv", ["p1", "c2"], ["h2"], **window),
        helper.make_node("AveragePool", ["h2"], ["p2"], strides=[1, 2], **window),
        helper.make_node("Flatten", ["p2"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [2, 5])],
        [weight("c1", 6, 1, 3, 3), weight("c2", 6, 6, 3, 3), weight("w", 48, 5)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return read_model(BytesSource(made.SerializeToString()))


def test_pools_and_8_bit_moments():
    graph = picture_model()
    feeds = {"x": RNG.standard_normal((2, 1, 8, 8)).astype("f4"), "labels": np.array([1, 3])}
    runs = []
    for engine in (NativeEngine(threads=1), gpu(), gpu()):
        program = Program(
            graph,
            {"x": [2, 1, 8, 8]},
            loss="cross_entropy",
            optimizer="AdamW8bit",
            target=target_of(engine.device),
        )
        session = TrainingSession(program, engine)
        losses = [session.train(feeds, 1e-2)["loss"] for _ in range(4)]
        states = {n: session.device.read(b) for n, b in session.memory.items()}
        if engine is gpu():
            assert session.loaded["train"].info["onCpu"] == {}
        runs.append((np.array(losses), states))
        session.free()
    (want, cpu), (got, first), (_, second) = runs
    np.testing.assert_allclose(got, want, rtol=1e-3)
    assert got[-1] < got[0] and first == second
    for name in ("c1", "c2", "w"):
        a, b = (np.frombuffer(states[name], np.float32) for states in (cpu, first))
        assert np.abs(a - b).max() <= 2e-3, name
