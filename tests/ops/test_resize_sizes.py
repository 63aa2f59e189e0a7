"""Resize and Upsample by scales: output sizes are those of onnxruntime, which computes in float32;
what is too large is refused at once.
"""

import tracemalloc

import numpy as np
import onnxruntime
import pytest
from edgewise import InferenceSession
from edgewise.errors import OutOfMemory
from onnx import TensorProto, helper, numpy_helper


def model(op, opset, shape, scales):
    """A model of one node with constant scales."""
    node = helper.make_node(op, ["x", "", "s"] if op == "Resize" else ["x", "s"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(scales, np.float32), "s")],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
    ).SerializeToString()


@pytest.mark.parametrize("op, opset", [("Resize", 13), ("Resize", 19), ("Upsample", 9)])
def test_sizes_are_those_of_onnxruntime(op, opset):
    """Scales of one and two decimals and quotients, at which float32 and float64 differ often."""
    random = np.random.default_rng(1)
    pairs = [(10, 0.7), (100, 0.9), (40, 0.35), (54, 1.4444444)]
    pairs += [(int(n), k / 10) for n, k in random.integers(1, (200, 40), (40, 2))]
    pairs += [(int(n), a / b) for n, a, b in random.integers(1, (200, 60, 60), (40, 3))]
    differ = 0
    for size, scale in pairs:
        if op == "Upsample" and scale < 1:
            continue
        data = model(op, opset, [1, 1, size, 3], [1, 1, scale, 1])
        x = {"x": random.standard_normal((1, 1, size, 3), np.float32)}
        wanted = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        (y,), (found,) = wanted.run(None, x), InferenceSession(data).run(None, x)
        assert found.shape == y.shape, (size, scale)
        differ += y.shape[2] != int(size * float(np.float32(scale)))
    assert differ


def test_too_large_outputs_are_refused_at_once():
    """Before tables of their indices are computed, which would have hundreds of megabytes."""
    data = model("Resize", 13, [1, 1, 4, 4], [1, 1, 1e7, 1e7])
    tracemalloc.start()
    try:
        with pytest.raises(OutOfMemory, match=r"\[1, 1, 40000000, 40000000\] has 64\d{14} bytes"):
            InferenceSession(data).run(None, {"x": np.zeros((1, 1, 4, 4), "f4")})
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
