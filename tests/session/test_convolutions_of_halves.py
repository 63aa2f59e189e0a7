"""Convolutions with weights of float16: the numbers of onnxruntime, and the memory of halves."""

import edgewise
import edgewise.inspect
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

HALF = TensorProto.FLOAT16
# (operator, shape of the weights, of the input, attributes); weights of 32,768 numbers and more
# stay halves
CASES = {
    "winograd": ("Conv", (64, 64, 3, 3), (1, 64, 16, 17), {"pads": [1] * 4}),
    "few positions": ("Conv", (64, 64, 3, 3), (1, 64, 7, 8), {"pads": [1] * 4}),
    "pointwise": ("Conv", (192, 256, 1, 1), (2, 256, 9, 5), {}),
    "strides": ("Conv", (64, 64, 3, 3), (1, 64, 15, 15), {"strides": [2, 2]}),
    "patches": ("Conv", (48, 3, 16, 16), (1, 3, 64, 48), {"strides": [16, 16]}),
    "groups": ("Conv", (128, 64, 3, 3), (1, 256, 9, 9), {"group": 4, "pads": [1] * 4}),
    "line": ("Conv", (80, 64, 9), (1, 64, 300), {"pads": [4, 4]}),
    "upwards": ("ConvTranspose", (64, 40, 4, 4), (1, 64, 9, 8), {"strides": [2, 2]}),
    "transposed": ("ConvTranspose", (64, 64, 3, 3), (1, 64, 9, 8), {"pads": [1] * 4}),
    "transposed, pointwise": ("ConvTranspose", (256, 192, 1, 1), (1, 256, 9, 8), {}),
    "few weights": ("Conv", (16, 3, 3, 3), (1, 3, 20, 20), {}),
}


def model_of(nodes, shape, weights):
    """A model of float16 from "x" to "y"."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [value("x", HALF, shape)],
        [value("y", HALF, [None] * len(shape))],
        [numpy_helper.from_array(a, name) for name, a in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def random(seed, *shape, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float16)


def same_as_onnxruntime(model, x):
    """Both round to halves at the end; onnxruntime may do so before the bias, too."""
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    [expected] = reference.run(None, {"x": x})
    session = edgewise.InferenceSession(model)
    for _ in range(2):  # what a run computed for itself is not kept for the next one
        [y] = session.run(None, {"x": x})
        assert y.dtype == np.float16 and y.shape == expected.shape
        error = np.abs(y.astype("f4") - expected.astype("f4")).max()
        assert error <= 2e-3 * np.abs(expected.astype("f4")).max()


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_onnxruntime(name):
    op, weights, shape, attributes = CASES[name]
    channels = weights[1] if op == "ConvTranspose" else weights[0]
    w = random(1, *weights, scale=np.prod(weights[1:]) ** -0.5)
    node = helper.make_node(op, ["x", "w", "b"], ["y"], **attributes)
    model = model_of([node], shape, {"w": w, "b": random(2, channels)})
    same_as_onnxruntime(model, random(3, *shape))


def test_batch_normalization():
    """Its scale is folded into the weights."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "gain", "shift", "mean", "variance"], ["y"]),
    ]
    four = {n: random(i, 64) for i, n in enumerate(("gain", "shift", "mean", "variance"))}
    four["variance"] = np.abs(four["variance"]) + np.float16(0.5)
    model = model_of(nodes, (1, 64, 16, 16), {"w": random(9, 64, 64, 3, 3, scale=0.04), **four})
    same_as_onnxruntime(model, random(5, 1, 64, 16, 16))


@pytest.mark.parametrize("side", [16, 8])
def test_memory_is_that_of_halves(side):
    """Eight convolutions: their weights once, and room for those of one."""
    layers, shape = 8, (1, 64, side, side)
    names = ["x", *(f"h{i}" for i in range(1, layers)), "y"]
    nodes = [
        helper.make_node("Conv", [a, f"w{i}"], [b], pads=[1] * 4)
        for i, (a, b) in enumerate(zip(names, names[1:]))
    ]
    weights = {f"w{i}": random(i, 64, 64, 3, 3, scale=0.04) for i in range(layers)}
    model = model_of(nodes, shape, weights)
    same_as_onnxruntime(model, random(20, *shape))
    memory = edgewise.inspect.inspect(model).memory
    of_weights = sum(w.nbytes for w in weights.values())
    assert memory.weights + memory.computed == of_weights
    floats = 16 / 9 if side == 16 else 1  # those of one convolution, or of its transform
    planes = 5 * 4 * np.prod(shape) + (1 << 21)  # of pictures, and room of the kernel
    assert memory.arena <= 2 * of_weights / layers * floats + planes
