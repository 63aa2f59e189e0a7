"""Statically quantized graphs are computed on bytes, and give what onnxruntime gives with its own
optimizations: at most one step of the last quantization apart.
"""

import edgewise
import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise.compiler.passes import PASSES
from onnx import numpy_helper
from onnxruntime import quantization as q

from .graphs import Graph, run

TYPES = {"uint8": q.QuantType.QUInt8, "int8": q.QuantType.QInt8}


class Quantized:
    """A graph that onnxruntime's tools have quantized: `format` "QDQ" or "QOperator", types of
    activations and weights.
    """

    def __init__(
        self,
        graph,
        tmp_path,
        format="QDQ",
        activations="uint8",
        weights="int8",
        per_channel=True,
        **options,
    ):
        source, target, self.feeds = (
            tmp_path / "float.onnx",
            tmp_path / "quantized.onnx",
            graph.feeds,
        )
        model = onnx.load_from_string(graph.model())
        onnx.save(model, source)
        random = np.random.default_rng(1)
        images = iter(
            [graph.feeds]
            + [
                {k: random.standard_normal(v.shape).astype(v.dtype) for k, v in graph.feeds.items()}
                for _ in range(3)
            ]
        )

        class Images(q.CalibrationDataReader):
            def get_next(self):
                return next(images, None)

        q.quantize_static(
            source,
            target,
            Images(),
            quant_format=q.QuantFormat[format],
            activation_type=TYPES[activations],
            weight_type=TYPES[weights],
            per_channel=per_channel,
            **options,
        )
        self.bytes = target.read_bytes()

    def model(self):
        return self.bytes

    def step(self):
        """The scale of the last DequantizeLinear, which makes the output."""
        model = onnx.load_from_string(self.bytes)
        last = next(n for n in model.graph.node if n.output[0] == model.graph.output[0].name)
        assert last.op_type == "DequantizeLinear"
        return float(
            next(
                numpy_helper.to_array(i) for i in model.graph.initializer if i.name == last.input[1]
            )
        )


def check(model, *gone, **ops):
    """Outputs are onnxruntime's; the graph contains each op the given number of times and none in
    `gone`.
    """
    want = onnxruntime.InferenceSession(model.model(), providers=["CPUExecutionProvider"]).run(
        None, model.feeds
    )
    left, got = run(model, PASSES)
    for a, b in zip(got, want, strict=True):
        assert np.abs(a - b).max() <= 1.01 * model.step(), dict(left)
    assert {k: left[k] for k in ops} == ops and not [o for o in gone if left[o]], dict(left)


def network():
    """What convolutional networks are made of."""
    g = Graph(17)
    x = g.Relu(
        g.Conv(
            g.input(1, 3, 48, 48), g.weight(16, 3, 3, 3), g.weight(16), pads=[1] * 4, strides=[2, 2]
        )
    )
    x = g.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = g.Clip(g.Conv(x, g.weight(24, 16, 1, 1), g.weight(24)), 0.0, 6.0)
    y = g.Clip(g.Conv(y, g.weight(24, 1, 3, 3), g.weight(24), group=24, pads=[1] * 4), 0.0, 6.0)
    x = g.Relu(g.Add(g.Conv(y, g.weight(16, 24, 1, 1), g.weight(16)), x))
    x = g.LeakyRelu(
        g.Conv(x, g.weight(12, 8, 3, 3), g.weight(12), group=2, dilations=[2, 2]), alpha=0.1
    )
    x = g.Mul(x, g.Sigmoid(x))
    g.output(g.Gemm(g.Flatten(x), g.weight(10, 12 * 64), g.weight(10), transB=1))
    return g


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    "activations,weights", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")]
)
def test_a_network(activations, weights, per_channel, tmp_path):
    check(
        Quantized(network(), tmp_path, "QDQ", activations, weights, per_channel),
        "Conv",
        "Gemm",
        "Add",
        "Relu",
        IntegerConv=5,
        MaxPool=1,
        IntegerMatMul=1,
        IntegerBinary=2,
        ByteLookup=2,
        QuantizeLinear=1 + 2,
        DequantizeLinear=1 + 2,
    )  # of the input and the output; the others make tables


def test_quantized_operators(tmp_path):
    check(
        Quantized(network(), tmp_path, "QOperator", per_channel=False),
        "Conv",
        "Gemm",
        "Add",
        IntegerConv=5,
        IntegerMatMul=1,
        IntegerBinary=2,
        ByteLookup=2,
    )


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_products_of_activations(activations, tmp_path):
    """As attention has them: both sides are computed, one of them transposed."""
    g = Graph(17)
    a, w = (
        g.Transpose(g.Reshape(g.MatMul(g.input(2, 7, 32), g.weight(32, 32)), [2, 7, 4, 8]), perm=p)
        for p in ([0, 2, 1, 3], [0, 2, 3, 1])
    )
    g.output(g.MatMul(a, w))
    check(
        Quantized(g, tmp_path, activations=activations, per_channel=False),
        "MatMul",
        IntegerMatMul=3,
    )


def test_what_has_no_scale_for_all_stays():
    """Activations with a scale per channel are not an integer product."""
    g = Graph(17)
    scale, zero = (
        g.constant(np.array([0.1, 0.2, 0.3], np.float32)),
        g.constant(np.zeros(3, np.uint8)),
    )
    x = g.DequantizeLinear(
        g.QuantizeLinear(g.input(1, 3, 8, 8), scale, zero, axis=1), scale, zero, axis=1
    )
    w = g.DequantizeLinear(
        g.constant(g.random.integers(-9, 9, (4, 3, 3, 3)).astype(np.int8)),
        0.1,
        g.constant(np.int8(0)),
    )
    g.output(g.Conv(x, w))
    left, got = run(g, PASSES)
    assert left["Conv"] == 1 and not left["IntegerConv"]
    np.testing.assert_allclose(
        got[0],
        onnxruntime.InferenceSession(g.model(), providers=["CPUExecutionProvider"]).run(
            None, g.feeds
        )[0],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("weights", ["uint8", "int8"])
def test_dynamically_quantized_convolutions(weights, engine, tmp_path):
    g = Graph(17)
    x = g.Relu(g.Conv(g.input(1, 3, 20, 20), g.weight(8, 3, 3, 3), g.weight(8), pads=[1] * 4))
    g.output(g.Relu(g.Add(g.Conv(x, g.weight(8, 8, 1, 1), g.weight(8)), x)))
    (tmp_path / "float.onnx").write_bytes(g.model())
    q.quantize_dynamic(
        tmp_path / "float.onnx",
        tmp_path / "dynamic.onnx",
        op_types_to_quantize=["Conv"],
        weight_type=TYPES[weights],
    )
    want = onnxruntime.InferenceSession(
        tmp_path / "dynamic.onnx", providers=["CPUExecutionProvider"]
    ).run(None, g.feeds)[0]
    session = edgewise.InferenceSession(str(tmp_path / "dynamic.onnx"), engine=engine)
    got = session.run(None, g.feeds)[0]
    session.free()
    assert (
        np.abs(got - want).max() <= 0.02 * np.abs(want).max()
    )  # a byte of the second quantization may round either way
    assert np.abs(got - want).mean() <= 1e-3 * np.abs(want).max()


def test_on_every_engine(engine, tmp_path):
    model = Quantized(network(), tmp_path)
    want = onnxruntime.InferenceSession(model.model(), providers=["CPUExecutionProvider"]).run(
        None, model.feeds
    )[0]
    session = edgewise.InferenceSession(model.model(), engine=engine)
    got = session.run(None, model.feeds)[0]
    session.free()
    assert np.abs(got - want).max() <= 1.01 * model.step()
