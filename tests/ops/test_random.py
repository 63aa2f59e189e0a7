"""Random numbers: what they are distributed like, that a seed makes them the same, and that without
one each run has others.
"""

import math

import edgewise
import numpy as np
import onnx
import pytest
from onnx import helper

N = 40_000


def session(op, inputs=(), opset=21, **attrs):
    fed = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, x in enumerate(inputs)
    ]
    node = helper.make_node(op, [f"x{i}" for i in range(len(inputs))], ["y"], **attrs)
    other = helper.make_node(op, [f"x{i}" for i in range(len(inputs))], ["z"], **attrs)
    graph = helper.make_graph(
        [node, other],
        "g",
        fed,
        [helper.make_empty_tensor_value_info("y"), helper.make_empty_tensor_value_info("z")],
    )
    s = edgewise.InferenceSession(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
        ).SerializeToString()
    )
    return lambda: s.run(None, {f"x{i}": x for i, x in enumerate(inputs)})


OPS = {
    "RandomUniform": ((), {"shape": [200, 200], "low": -1.0, "high": 3.0}, 1.0, 4 / math.sqrt(12)),
    "RandomNormal": ((), {"shape": [200, 200], "mean": 2.0, "scale": 0.5}, 2.0, 0.5),
    "RandomUniformLike": ((np.zeros((200, 200), np.float32),), {}, 0.5, 1 / math.sqrt(12)),
    "RandomNormalLike": ((np.zeros((200, 200), np.float32),), {}, 0.0, 1.0),
    "Bernoulli": ((np.full((200, 200), 0.3, np.float32),), {}, 0.3, math.sqrt(0.21)),
}


@pytest.mark.parametrize("op", OPS)
def test_distribution(op):
    inputs, attrs, mean, deviation = OPS[op]
    run = session(op, inputs, **attrs)
    (a, other), (b, _) = run(), run()
    assert (
        abs(a.mean() - mean) < 5 * deviation / math.sqrt(N) and abs(a.std() / deviation - 1) < 0.03
    )
    assert not np.array_equal(a, b) and not np.array_equal(a, other)
    for x, y in ((a, b), (a, other), (a[:, :-1], a[:, 1:]), (a[:-1], a[1:])):
        assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 0.03
    if "Uniform" in op:
        low, high = attrs.get("low", 0), attrs.get("high", 1)
        assert low <= a.min() and a.max() < high
        counts, _ = np.histogram(a, 20, (low, high))
        assert ((counts - N / 20) ** 2 / (N / 20)).sum() < 50
    if "Normal" in op:
        z = (a - mean) / deviation
        for at, share in ((-2, 0.02275), (-1, 0.15866), (0, 0.5), (1.5, 0.93319)):
            assert abs((z < at).mean() - share) < 0.01


@pytest.mark.parametrize("op", OPS)
def test_seed(op):
    inputs, attrs, _, _ = OPS[op]
    a, b = session(op, inputs, seed=1.0, **attrs), session(op, inputs, seed=1.5, **attrs)
    assert np.array_equal(a()[0], a()[0]) and not np.array_equal(a()[0], b()[0])


def test_multinomial():
    share = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], np.float32)
    with np.errstate(divide="ignore"):
        run = session("Multinomial", (np.log(share) + 3,), sample_size=N)
    a, b = run()
    assert a.dtype == np.int32 and a.shape == (2, N) and not np.array_equal(a, b)
    for row, wanted in zip(a, share):
        assert np.allclose(np.bincount(row, minlength=3) / N, wanted, atol=0.01)


@pytest.mark.parametrize("said", [True, False, None])
def test_dropout(said):
    """Dropout is active in a session only if the node has training_mode = true."""
    x = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    constants = [onnx.numpy_helper.from_array(np.array(0.25, np.float32), "ratio")] + (
        [] if said is None else [onnx.numpy_helper.from_array(np.array(said), "training")]
    )
    node = helper.make_node(
        "Dropout", ["x", "ratio"] + ([] if said is None else ["training"]), ["y", "mask"]
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_empty_tensor_value_info("y"), helper.make_empty_tensor_value_info("mask")],
        constants,
    )
    s = edgewise.InferenceSession(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
        ).SerializeToString()
    )
    y, mask = s.run(None, {"x": x})
    if not said:
        assert np.array_equal(x, y) and mask.all()
        return
    assert abs(mask.mean() - 0.75) < 0.02 and np.allclose(
        y, np.where(mask, x / np.float32(0.75), 0)
    )
    assert not np.array_equal(mask, s.run(None, {"x": x})[1])
