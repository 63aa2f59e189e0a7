"""Operators of ai.onnx.ml on numbers: scaling and encoding of features, linear models, support
vectors. Compositions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import DOUBLE, FLOAT, FLOATS, INT32, INT64
from ...declare.op import Op, fail, product, unsupported
from ...declare.symbolic import NeedsHost
from ...declare.values import RunTensor, StringTensor

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Graph, Host, Value

ML = "ai.onnx.ml"
NUMBER = 40  # bytes of a number in a list
NUMBERS = (FLOAT, DOUBLE, INT32, INT64)


def _floats(graph: Graph, values, shape=None, dtype: int = FLOAT):
    return graph.constant(
        dtype, [len(values)] if shape is None else shape, [float(v) for v in values]
    )


def _listed(node: BoundNode, name, *kinds):
    """An attribute that is a list of numbers, [] where there is none."""
    values = node.attrs.get(name) or []
    if type(values) is not list or any(type(v) not in (kinds or (int, float)) for v in values):
        fail(node, f"its attribute '{name}' is no list of numbers")
    return values


def _matrix(node: BoundNode, graph: Graph, i=0, dtype: int = FLOAT):
    """Input i as [rows, features] of a float type; one row where it has one dimension."""
    x = node.inputs[i]
    if x.dtype not in NUMBERS or x.rank not in (1, 2):
        fail(node, f"it wants a matrix of numbers, not {x}")
    x = graph.op("Cast", x, to=dtype)
    return x if x.rank == 2 else graph.op("Unsqueeze", x, graph.ints([0]))


def transformed(node: BoundNode, graph: Graph, scores):
    """Scores [rows, classes] as post_transform says."""
    kind = node.attr("post_transform", "NONE")
    if kind in ("", "NONE"):
        return scores
    if kind == "LOGISTIC":
        return graph.op("Sigmoid", scores)
    if kind == "SOFTMAX":
        return graph.op("Softmax", scores, axis=1)
    if kind == "PROBIT":
        return _probit(graph, scores)
    if kind != "SOFTMAX_ZERO":
        unsupported(node, f"post_transform '{kind}'")
    axis = graph.ints([1])
    most = graph.op("ReduceMax", scores, axis)
    near_zero = graph.op("LessOrEqual", graph.op("Abs", scores), _floats(graph, [1e-7], []))
    shares = graph.op(
        "Where",
        near_zero,
        graph.op("Mul", scores, graph.op("Exp", graph.op("Neg", most))),
        graph.op("Exp", graph.op("Sub", scores, most)),
    )
    total = graph.op("ReduceSum", shares, axis)
    nothing = graph.op("Equal", total, _floats(graph, [0], []))
    return graph.op(
        "Where",
        nothing,
        _floats(graph, [0.5], []),
        graph.op("Div", shares, graph.op("Where", nothing, _floats(graph, [1], []), total)),
    )


def _probit(graph: Graph, p):
    """sqrt(2) erfinv(2 p - 1), by the formula of Winitzki 2008 that onnxruntime has."""
    x = graph.op("Sub", graph.op("Mul", p, _floats(graph, [2], [])), _floats(graph, [1], []))
    log = graph.op("Log", graph.op("Sub", _floats(graph, [1], []), graph.op("Mul", x, x)))
    a = graph.op(
        "Add",
        _floats(graph, [2 / (math.pi * 0.147)], []),
        graph.op("Mul", log, _floats(graph, [0.5], [])),
    )
    root = graph.op(
        "Sqrt",
        graph.op(
            "Sub", graph.op("Mul", a, a), graph.op("Mul", log, _floats(graph, [1 / 0.147], []))
        ),
    )
    return graph.op(
        "Mul",
        graph.op("Mul", graph.op("Sign", x), graph.op("Sqrt", graph.op("Sub", root, a))),
        _floats(graph, [1.41421356], []),
    )


def class_labels(n, graph: Graph, index, labels):
    """Labels, int64, of classes [rows]; the index itself where the node names none.

    Raises NeedsHost where they are strings (labelled_by_strings).
    """
    if n.attrs.get("classlabels_strings"):
        if not n.wants(0):
            return None
        raise NeedsHost
    return (
        graph.op("Gather", graph.constant(INT64, [len(labels)], labels), index) if labels else index
    )


def labelled_by_strings(op, integers):
    """Lets a classifier have classlabels_strings: the host puts them in the place of integer
    labels, which the attribute `integers` gives.
    """

    @op.host
    def op_host(node: BoundNode, run: Host, inputs: list[Any]) -> list[Any] | None:
        names = node.attrs.get("classlabels_strings")
        if not names or not node.wants(0):
            return None
        if type(names) is not list or not all(isinstance(s, str) for s in names):
            fail(node, "its classlabels_strings are no list of strings", "Export the model again.")
        attrs = {k: v for k, v in node.attrs.items() if k != "classlabels_strings"}
        index, *scores = run.plain(
            node.op,
            node.domain,
            inputs,
            [o is not None for o in node.outputs],
            {**attrs, integers: list(range(len(names)))},
            node.opset,
        )
        return [
            StringTensor(
                index.shape, [names[i] if len(names) > 1 else str(i) for i in index.numbers]
            ),
            *scores,
        ]


array_feature_extractor = Op("ArrayFeatureExtractor", ML)


@array_feature_extractor.decompose
def array_feature_extractor_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x, index = node.inputs[:2]
    if not x.rank:
        fail(node, "it wants at least one dimension")
    y = graph.op(
        "Gather", x, graph.op("Reshape", index, graph.ints([product(index.shape)])), axis=-1
    )
    return [y if x.rank > 1 else graph.op("Unsqueeze", y, graph.ints([0]))]


binarizer = Op("Binarizer", ML)


@binarizer.decompose
def binarizer_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x = node.inputs[0]
    threshold = node.attr("threshold", 0.0)
    if x.dtype not in NUMBERS:
        fail(node, f"it wants numbers, not {x}")
    return [
        graph.op(
            "Cast",
            (
                graph.op("Greater", x, _floats(graph, [threshold], [], x.dtype))
                if x.dtype in FLOATS
                else graph.op(
                    "Greater",
                    graph.op("Cast", x, to=DOUBLE),
                    _floats(graph, [threshold], [], DOUBLE),
                )
            ),
            to=x.dtype,
        )
    ]


scaler = Op("Scaler", ML)


@scaler.decompose
def scaler_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x = graph.op("Cast", node.inputs[0], to=FLOAT)
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        values = _listed(node, name)
        if len(values) not in (0, 1, x.shape[-1] if x.rank else 1):
            fail(node, f"{len(values)} values of '{name}' do not fit {x}")
        if values:
            x = graph.op(op, x, _floats(graph, values, [] if len(values) == 1 else None))
    return [x]


normalizer = Op("Normalizer", ML)


@normalizer.decompose
def normalizer_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Each row divided by its largest, its sum of or its root of squared absolute values; rows of
    zeros stay.
    """
    kind, x, axis = node.attr("norm", "MAX"), _matrix(node, graph), graph.ints([1])
    if kind not in ("MAX", "L1", "L2"):
        unsupported(node, f"norm '{kind}'")
    size = graph.op(
        {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[kind],
        graph.op("Abs", x) if kind == "MAX" else x,
        axis,
    )
    return [
        graph.op(
            "Div",
            x,
            graph.op(
                "Where",
                graph.op("Equal", size, _floats(graph, [0], [])),
                _floats(graph, [1], []),
                size,
            ),
        )
    ]


imputer = Op("Imputer", ML)


@imputer.decompose
def imputer_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x = node.inputs[0]
    real = x.dtype in FLOATS
    values, gone = (
        _listed(node, "imputed_value_floats" if real else "imputed_value_int64s"),
        (node.attr("replaced_value_float", 0.0) if real else node.attr("replaced_value_int64", 0)),
    )
    if (
        x.dtype not in NUMBERS or x.rank not in (1, 2) or len(values) not in (1, x.shape[-1])
    ):  # [N, C] or [C]
        fail(node, f"{len(values)} imputed values do not fit {x}")
    values = graph.constant(
        x.dtype,
        [len(values)] if len(values) != 1 else [],
        [float(v) if real else v for v in values],
    )
    missing = (
        graph.op("IsNaN", x)
        if gone != gone
        else graph.op("Equal", x, graph.constant(x.dtype, [], [gone]))
    )
    return [graph.op("Where", missing, values, x)]


feature_vectorizer = Op("FeatureVectorizer", ML)


@feature_vectorizer.decompose
def feature_vectorizer_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    sizes = _listed(node, "inputdimensions", int)
    if len(sizes) != len(node.inputs) or any(s < 0 for s in sizes):
        fail(node, f"inputdimensions {sizes} do not fit {len(node.inputs)} inputs")
    parts = []
    for i, size in enumerate(sizes):
        x = node.inputs[i]
        if x.rank not in (1, 2) or x.dtype not in NUMBERS:
            fail(node, f"it wants matrices of numbers, not {x}")
        x = graph.op("Cast", x, to=FLOAT)
        x = x if x.rank == 2 else graph.op("Unsqueeze", x, graph.ints([1]))
        parts.append(
            graph.op("Pad", x, graph.ints([0, 0, 0, size - x.shape[1]]))
            if size != x.shape[1]
            else x
        )
    return [graph.op("Concat", *parts, axis=1)]


one_hot_encoder = Op("OneHotEncoder", ML)


@one_hot_encoder.decompose
def one_hot_encoder_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    """Categories as float32 ones and zeros in a new last dimension; what is none of them is all
    zeros.
    """
    x, categories = node.inputs[0], _listed(node, "cats_int64s", int)
    if x.dtype not in NUMBERS or not categories:
        fail(node, f"it wants numbers and categories, and has {x} and {categories}")
    if not node.attr("zeros", 1):
        raise NeedsHost  # who looks whether all are known
    x = graph.op("Unsqueeze", graph.op("Cast", x, to=INT64), graph.ints([-1]))
    return [
        graph.op(
            "Cast",
            graph.op("Equal", x, graph.constant(INT64, [len(categories)], categories)),
            to=FLOAT,
        )
    ]


@one_hot_encoder.host
def one_hot_encoder_host(node: BoundNode, run: Host, inputs: list[Any]) -> list[Any] | None:
    """Categories that are strings, and with zeros = 0 the check that there are no others."""
    x, strict = inputs[0], not node.attr("zeros", 1)
    if isinstance(x, StringTensor):
        names = node.attrs.get("cats_strings")
        if type(names) is not list or not names:
            fail(
                node,
                f"it has {x} and no categories that are strings",
                "Check what is fed; if it is right, export the model again.",
            )
        place = {name: i for i, name in reversed(list(enumerate(names)))}
        found, count = [place.get(s, -1) for s in x.strings], len(names)
    elif strict and isinstance(x, RunTensor):
        categories = _listed(node, "cats_int64s", int)
        place = {c: i for i, c in reversed(list(enumerate(categories)))}
        found, count = [place.get(int(v), -1) for v in x.numbers], len(categories)
    else:
        return None
    run.check_room(NUMBER * len(found) * count)
    if strict and -1 in found:
        fail(
            node,
            "a category that it does not know is fed, and it is to fail there (zeros = 0)",
            "Feed known categories, or export the model with zeros = 1.",
        )
    return [
        RunTensor.of(FLOAT, [*x.shape, count], [float(i == k) for i in found for k in range(count)])
    ]


def _linear(node: BoundNode, graph: Graph, x, classes):
    """x times coefficients [classes, features] plus intercepts."""
    w, b = _listed(node, "coefficients"), _listed(node, "intercepts")
    if len(w) != classes * x.shape[1] or len(b) not in (0, 1, classes):
        fail(
            node,
            f"{len(w)} coefficients and {len(b)} intercepts do not fit {x} and {classes} outputs",
        )
    y = graph.op(
        "MatMul", x, graph.op("Transpose", _floats(graph, w, [classes, x.shape[1]]), perm=[1, 0])
    )
    return graph.op("Add", y, _floats(graph, b, [] if len(b) == 1 else None)) if b else y


linear_regressor = Op("LinearRegressor", ML)


@linear_regressor.decompose
def linear_regressor_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    return [
        transformed(
            node, graph, _linear(node, graph, _matrix(node, graph), node.attr("targets", 1))
        )
    ]


def above_zero(graph: Graph, scores):
    """0 or 1, int64 [rows]: whether scores [rows, 1] are above 0."""
    return graph.op(
        "Reshape",
        graph.op("Cast", graph.op("Greater", scores, _floats(graph, [0], [])), to=INT64),
        graph.ints([-1]),
    )


def second_of_two(node: BoundNode, graph: Graph, scores, label, negated=("LOGISTIC",)):
    """[label, scores of both classes] from those of the second one, [rows, 1], as onnxruntime has
    them: only what `negated` names makes a distribution of them, else the first one's is what is
    left to 1.
    """
    kind = node.attr("post_transform", "NONE")
    if kind == "PROBIT":
        unsupported(node, "post_transform 'PROBIT' of one score for two classes")
    other = (
        graph.op("Neg", scores)
        if kind in negated
        else graph.op("Sub", _floats(graph, [1], []), scores)
    )
    both = graph.op("Concat", other, scores, axis=1)
    return [label, graph.op("Sigmoid", both) if kind == "LOGISTIC" else both][: len(node.outputs)]


def classified(node: BoundNode, graph: Graph, scores, labels):
    """[labels, scores] of a classifier whose scores [rows, classes] are all there."""
    index = graph.op("ArgMax", scores, axis=1, keepdims=0)
    return [class_labels(node, graph, index, labels), transformed(node, graph, scores)][
        : len(node.outputs)
    ]


linear_classifier = Op("LinearClassifier", ML)
labelled_by_strings(linear_classifier, "classlabels_ints")


@linear_classifier.decompose
def linear_classifier_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    labels = _listed(node, "classlabels_ints", int)
    classes = max(len(labels), len(node.attrs.get("classlabels_strings") or []))
    x = _matrix(node, graph)
    rows = len(_listed(node, "coefficients")) // max(x.shape[1], 1)
    scores = _linear(node, graph, x, rows)
    if rows == 1 and classes == 2:
        return second_of_two(
            node, graph, scores, class_labels(node, graph, above_zero(graph, scores), labels)
        )
    if rows == 1:
        y = transformed(node, graph, scores)
        over = graph.op(
            "GreaterOrEqual",
            y,
            _floats(graph, [0.0 if node.attr("post_transform", "NONE") == "NONE" else 0.5], []),
        )
        label = graph.op(
            "Reshape",
            graph.op(
                "Where",
                over,
                graph.constant(INT64, [], [labels[0] if labels else 1]),
                graph.constant(INT64, [], [0]),
            ),
            graph.ints([-1]),
        )
        return [label, y][: len(node.outputs)]
    if classes not in (0, rows):
        fail(node, f"{classes} labels do not fit coefficients of {rows} classes")
    return classified(node, graph, scores, labels)
