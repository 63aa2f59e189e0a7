"""Shapes that depend on numbers which only a run can tell: the graph is run up to them, then bound
again.
"""

import edgewise
import numpy as np
import pytest
from edgewise.errors import EdgewiseError
from engines import open_engine
from onnx import TensorProto, helper, numpy_helper

INT, F = TensorProto.INT64, TensorProto.FLOAT


def session(nodes, inputs, outputs=("y",), constants=()):
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **(n[3] if len(n) > 3 else {})) for n in nodes],
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants],
    )
    return edgewise.InferenceSession(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString(),
        engine=open_engine("native"),
    )


def test_through_constant_nodes():
    """The numbers on the way are held by Constant nodes and by initializers."""
    one = {"value": numpy_helper.from_array(np.array([1], np.int64))}
    s = session(
        [
            ("Constant", [], ["one"], one),
            ("Add", ["n", "one"], ["m"]),
            ("Mul", ["m", "two"], ["k"]),
            ("Constant", [], ["rest"], {"value_ints": [-1]}),
            ("Concat", ["k", "rest"], ["shape"], {"axis": 0}),
            ("Reshape", ["x", "shape"], ["y"]),
        ],
        [("n", INT, [1]), ("x", F, [24])],
        constants=[("two", [2])],
    )
    for n in (0, 1, 2, 0):
        (y,) = s.run(None, {"n": np.array([n]), "x": np.arange(24, dtype=np.float32)})
        assert y.shape == (2 * (n + 1), 24 // (2 * (n + 1))) and np.array_equal(
            y.ravel(), np.arange(24)
        )
    with pytest.raises(EdgewiseError):
        s.run(None, {"n": np.array([4]), "x": np.arange(24, dtype=np.float32)})
    assert s.run(None, {"n": np.array([5]), "x": np.arange(24, dtype=np.float32)})[0].shape == (
        12,
        2,
    )


def test_one_after_the_other():
    """A shape from data, followed by another one."""
    s = session(
        [
            ("ReduceMax", ["a"], ["n"], {"keepdims": 1}),
            ("Range", ["zero", "n0", "one"], ["r"]),
            ("Squeeze", ["n"], ["n0"]),
            ("ReduceSum", ["r"], ["m"], {"keepdims": 1}),
            ("Expand", ["x", "m"], ["y"]),
        ],
        [("a", INT, [3]), ("x", F, [1])],
        constants=[("zero", np.int64(0)), ("one", np.int64(1))],
    )
    (y,) = s.run(None, {"a": np.array([1, 4, 2]), "x": np.float32([7])})
    assert y.tolist() == [7] * 6


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition):
    def branch(name, value):
        return helper.make_graph(
            [helper.make_node("Mul", ["x", name], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", F, [3])],
            [numpy_helper.from_array(np.float32([value]), name)],
        )

    s = session(
        [
            ("ReduceSum", ["x"], ["s"], {"keepdims": 0}),
            ("Greater", ["s", "zero"], ["c"]),
            (
                "If",
                ["c"],
                ["y"],
                {"then_branch": branch("twice", 2), "else_branch": branch("thrice", 3)},
            ),
        ],
        [("x", F, [3])],
        constants=[("zero", np.float32(0))],
    )
    x = np.float32([1, 2, 3]) * (1 if condition else -1)
    assert np.array_equal(s.run(None, {"x": x})[0], x * (2 if condition else 3))
