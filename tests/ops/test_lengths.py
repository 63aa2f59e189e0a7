"""Plans for a range of lengths of sound: windows, pads, resizing, transforms and recurrences give
the results of onnxruntime at every length.
"""

import numpy as np
import onnxruntime
import pytest
from edgewise import InferenceSession
from session.models import F, constant, model, node, value

RANDOM = np.random.default_rng(2)


def weight(name, *shape):
    return constant(name, (RANDOM.standard_normal(shape) / 3).astype("f4"))


def ints(name, *numbers):
    return constant(name, np.array(numbers))


WINDOWS = (
    [
        node("Conv", "x w1", "a", strides=[5]),
        node("Relu", "a", "b"),
        node("Conv", "b w2 b2", "c", strides=[2]),
        node("Conv", "c w3", "d", auto_pad="SAME_UPPER", group=8),
        node("ConvTranspose", "d w4", "e", strides=[3], pads=[1, 1]),
        node("MaxPool", "e", "f", kernel_shape=[3], strides=[2], ceil_mode=1),
        node("AveragePool", "f", "y", kernel_shape=[2], strides=[1], pads=[0, 1]),
    ],
    [weight("w1", 8, 1, 10), weight("w2", 8, 8, 3), weight("b2", 8), weight("w3", 8, 1, 4)]
    + [weight("w4", 8, 6, 4)],
)
SIZES = (
    [
        node("Pad", "x pads", "a", mode="reflect"),
        node("Pad", "a pads", "b", mode="edge"),
        node(
            "Resize", "b none up", "c", mode="nearest", coordinate_transformation_mode="asymmetric"
        ),
        node("Resize", "c none up", "d", mode="linear"),
        node("Resize", "d none down", "e", mode="linear"),
        node("Slice", "e one end two three", "f"),
        node("CumSum", "f two", "g"),
        node("InstanceNormalization", "g scale bias", "y"),
    ],
    [ints("pads", 0, 0, 3, 0, 0, 2), constant("none", np.zeros(0, "f4"))]
    + [constant("up", np.array([1, 1, 4], "f4")), constant("down", np.array([1, 1, 0.5], "f4"))]
    + [ints("one", 1), ints("end", 1 << 40), ints("two", 2), ints("three", 3)]
    + [weight("scale", 1), weight("bias", 1)],
)
FRAMES = (
    [
        node("Squeeze", "x zero", "signal"),
        node("STFT", "signal step window size", "a"),
        node("Reshape", "a rows", "b"),
        node("Transpose", "b", "t", perm=[1, 0, 2]),
        node("LSTM", "t w r", "h last", hidden_size=4),
        node("Squeeze", "h one", "s"),
        node("Transpose", "s", "q", perm=[1, 0, 2]),
        node("Transpose", "q", "k", perm=[0, 2, 1]),
        node("MatMul", "q k", "scores"),
        node("Softmax", "scores", "shares", axis=-1),
        node("MatMul", "shares q", "y"),
    ],
    [ints("zero", 1), constant("step", np.array(5)), weight("window", 12)]
    + [constant("size", np.array(12)), ints("rows", 1, -1, 14), ints("one", 1)]
    + [weight("w", 1, 16, 14), weight("r", 1, 16, 4)],
)

ENDS = (  # a slice to an index that is negative at all lengths: it counts from the end
    [
        node("Shape", "x", "shape"),
        node("Gather", "shape two", "length"),
        node("Sub", "one length", "end"),
        node("Slice", "x zero end two", "a"),
        node("Slice", "x end far two", "b"),
        node("Concat", "b a", "c", axis=2),
        node("Relu", "c", "y"),
    ],
    [ints("zero", 0), ints("one", 1), ints("two", 2), ints("far", 1 << 40)],
)


@pytest.mark.parametrize(
    "nodes", [WINDOWS, SIZES, FRAMES, ENDS], ids=["windows", "sizes", "frames", "ends"]
)
def test_sound_of_all_lengths_has_one_plan(nodes):
    inputs, outputs = [value("x", F, [1, 1, "n"])], [value("y", F, None)]
    data = model(nodes[0], inputs, outputs, nodes[1])
    session = InferenceSession(data)
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for n in (100, 101, 256, 103, 200, 111, 77, 64, 255):
        feeds = {"x": RANDOM.standard_normal((1, 1, n)).astype("f4")}
        (found,), (expected,) = session.run(None, feeds), reference.run(None, feeds)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=2e-5)
    assert len(session.plans) == 2
    session.free()
