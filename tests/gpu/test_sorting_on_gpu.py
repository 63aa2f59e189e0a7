"""TopK on a GPU: mixtures of experts sort the tokens of a run by their experts with it. Against
NumPy's stable sort.
"""

import edgewise
import numpy as np
import pytest
from onnx import helper

from .adapters import gpu

TYPES = (np.float32, np.int64, np.int32, np.uint8, np.int8)


@pytest.mark.parametrize("n, k", [(7, 3), (50, 50), (400, 300)])
def test_top_k(n, k):
    """Of each type, upwards and downwards, with equal numbers; NaN is above all others."""
    engine, random = gpu(), np.random.default_rng(n)
    names = [(dtype, largest) for dtype in TYPES for largest in (0, 1)]
    nodes, inputs, outputs, feeds, expected = [], [], [], {}, []
    for i, (dtype, largest) in enumerate(names):
        x = random.integers(0, 100, (2, n, 3)).astype(dtype)
        if dtype is np.float32:
            x[0, 5], x[1, 2, 1], x[1, 4, 1] = np.nan, np.inf, -np.inf
        if dtype in (np.int64, np.int32, np.int8):
            x -= 50
        feeds[f"x{i}"] = x << 33 if dtype is np.int64 else x
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs.append(helper.make_tensor_value_info(f"x{i}", kind, x.shape))
        outputs.append(helper.make_tensor_value_info(f"y{i}", kind, None))
        outputs.append(helper.make_tensor_value_info(f"at{i}", 7, None))
        nodes.append(
            helper.make_node("TopK", [f"x{i}", "k"], [f"y{i}", f"at{i}"], axis=1, largest=largest)
        )
        wide = feeds[f"x{i}"].astype(np.float64 if dtype is np.float32 else np.int64)
        key = -np.where(np.isnan(wide), 1e300, wide) if largest else wide
        at = np.argsort(key, axis=1, kind="stable")[:, :k]
        expected += [np.take_along_axis(feeds[f"x{i}"], at, 1), at]
    count = helper.make_tensor("k", 7, [1], [k])
    model = helper.make_model(
        helper.make_graph(nodes, "sorting", inputs, outputs, [count]),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    session = edgewise.InferenceSession(model.SerializeToString(), engine=engine)
    got = session.run(None, feeds)
    here = [plan["onCpu"] for plan in engine.info["plans"]]
    session.free()
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert here == [{}]
