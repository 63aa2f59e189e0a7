"""Sequences, optionals and maps, against onnxruntime."""

import edgewise
import numpy as np
import onnxruntime
import pytest
from edgewise.errors import InputError, ModelError
from onnx import TensorProto as T
from onnx import helper as h

from .models import B, F, I, R, c, check, graph, model, n, same, seq, value


# ---- sequences, optionals, maps ----
def test_sequences_in_and_out(engine):
    data = model(
        [
            n("SequenceInsert", "s x at", "t"),
            n("SequenceErase", "t first", "u"),
            n("SequenceLength", "u", "k"),
            n("ConcatFromSequence", "u", "y", axis=0),
            n("SequenceAt", "u last", "z"),
        ],
        [value("s", seq()), value("x", F, None), value("at", I, [])],
        [value("t", seq()), value("u", seq()), value("k", I), value("y"), value("z")],
        [c("first", 0, np.int64), c("last", -1, np.int64)],
    )
    s = [R.standard_normal((k, 2)).astype("f4") for k in (1, 3, 2)]
    check(
        data,
        *[
            {"s": s, "x": np.ones((k, 2), "f4"), "at": np.array(at)}
            for k, at in ((1, 0), (4, -1), (2, 3))
        ],
        engine=engine,
    )
    session = edgewise.InferenceSession(data)
    assert (
        [i.type for i in session.get_inputs()]
        == [i.type for i in onnxruntime.InferenceSession(data).get_inputs()]
        == ["seq(tensor(float))", "tensor(float)", "tensor(int64)"]
    )
    for feeds, words in (
        ({"s": s, "x": s[0], "at": np.array(9)}, "the_t"),
        ({"s": s[0], "x": s[0], "at": np.array(0)}, "sequence"),
        ({"s": [s[0], "a"], "x": s[0], "at": np.array(0)}, r"s\[1\]"),
        ({"s": [s[0].astype("f8")], "x": s[0], "at": np.array(0)}, "float64"),
    ):
        with pytest.raises((InputError, ModelError), match=words):
            session.run(None, feeds)


@pytest.mark.parametrize("split, keep", [(None, 1), (None, 0), (2, 1), ([1, 4], 1), ([5, 0], 1)])
def test_split_to_sequence(split, keep):
    for fed in (False, True):
        if split is None and fed:
            continue
        inputs = [value("x", F, ["n", 5])] + ([value("k", I, list(np.shape(split)))] if fed else [])
        data = model(
            [n("SplitToSequence", "x" if split is None else "x k", "y", axis=1, keepdims=keep)],
            inputs,
            [value("y", seq())],
            [c("k", split, np.int64)] if split is not None and not fed else [],
        )
        check(
            data,
            {"x": R.standard_normal((2, 5)).astype("f4")} | ({"k": np.array(split)} if fed else {}),
        )


def test_sequence_map():
    body = graph(
        [n("Mul", "a b", "p"), n("Add", "p w", "q"), n("Shape", "q", "k")],
        [value("a", F, None), value("b", F, None)],
        [value("q", F, None), value("k", I, None)],
    )
    data = model(
        [n("SequenceMap", "s t", "y k", body=body)],
        [value("s", seq()), value("t", F, [2])],
        [value("y", seq()), value("k", seq(I))],
        [c("w", 0.5)],
    )
    for s in ([], [np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])]):
        session = edgewise.InferenceSession(data)
        y, k = session.run(None, {"s": s, "t": np.float32([2, 3])})
        same(y, [x * np.float32([2, 3]) + np.float32(0.5) for x in s])
        same(k, [np.array(x.shape) for x in s])


def test_optionals():
    kind = h.make_optional_type_proto(h.make_tensor_type_proto(F, [2]))
    has = graph([n("OptionalGetElement", "o", "a")], [], [value("a", F, [2])], name="then")
    none = graph([n("Identity", "w", "b")], [], [value("b", F, [2])], name="else")
    data = model(
        [
            n("OptionalHasElement", "o", "has"),
            n("If", "has", "y", then_branch=has, else_branch=none),
            n("Identity", "o", "same"),
        ],
        [value("o", kind)],
        [value("has", B), value("y"), value("same", kind)],
        [c("w", [7, 8], np.float32)],
        opset=18,
    )
    session = edgewise.InferenceSession(data)
    assert session.get_inputs()[0].type == "optional(tensor(float))"
    x = np.float32([1, 2])
    for o in (x, None, x):
        has, y, back = session.run(None, {"o": o})
        assert has == (o is not None)
        same(y, x if o is not None else np.float32([7, 8]))
        same(back, o)


def test_maps():
    kind = h.make_sequence_type_proto(
        h.make_map_type_proto(T.STRING, h.make_tensor_type_proto(F, []))
    )
    node = h.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    check(
        model([node], [value("x", F, ["n", 2])], [value("y", kind)], ml=1),
        {"x": np.float32([[0.25, 0.75], [1, 0]])},
    )
    pairs = h.make_map_type_proto(T.STRING, h.make_tensor_type_proto(F, []))
    check(
        model(
            [
                h.make_node(
                    "DictVectorizer",
                    ["x"],
                    ["y"],
                    domain="ai.onnx.ml",
                    string_vocabulary=["b", "z", "a"],
                )
            ],
            [value("x", pairs)],
            [value("y")],
            ml=1,
        ),
        {"x": {"a": 1.5, "b": 2.0}},
    )
    pairs = h.make_map_type_proto(T.INT64, h.make_tensor_type_proto(F, []))
    for attrs in ({}, {"map_form": "SPARSE", "max_map": 6}):
        check(
            model(
                [h.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml", **attrs)],
                [value("x", pairs)],
                [value("y")],
                ml=1,
            ),
            {"x": {5: 1.5, 1: 2.0}},
        )
