"""Operators of strings, against onnxruntime and Python's own functions."""

import edgewise
import numpy as np
import pytest
from edgewise.errors import InputError, ModelError
from onnx import helper as h

from .models import B, F, I, S, c, check, model, n, value


# ---- strings ----
def words(*text):
    return np.array(text, dtype=object)


STRINGS = [
    ("Reshape", "x two", {}),
    ("Gather", "x i", {}),
    ("Concat", "x x", {"axis": 0}),
    ("Slice", "x b e", {}),
    ("Identity", "x", {}),
    ("Squeeze", "x", {}),
    ("Equal", "x y", {}),
    (
        "StringNormalizer",
        "x",
        {"locale": "C", "case_change_action": "UPPER", "stopwords": ["the", "A"]},
    ),
    (
        "StringNormalizer",
        "x",
        {
            "locale": "C",
            "is_case_sensitive": 1,
            "stopwords": ["the", "of"],
            "case_change_action": "LOWER",
        },
    ),
    ("Expand", "x three", {}),
    ("Tile", "x i", {}),
    ("Where", "mask x y", {}),
    ("Size", "x", {}),
    ("Shape", "x", {}),
]


@pytest.mark.parametrize(
    "op, inputs, attrs", STRINGS, ids=lambda x: x if isinstance(x, str) and x.isalpha() else ""
)
def test_strings(op, inputs, attrs):
    x, y = words("the", "Sea", "of", "A"), words("the", "sea", "of", "bc")
    constants = [
        c("two", [2, 2], np.int64),
        c("i", [3], np.int64),
        c("b", [1], np.int64),
        c("e", [3], np.int64),
        c("three", [3, 4], np.int64),
        c("mask", [True, False, False, True]),
    ]
    used = [k for k in constants if k.name in inputs.split()]
    feeds = {k: v for k, v in (("x", x), ("y", y)) if k in inputs.split()}
    kind = B if op == "Equal" else I if op in ("Size", "Shape") else S
    data = model(
        [n(op, inputs, "z", **attrs)],
        [value(k, S, [4]) for k in feeds],
        [value("z", kind)],
        used,
        opset=19,
    )
    check(data, feeds)
    assert edgewise.InferenceSession(data).get_inputs()[0].type == "tensor(string)"


def test_string_constants_and_lists():
    data = model(
        [n("Constant", "", "k", value_strings=["a", "b"]), n("Concat", "k w x", "z", axis=0)],
        [value("x", S, [1])],
        [value("z", S)],
        [h.make_tensor("w", S, [2], ["c", "dé"])],
    )
    (got,) = edgewise.InferenceSession(data).run(None, {"x": ["é"]})
    assert got.tolist() == ["a", "b", "c", "dé", "é"]
    for bad in ([1], np.array([1.0]), ["a", ["b"]], [None]):
        with pytest.raises(InputError):
            edgewise.InferenceSession(data).run(None, {"x": bad})


def test_unique_strings():
    data = model(
        [n("Unique", "x", "y first inverse counts")],
        [value("x", S, ["n"])],
        [value("y", S), value("first", I), value("inverse", I), value("counts", I)],
    )
    check(data, {"x": words("b", "a", "b", "c", "a")})


@pytest.mark.parametrize(
    "pattern, texts",
    [
        (r"(\w+)@(\w+\.)+com", ["a@b.com", "a@b.c.com", "@.com", ""]),
        (r"a*b+c?", ["b", "aabbc", "ac", "abcc"]),
        (r"(?i)[^x-z]{2,3}", ["ab", "aX", "ABC", "abcd"]),
        (r"(a|ab)(c|bcd)(d*)", ["abcd", "ac", "abd"]),
        (r"\d{3}-\d{4}|none", ["555-1234", "none", "5-1"]),
        ("(a*)*b", ["a" * 40, "aab"]),
    ],
)
def test_regular_expressions(pattern, texts):
    """Also one that takes exponential time where alternatives are tried one by one."""
    data = model(
        [n("RegexFullMatch", "x", "y", pattern=pattern)],
        [value("x", S, ["n"])],
        [value("y", B)],
        opset=20,
    )
    check(data, {"x": words(*texts)})


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(?=a)b", "(", "((a{1000}){1000}){1000}", "(){4000000000}"]
)
def test_regular_expressions_refused(pattern):
    with pytest.raises(ModelError, match="the_y"):
        edgewise.InferenceSession(
            model(
                [n("RegexFullMatch", "x", "y", pattern=pattern)],
                [value("x", S, ["n"])],
                [value("y", B)],
                opset=20,
            )
        ).run(None, {"x": ["a"]})


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips, low, high", [(0, 1, 1), (0, 2, 2), (3, 1, 2), (1, 2, 3)])
def test_tf_idf(mode, skips, low, high):
    attrs = {
        "mode": mode,
        "max_skip_count": skips,
        "min_gram_length": low,
        "max_gram_length": high,
        "ngram_counts": [0, 4, 10],
        "ngram_indexes": [0, 1, 2, 3, 6, 5, 4, 7],
        "weights": [1.0, 2.0, 3.0, 4.0, 0.5, 0.25, 0.125, 8.0],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 5, 6, 7],
    }
    data = model([n("TfIdfVectorizer", "x", "y", **attrs)], [value("x", I, None)], [value("y")])
    check(
        data,
        {"x": np.array([1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8])},
        {"x": np.array([[1, 2, 5, 6, 7, 8], [8, 6, 7, 6, 7, 2]])},
    )


@pytest.mark.parametrize(
    "keys, values, x",
    [
        ("keys_strings", "values_int64s", words("a", "b", "z")),
        ("keys_int64s", "values_strings", np.array([1, 2, 9])),
        ("keys_floats", "values_floats", np.float32([1, np.nan, 3])),
        ("keys_int64s", "values_floats", np.array([2, 2, 0])),
        ("keys_strings", "values_floats", words("b", "", "a")),
    ],
)
def test_label_encoder(keys, values, x):
    of = {"strings": ["a", "b"], "int64s": [1, 2], "floats": [1.0, float("nan")]}
    kinds = {"strings": S, "int64s": I, "floats": F}
    node = h.make_node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        **{
            keys: of[keys.split("_")[1]],
            values: {"strings": ["u", "v"], "int64s": [7, 8], "floats": [0.5, 2.5]}[
                values.split("_")[1]
            ],
        },
    )
    check(
        model(
            [node],
            [value("x", kinds[keys.split("_")[1]], None)],
            [value("y", kinds[values.split("_")[1]])],
            ml=4,
        ),
        {"x": x},
    )


def test_category_mapper():
    for kinds, x in (((S, I), words("a", "c", "b")), ((I, S), np.array([5, 7, 1]))):
        node = h.make_node(
            "CategoryMapper",
            ["x"],
            ["y"],
            domain="ai.onnx.ml",
            cats_strings=["a", "b"],
            cats_int64s=[5, 7],
        )
        check(model([node], [value("x", kinds[0], [3])], [value("y", kinds[1])], ml=1), {"x": x})
