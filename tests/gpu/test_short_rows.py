"""Rows that are short and many, each computed by one invocation, and large products: against the
engine on the processor, step by step.
"""

import numpy as np
import pytest
from edgewise.onnx import BytesSource, read_model
from edgewise.targets import target_of
from edgewise.training.program import Program
from edgewise.training.session import TrainingSession
from edgewise.webgpu import compare
from onnx import TensorProto, helper, numpy_helper

from .adapters import gpu

RNG = np.random.default_rng(12)
ROWS, COLUMNS = 72, 24  # both are above and below the limits of core/kernels/**/*.wgsl


def network(rows, columns):
    """Softmax, both norms and sums over `rows` rows of `columns`, with weights."""

    def weight(name, *shape):
        return numpy_helper.from_array(0.3 * RNG.standard_normal(shape).astype("f4"), name)

    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["h1"]),
        helper.make_node("MatMul", ["h1", "w1"], ["h2"]),
        helper.make_node("Softmax", ["h2"], ["h3"]),
        helper.make_node("Add", ["h3", "bias"], ["h4"]),
        helper.make_node("RMSNormalization", ["h4", "gain"], ["h5"]),
        helper.make_node("ReduceLogSumExp", ["h5", "last"], ["h6"]),
        helper.make_node("LogSoftmax", ["h5"], ["h7"]),
        helper.make_node("Mul", ["h7", "h6"], ["logits"]),
    ]
    weights = [weight(n, columns) for n in ("scale", "shift", "bias", "gain")]
    weights += [weight("w1", columns, columns), numpy_helper.from_array(np.array([-1]), "last")]
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, columns])
        for n in ("x", "logits")
    )
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opset = helper.make_opsetid("", 23)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=11)
    return read_model(BytesSource(made.SerializeToString()))


def names(loaded):
    """Of the shaders that a plan runs."""
    return {stage.name for launch in loaded.launches if launch for stage in launch.stages}


@pytest.mark.parametrize("rows, alone", [(ROWS, True), (8, False)])
def test_a_training_step(rows, alone):
    engine = gpu()
    program = Program(
        network(rows, COLUMNS),
        {"x": [rows, COLUMNS]},
        loss="cross_entropy",
        target=target_of(engine.device),
    )
    session = TrainingSession(program, engine)
    x = RNG.standard_normal((rows, COLUMNS)).astype("f4")
    labels = RNG.integers(0, COLUMNS, rows)
    first = session.train({"x": x, "labels": labels}, 1e-3)["loss"]
    loaded = session.loaded["train"]
    assert loaded.info["onCpu"] == {}
    assert compare(loaded) == []
    kernels = {"softmax", "softmax_grad", "norm", "norm_grad", "cross_entropy"}
    assert {f"{k}.alone" in names(loaded) for k in kernels} == {alone}
    assert session.train({"x": x, "labels": labels}, 1e-3)["loss"] < first
    session.free()
