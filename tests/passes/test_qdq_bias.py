"""Products between DequantizeLinear and QuantizeLinear with every kind of bias and scale that ONNX
allows: the result is that of the formula in float64, rounded once.
"""

import itertools

import edgewise
import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

CHANNELS, STEP, ZERO = 16, 0.05, 3
X_SCALE, W_SCALE = np.float32(0.02), np.float32(0.03)
BIASES = {
    "none": {},
    "of the sums": {"scale": X_SCALE * W_SCALE},
    "coarser": {"scale": np.float32(0.01)},
    "finer": {"scale": X_SCALE * W_SCALE / np.float32(7)},
    "large": {"scale": np.float32(3.0)},
    "with a zero point": {"scale": X_SCALE * W_SCALE, "zero": 40},
    "a scale for each": {"scale": np.linspace(1e-4, 2e-3, CHANNELS).astype(np.float32)},
    "of int8": {"scale": np.float32(0.02), "dtype": np.int8},
    "a float": {"dtype": np.float32},
}


class Model:
    """y = product(dequantize(x), dequantize(w)) + dequantize(bias), perhaps between bounds and
    quantized to y_type.
    """

    def __init__(self, op, bias, per_channel, y_type, bounds, x_type=np.uint8, x_scale=X_SCALE):
        self.random = np.random.default_rng(7)
        self.op, self.nodes, self.constants = op, [], []
        x_shape, w_shape, axis, attributes = {
            "Conv": ((2, 3, 6, 5), (CHANNELS, 3, 3, 3), 0, {"pads": [1] * 4}),
            "depthwise": ((2, CHANNELS, 6, 5), (CHANNELS, 1, 3, 3), 0, {"group": CHANNELS}),
            "Gemm": ((5, 24), (24, CHANNELS), 1, {}),
            "Gemm turned": ((24, 5), (CHANNELS, 24), 0, {"transA": 1, "transB": 1}),
            "MatMul": ((2, 5, 24), (24, CHANNELS), 1, {}),
        }[op]
        self.x = self.random.integers(*self.range(x_type), x_shape).astype(x_type)
        w = self.random.integers(-127, 127, w_shape).astype(np.int8)
        w_scale = W_SCALE
        if per_channel:
            w_scale = (W_SCALE * np.linspace(0.2, 1, CHANNELS)).astype(np.float32)
        zero = np.array(5, x_type)
        terms = [self.node("DequantizeLinear", "x", self.constant(x_scale), self.constant(zero))]
        terms += [
            self.node("DequantizeLinear", self.constant(w), self.constant(w_scale), axis=axis)
        ]
        if BIASES[bias]:
            terms.append(self.bias(**BIASES[bias]))
        y = self.node(op.split()[0] if op != "depthwise" else "Conv", *terms, **attributes)
        for bound in bounds:
            ends = [self.constant(np.float32(v)) for v in bound]
            y = self.node("Clip", y, *ends) if ends else self.node("Relu", y)
        self.exact = y
        if y_type is not None:
            of = self.constant(np.float32(STEP)), self.constant(np.array(ZERO, y_type))
            y = self.node("QuantizeLinear", y, *of)
        self.y, self.y_type = y, y_type

    @staticmethod
    def range(dtype):
        return np.iinfo(dtype).min, np.iinfo(dtype).max + 1

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def bias(self, scale=None, zero=None, dtype=np.int32):
        if scale is None:
            return self.constant(self.random.standard_normal(CHANNELS).astype(dtype))
        most = min(1000, np.iinfo(dtype).max)
        b = self.random.integers(-most, most, CHANNELS).astype(dtype)
        zeros = [] if zero is None else [self.constant(np.array(zero, dtype))]
        return self.node("DequantizeLinear", self.constant(b), self.constant(scale), *zeros, axis=0)

    def model(self, output):
        out = helper.make_empty_tensor_value_info(output)
        element = helper.np_dtype_to_tensor_dtype(self.x.dtype)
        fed = helper.make_tensor_value_info("x", element, self.x.shape)
        graph = helper.make_graph(self.nodes, "g", [fed], [out], self.constants)
        opsets = [helper.make_opsetid("", 21)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def check(self):
        [want] = ReferenceEvaluator(self.model(self.exact)).run(None, {"x": self.x})
        want = want.astype(np.float64)
        [got] = edgewise.InferenceSession(self.model(self.y).SerializeToString()).run(
            None, {"x": self.x}
        )
        if self.y_type is None:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
            return
        assert got.dtype == self.y_type
        low, high = self.range(self.y_type)
        want = np.clip(want / STEP + ZERO, low, high - 1)
        assert np.abs(got - want).max() <= 0.5 + 1 / 128


OPS = ("Conv", "depthwise", "Gemm", "Gemm turned", "MatMul")


@pytest.mark.parametrize(
    "op, bias", [(op, b) for op in OPS for b in BIASES if op != "MatMul" or b == "none"]
)
def test_a_bias(op, bias):
    bounds = ([], [[]], [[-0.3, 0.4]], [[-2.0, -1.0], []])
    each = itertools.product((False, True), (np.uint8, np.int8, None), bounds)
    for per_channel, y_type, between in each:
        Model(op, bias, per_channel, y_type, between).check()


@pytest.mark.parametrize("op", OPS)
def test_odd_scales(op):
    """Of the input: of another type, negative, and so small that sums are far below a step."""
    for scale, x_type in ((np.float32(-0.02), np.int8), (np.float32(1e-6), np.uint8)):
        for bias, y_type in itertools.product(("coarser", "none"), (np.int8, None)):
            bias = "none" if op == "MatMul" else bias
            Model(op, bias, True, y_type, [], x_type, scale).check()


def test_the_largest_byte_of_a_negative_scale():
    """It is the smallest number, so MaxPool is not that of bytes."""
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (1, 2, 6, 6)).astype(np.uint8)
    constants = {"s": np.float32(-0.1), "z": np.uint8(7), "t": np.float32(0.1), "y0": np.uint8(99)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("MaxPool", ["f"], ["m"], kernel_shape=[2, 2]),
        helper.make_node("QuantizeLinear", ["m", "t", "y0"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    [want] = ReferenceEvaluator(model).run(None, {"x": x})
    [got] = edgewise.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)
