"""Casts to half precision and back round, wherever that can be seen; against ONNX's reference."""

import warnings

import edgewise
import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HALF = {"float16": T.FLOAT16, "bfloat16": T.BFLOAT16}
SMALL = [T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.FLOAT4E2M1]
X = np.array([0.6, 1 / 3, 1e-3, 7e4, -1e9, 2049, 257, 448.7, 5.3, 0, -0.1], np.float32)


def to(dtype):
    return ("Cast", {"to": dtype})


def chain(steps, x=X, constant=False, y=T.FLOAT, **constants):
    """A model of nodes one after the other: [(op, attributes, names of further inputs)]."""
    nodes, name = [], "x"
    for i, (op, attributes, *more) in enumerate(steps):
        out = "y" if i == len(steps) - 1 else f"h{i}"
        nodes.append(helper.make_node(op, [name, *more], [out], **attributes))
        name = out
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    fed = [] if constant else [helper.make_tensor_value_info("x", element, x.shape)]
    stored = {**constants, **({"x": x} if constant else {})}
    graph = helper.make_graph(
        nodes,
        "g",
        fed,
        [helper.make_tensor_value_info("y", y, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, {} if constant else {"x": x}


def reference(model, feeds):
    """ONNX's outputs; onnxruntime's where it fails. (onnxruntime drops casts of operators that it
    has no kernel of half precision for.)
    """
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ReferenceEvaluator(model).run(None, feeds)[0]
    except Exception:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return session.run(None, feeds)[0]


def check(model, feeds):
    want = reference(model, feeds)
    [got] = edgewise.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("constant", [False, True], ids=["fed", "constant"])
@pytest.mark.parametrize("dtype", [*HALF.values(), *SMALL], ids=T.DataType.Name)
def test_there_and_back(dtype, constant):
    for x in (X, X.astype(np.float64), np.array([2049, -257, 70000, 5], np.int64)):
        check(*chain([to(dtype), to(T.FLOAT)], x, constant))


@pytest.mark.parametrize("half", HALF)
def test_what_lies_between(half):
    """Operators that move and choose elements; casts to other types; a second half type."""
    dtype = HALF[half]
    steps = [to(dtype), ("Reshape", {}, "dims"), ("Transpose", {"perm": [1, 0]}), to(T.FLOAT)]
    check(*chain(steps, X[:10], dims=np.array([2, 5])))
    check(*chain([to(dtype), ("Neg", {}), ("Relu", {}), ("Neg", {}), to(T.FLOAT)]))
    check(*chain([to(dtype), to(T.DOUBLE)], y=T.DOUBLE))
    check(*chain([to(dtype), to(T.INT64)], np.float32([2049, 257, 0.9999, -3.5]), y=T.INT64))
    for second in HALF.values():
        check(*chain([to(dtype), to(second), to(T.FLOAT)]))


def test_a_comparison():
    """4097 is 4096 in float16."""
    x = np.float32([4097, 4096, 4098])
    steps = [to(T.FLOAT16), ("Equal", {}, "c")]
    check(*chain(steps, x, y=T.BOOL, c=np.float16(4096)))
    check(*chain([to(T.FLOAT16), ("ArgMax", {"axis": 0, "select_last_index": 1})], x, y=T.INT64))
    check(*chain([to(T.FLOAT16), ("Floor", {}), to(T.FLOAT)], np.float32([0.99999, 1.0])))


def test_cast_like():
    """Of an initializer, and of what arithmetic on it gives."""
    check(*chain([("CastLike", {}, "h"), to(T.FLOAT)], h=np.float16(1)))
    nodes = [
        helper.make_node("Mul", ["h", "h"], ["p"]),
        helper.make_node("CastLike", ["x", "p"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=T.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", T.FLOAT, X.shape),
            helper.make_tensor_value_info("h", T.FLOAT16, [1]),
        ],
        [helper.make_tensor_value_info("y", T.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    check(model, {"x": X, "h": np.ones(1, np.float16)})


def test_in_a_branch_and_a_function():
    """A value that a subgraph reads, and casts in the body of a function."""
    cast = helper.make_node("Cast", ["x"], ["h"], to=T.BFLOAT16)
    back = helper.make_node("Cast", ["h"], ["y"], to=T.FLOAT)
    body = helper.make_function(
        "own", "f", ["x"], ["y"], [cast, back], [helper.make_opsetid("", 21)]
    )
    out = [helper.make_tensor_value_info("z", T.FLOAT, None)]
    branch = helper.make_graph([helper.make_node("Cast", ["h"], ["z"], to=T.FLOAT)], "b", [], out)
    nodes = [
        cast,
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        helper.make_node("f", ["x"], ["w"], domain="own"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", T.FLOAT, X.shape),
            helper.make_tensor_value_info("c", T.BOOL, []),
        ],
        [helper.make_tensor_value_info(n, T.FLOAT, None) for n in ("y", "w")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[body], opset_imports=opsets, ir_version=10)
    want = torch.tensor(X).bfloat16().float().numpy()
    feeds = {"x": X, "c": np.array(True)}
    for got in edgewise.InferenceSession(model.SerializeToString()).run(None, feeds):
        np.testing.assert_array_equal(got, want)


def test_a_length():
    """A dimension in half precision: 2,049 of float16, 257 of bfloat16 are rounded."""
    for dtype in HALF.values():
        nodes = [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Cast", ["s"], ["h"], to=dtype),
            helper.make_node("Cast", ["h"], ["y"], to=T.FLOAT),
        ]
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", T.FLOAT, ["n"])],
            [helper.make_tensor_value_info("y", T.FLOAT, None)],
        )
        opsets = [helper.make_opsetid("", 21)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        session = edgewise.InferenceSession(model.SerializeToString())
        for n in (100, 200, 256, 257, 300, 2048, 2049, 3001):
            feeds = {"x": np.zeros(n, np.float32)}
            np.testing.assert_array_equal(session.run(None, feeds)[0], reference(model, feeds))


@pytest.mark.parametrize("half", HALF)
def test_a_gradient(half):
    """Straight through the rounding, in half precision, as in PyTorch."""
    w = np.linspace(0.1, 3, len(X)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=HALF[half]),
        helper.make_node("Cast", ["h"], ["f"], to=T.FLOAT),
        helper.make_node("Mul", ["f", "w"], ["y"]),
        helper.make_node(
            "Gradient", ["x"], ["dx"], domain="ai.onnx.preview.training", xs=["x"], y="y"
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, X.shape)],
        [helper.make_tensor_value_info(n, T.FLOAT, X.shape) for n in ("y", "dx")],
        [numpy_helper.from_array(w, "w")],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.preview.training", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    y, dx = edgewise.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    x = torch.tensor(X, requires_grad=True)
    want = x.to(getattr(torch, half)).float() * torch.tensor(w)
    want.sum().backward()
    np.testing.assert_array_equal(y, want.detach().numpy())
    np.testing.assert_array_equal(dx, x.grad.numpy())
