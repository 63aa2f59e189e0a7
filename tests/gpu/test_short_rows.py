"""Rows that are short and many, each computed by one invocation, and large products: against the
engine on the processor, step by step. On a GPU in software more rows are computed so.
"""

import numpy as np
import pytest
from edgewise import InferenceSession
from edgewise.compiler.gpu.variants import stages_of
from edgewise.compiler.targets import target_of
from edgewise.host.webgpu import compare
from edgewise.onnx import BytesSource, read_model
from edgewise.training.program import Program
from edgewise.training.session import TrainingSession
from onnx import TensorProto, helper, numpy_helper

from .adapters import gpu

RNG = np.random.default_rng(12)
ROWS, COLUMNS = 72, 24  # both are above and below the limits of core/kernels/**/*.wgsl
LONG = 70  # columns that only a GPU in software computes by one invocation


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
    return {stage.name for step in loaded.steps for stage in stages_of(step, [])}


@pytest.mark.parametrize(
    "rows, columns, serial, alone",
    [(ROWS, COLUMNS, False, True), (8, COLUMNS, False, False), (ROWS, LONG, True, True)],
)
def test_a_training_step(rows, columns, serial, alone):
    engine = gpu(serial=serial)
    program = Program(
        network(rows, columns),
        {"x": [rows, columns]},
        loss="cross_entropy",
        target=target_of(engine.device),
    )
    session = TrainingSession(program, engine)
    x = RNG.standard_normal((rows, columns)).astype("f4")
    labels = RNG.integers(0, columns, rows)
    first = session.train({"x": x, "labels": labels}, 1e-3)["loss"]
    loaded = session.loaded["train"]
    assert loaded.info["onCpu"] == {}
    assert compare(loaded) == []
    kernels = {"softmax", "softmax_grad", "norm", "norm_grad", "cross_entropy"}
    assert {k: f"{k}.alone" in names(loaded) for k in kernels} == dict.fromkeys(kernels, alone)
    assert session.train({"x": x, "labels": labels}, 1e-3)["loss"] < first
    session.free()


@pytest.mark.parametrize("m, n, b_first", [(513, 517, False), (516, 512, True)])
def test_large_products(m, n, b_first):
    """Blocks of 8 x 8 elements, the last of which reach over the edge; b as it is, transposed."""
    nodes = [helper.make_node("Gemm", ["a", "b"], ["y"], transB=int(b_first))]
    shapes = {"a": [m, 5], "b": [n, 5] if b_first else [5, n], "y": [m, n]}
    a, b, y = (helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items())
    graph = helper.make_graph(nodes, "g", [a, b], [y])
    opset = helper.make_opsetid("", 21)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    session = InferenceSession(made.SerializeToString(), engine=gpu())
    x = {k: RNG.standard_normal(shapes[k]).astype("f4") for k in "ab"}
    want = x["a"] @ (x["b"].T if b_first else x["b"])
    np.testing.assert_allclose(session.run(None, x)[0], want, rtol=1e-5, atol=1e-5)
    session.free()
