"""Accepted inputs: the same as in onnxruntime where that is unambiguous, in Python and in pages
(tests/conformance/feed_shapes.json).
"""

import json
from pathlib import Path

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.errors import InputError
from onnx import helper

VECTORS = json.loads((Path(__file__).parents[1] / "conformance" / "feed_shapes.json").read_text())[
    "cases"
]
F, I32, I64, BOOL, STRING = 1, 6, 7, 9, 8


def model(dtype, shape):
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    ).SerializeToString()


def beside(dtype, shape):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = model(dtype, shape)
    return onnxruntime.InferenceSession(
        data, options, ["CPUExecutionProvider"]
    ), edgewise.InferenceSession(data)


@pytest.mark.parametrize(
    "declared",
    [
        d
        for i, d in enumerate(c["declared"] for c in VECTORS)
        if d not in [v["declared"] for v in VECTORS[:i]]
    ],
    ids=str,
)
def test_shapes(declared):
    theirs, ours = beside(F, declared)
    for case in VECTORS:
        if case["declared"] != declared:
            continue
        x = np.arange(np.prod(case["fed"]), dtype=np.float32).reshape(case["fed"])
        if case.get("onnxruntime", case["taken"]):
            assert np.array_equal(theirs.run(None, {"x": x})[0], x)
        else:
            with pytest.raises(Exception, match="(?i)invalid"):
                theirs.run(None, {"x": x})
        if case["taken"]:
            got = ours.run(None, {"x": x})[0]
            assert got.shape == x.shape and np.array_equal(got, x)
        else:
            with pytest.raises(InputError, match="expected"):
                ours.run(None, {"x": x})


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "dtype, x",
    [
        (F, X),
        (F, X[:, ::2]),
        (F, X[::-1]),
        (F, X.T),
        (F, np.asfortranarray(X)),
        (F, np.broadcast_to(np.float32(2), (2, 3))),
        (F, np.frombuffer(b"x" + X.tobytes(), "u1")[1:].view("f4").reshape(3, 4)),
        (F, np.ma.array(X)),
        (F, np.matrix(X)),
        (F, [[1.0, 2.0]]),
        (F, [[1, 2]]),
        (F, [[True, 2]]),
        (I64, [[1, 2]]),
        (I64, [[1.0, 2.0]]),
        (I32, [[True, 3]]),
        (BOOL, [[0, 2, 1]]),
        (BOOL, [[0.5, 0.0]]),
        (STRING, [["a", "b"]]),
        (STRING, np.array([["a", "b"]], object)),
        (STRING, np.array([["a", "bc"]])),
    ],
    ids=lambda x: (
        str(x)[:20].replace("\n", "")
        if isinstance(x, (int, list))
        else f"{type(x).__name__}{x.dtype}{x.strides}"
    ),
)
def test_what_onnxruntime_takes(dtype, x):
    theirs, ours = beside(dtype, ["n", "m"])
    want, got = theirs.run(None, {"x": x})[0], ours.run(None, {"x": x})[0]
    assert want.dtype == got.dtype and want.shape == got.shape and want.tolist() == got.tolist()


@pytest.mark.parametrize(
    "dtype, x",
    [
        (F, X.astype("f8")),
        (F, X.astype("i8")),
        (F, X.astype("f2")),
        (I64, X.astype("i4")),
        (I32, X.astype("i8")),
        (BOOL, X.astype("u1")),
        (F, X > 3),
        (F, None),
        (F, "a"),
        (F, [[1.0], [2.0, 3.0]]),
        (I64, [[None, 1]]),
        (I32, [[1 << 40, 1]]),
        (2, [[300, 1]]),
        (2, [[-1, 1]]),
        (F, X.astype("c8")),
        (I64, np.array([["2020"]], "M8[D]")),
        (F, b"12345678"),
    ],
    ids=lambda x: str(x)[:20].replace("\n", "") if not isinstance(x, np.ndarray) else str(x.dtype),
)
def test_what_both_refuse(dtype, x):
    theirs, ours = beside(dtype, ["n", "m"])
    with pytest.raises(Exception):  # noqa: B017 (of several classes)
        theirs.run(None, {"x": x})
    with pytest.raises(InputError) as e:
        ours.run(None, {"x": x})
    assert e.value.where == "input 'x'" and e.value.remedy


def test_what_is_taken_though_onnxruntime_does_not_or_gets_wrong():
    """Numbers and scalars of NumPy, tuples and buffers; arrays of the other byte order, which
    onnxruntime reads as if they had its own.
    """
    import array

    for dtype, x, want in (
        (F, 2, 2.0),
        (F, 2.5, 2.5),
        (I64, 2.0, 2),
        (F, np.float32(2.5), 2.5),
        (I64, np.int64(-3), -3),
        (BOOL, True, True),
        (F, [2.5], [2.5]),
    ):
        assert edgewise.InferenceSession(model(dtype, [])).run(None, {"x": x})[0].tolist() == want
    ours = edgewise.InferenceSession(model(F, ["n"]))
    for x in (
        (1.0, 2.0),
        array.array("f", [1, 2]),
        memoryview(np.float32([1, 2])),
        np.array([1, 2], ">f4"),
        edgewise.Array.from_list([1.0, 2.0], "float32"),
    ):
        assert ours.run(None, {"x": x})[0].tolist() == [1, 2]
    assert edgewise.InferenceSession(model(I64, ["n"])).run(None, {"x": np.array([1, 2], ">i8")})[
        0
    ].tolist() == [1, 2]


@pytest.mark.parametrize(
    "dtype, shape, x",
    [
        (I64, ["n"], [1.5, 2.0]),
        (STRING, ["n"], np.array(["a", None], object)),
        (STRING, ["n"], np.array([1, 2], object)),
        (F, [], [1.0, 2.0]),
    ],
)
def test_what_is_ambiguous_is_refused(dtype, shape, x):
    theirs, ours = beside(dtype, shape)
    theirs.run(None, {"x": x})
    with pytest.raises(InputError) as e:
        ours.run(None, {"x": x})
    assert e.value.where == "input 'x'" and e.value.remedy
