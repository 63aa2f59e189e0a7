"""Sizes at which products, convolutions, pooling and resizing switch from whole vectors and tiles
to remainders, against onnxruntime.
"""

import edgewise
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper


def compare(nodes: list, x: np.ndarray, constants: dict[str, np.ndarray], threads: int = 1) -> None:
    """Runs a graph from x to y by both packages."""
    shape = list(x.shape)
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, shape)],
        [h.make_tensor_value_info("y", T.FLOAT, None)],
        [numpy_helper.from_array(v, name) for name, v in constants.items()],
    )
    opsets = [h.make_opsetid("", 18)]
    data = h.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    options = edgewise.SessionOptions()
    options.intra_op_num_threads = threads
    got = edgewise.InferenceSession(data, options).run(None, {"x": x})[0]
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5 * max(1, float(np.abs(want).max())))


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# Lines of 4, 8, 16 and more tiles of 2 x 2, odd sizes, several items; channels of 1 to 4 tiles of
# rows.
@pytest.mark.parametrize(
    "batch, channels, kernels, height, width",
    [
        (1, 16, 16, 12, 16),
        (1, 16, 20, 9, 31),
        (2, 17, 28, 10, 32),
        (1, 24, 36, 7, 33),
        (3, 16, 50, 6, 64),
        (1, 20, 24, 33, 66),
        (2, 16, 44, 5, 130),
        (1, 32, 17, 40, 48),
    ],
)
@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", None])
@pytest.mark.parametrize("threads", [1, 2])
def test_convolutions_of_3_by_3(batch, channels, kernels, height, width, activation, threads):
    nodes = [h.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1])]
    nodes.append(h.make_node(activation or "Identity", ["c"], ["y"]))
    weights = {"w": normal(1, kernels, channels, 3, 3) / 10, "b": normal(2, kernels)}
    compare(nodes, normal(3, batch, channels, height, width), weights, threads)


def test_a_residual_of_a_convolution():
    nodes = [
        h.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        h.make_node("Add", ["c", "x"], ["y"]),
    ]
    compare(
        nodes, normal(3, 2, 24, 11, 70), {"w": normal(1, 24, 24, 3, 3) / 10, "b": normal(2, 24)}
    )


@pytest.mark.parametrize("width", [2, 4, 7, 8, 16, 17, 32, 45])
@pytest.mark.parametrize(
    "taps, pads, strides",
    [
        ([1, 3], [0, 1, 0, 1], [1, 1]),
        ([3, 1], [0, 0, 0, 0], [1, 1]),
        ([3, 2], [1, 0, 2, 1], [2, 1]),
        ([2, 3], [0, 2, 1, 0], [1, 2]),
        ([5, 2], [4, 1, 0, 0], [3, 2]),
    ],
)
def test_lines_of_positions(width, taps, pads, strides):
    nodes = [h.make_node("Conv", ["x", "w", "b"], ["y"], pads=pads, strides=strides)]
    compare(
        nodes, normal(3, 2, 6, 23, width), {"w": normal(1, 26, 6, *taps) / 5, "b": normal(2, 26)}
    )


@pytest.mark.parametrize("width", [2, 3, 5, 8, 15, 16, 19, 33, 1040])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "taps, strides, pads",
    [
        ([2, 2], [2, 2], [0, 0, 0, 0]),
        ([1, 2], [1, 2], [0, 0, 0, 0]),
        ([3, 2], [1, 1], [1, 1, 1, 0]),
        ([2, 18], [3, 1], [0, 9, 1, 9]),
    ],
)
def test_pooling(width, kind, taps, strides, pads):
    nodes = [h.make_node(kind, ["x"], ["y"], kernel_shape=taps, strides=strides, pads=pads)]
    compare(nodes, normal(3, 2, 3, 9, width), {})


def test_pooling_hands_on_what_is_no_number():
    x = normal(3, 1, 2, 8, 24)
    x[0, 0, 3, [4, 9, 23]] = np.nan
    x[0, 1, 2, 5] = np.inf
    x[0, 1, :, 10:14] = -np.inf
    nodes = [h.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
    graph = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, x.shape)],
        [h.make_tensor_value_info("y", T.FLOAT, None)],
    )
    data = h.make_model(
        graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    pairs = x.reshape(1, 2, 4, 2, 12, 2).transpose(0, 1, 2, 4, 3, 5).reshape(1, 2, 4, 12, 4)
    np.testing.assert_array_equal(
        edgewise.InferenceSession(data).run(None, {"x": x})[0], pairs.max(-1)
    )


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [[2.0, 2.0], [1.0, 3.0], [0.5, 1.5], [4.0, 0.5]])
@pytest.mark.parametrize("threads", [1, 2])
def test_resizing(mode, scales, threads):
    nodes = [h.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)]
    compare(nodes, normal(3, 2, 5, 30, 46), {"s": np.array([1, 1, *scales], np.float32)}, threads)


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 12, 13, 16, 17, 20, 23, 24, 28, 100])
@pytest.mark.parametrize("columns", [31, 32, 70])
def test_rows_of_products(rows, columns):
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["p"]),
        h.make_node("Add", ["p", "b"], ["s"]),
        h.make_node("Relu", ["s"], ["y"]),
    ]
    compare(
        nodes, normal(3, rows, 270), {"w": normal(1, 270, columns) / 5, "b": normal(2, columns)}
    )
