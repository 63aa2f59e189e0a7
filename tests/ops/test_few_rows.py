"""Products of floats with up to 16 rows: each row has the bits that it has alone. Tokens that are
read ahead are checked together, and are those of runs of one.
"""

import edgewise
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper


def session(k: int, n: int, transposed: bool, half: bool) -> edgewise.InferenceSession:
    """x @ w, where w is stored by rows or by columns, in float32 or float16."""
    w = np.random.default_rng(k).standard_normal((n, k) if transposed else (k, n))
    nodes, name = [], "w"
    if half:
        nodes.append(helper.make_node("Cast", [name], ["wide"], to=TensorProto.FLOAT))
        name = "wide"
    if transposed:
        nodes.append(helper.make_node("Transpose", [name], ["turned"], perm=[1, 0]))
        name = "turned"
    nodes.append(helper.make_node("MatMul", ["x", name], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", n])],
        [numpy_helper.from_array(w.astype(np.float16 if half else np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return edgewise.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("k", "n"), [(256, 64), (1536, 96), (260, 1536), (576, 4100)])
def test_rows_have_the_bits_of_one(k, n, transposed, half):
    s = session(k, n, transposed, half)
    x = np.random.default_rng(3).standard_normal((16, k)).astype(np.float32)
    alone = np.concatenate([s.run(None, {"x": x[i : i + 1]})[0] for i in range(16)])
    for first, end in [(0, 2), (1, 4), (0, 7), (3, 16), (0, 16)]:
        [got] = s.run(None, {"x": x[first:end]})
        np.testing.assert_array_equal(got, alone[first:end])
