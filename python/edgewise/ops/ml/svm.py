"""Support vector machines (ai.onnx.ml): SVMClassifier and SVMRegressor, as onnxruntime computes
them. Compositions, and a kernel for probabilities of classes.

Without support vectors the coefficients are those of a linear model [classes, features]
(liblinear), else of pairs of classes (LIBSVM): row j - 1 for the vectors of class i and row i for
those of class j decide between i and j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import Op, fail, takes
from .ml import (
    ML,
    _floats,
    _listed,
    _matrix,
    class_labels,
    labelled_by_strings,
    second_of_two,
    transformed,
)

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Graph, Inferred, Value

MOST_CLASSES = 4096


MOST_DIFFERENCES = 1 << 22  # elements of [rows, support vectors, features] at once

couple = Op("Couple", "edgewise")  # (pairs [rows, classes * (classes - 1) / 2]); classes


@couple.infer
def couple_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0)
    return [(FLOAT, [node.inputs[0].shape[0], node.attrs["classes"]])]


@couple.lower
def couple_lower(node: BoundNode, builder: Builder) -> None:
    classes = node.attrs["classes"]
    builder.emit(
        "couple",
        {
            "pairs": builder.contiguous(builder.view(node.inputs[0])),
            "y": builder.out(node.outputs[0]),
        },
        rows=node.inputs[0].shape[0],
        classes=classes,
    )


def _kernel_of(node: BoundNode):
    """(kernel's name, gamma, coef0, degree)"""
    kind, params = (
        node.attr("kernel_type", "LINEAR"),
        _listed(node, "kernel_params") or [0.0, 0.0, 0.0],
    )
    if kind not in ("LINEAR", "POLY", "RBF", "SIGMOID") or len(params) < 3:
        fail(node, f"its kernel is {kind!r} with {params[:8]}", "Export the model again.")
    return (kind, *map(float, params[:3]))


def _meets(node: BoundNode, graph: Graph, x, vectors, count, kernel: str):
    """The kernel function [rows, count] of x [rows, features] and vectors, a flat list."""
    rows, features = x.shape
    kind, gamma, coef0, degree = kernel
    if count < 1 or len(vectors) != count * features:
        fail(node, f"{len(vectors)} numbers of {count} vectors do not fit {x}")
    table = _floats(graph, vectors, [count, features])
    if kind == "RBF":  # differences, rather than what is left of large squares
        each, parts = max(1, MOST_DIFFERENCES // max(count * features, 1)), []
        for at in range(0, rows, each):
            part = (
                x
                if each >= rows
                else graph.op(
                    "Slice",
                    x,
                    graph.ints([at]),
                    graph.ints([min(at + each, rows)]),
                    graph.ints([0]),
                )
            )
            d = graph.op("Sub", graph.op("Unsqueeze", part, graph.ints([1])), table)
            parts.append(graph.op("ReduceSum", graph.op("Mul", d, d), graph.ints([2]), keepdims=0))
        distance = (
            parts[0]
            if len(parts) == 1
            else (
                graph.op("Concat", *parts, axis=0)
                if parts
                else graph.constant(FLOAT, [0, count], [])
            )
        )
        return graph.op("Exp", graph.op("Mul", distance, _floats(graph, [-gamma], [])))
    y = graph.op("MatMul", x, graph.op("Transpose", table, perm=[1, 0]))
    if kind == "LINEAR":
        return y
    y = graph.op(
        "Add", graph.op("Mul", y, _floats(graph, [gamma], [])), _floats(graph, [coef0], [])
    )
    if kind == "SIGMOID":
        return graph.op("Tanh", y)
    if degree in (2.0, 3.0):
        square = graph.op("Mul", y, y)
        return square if degree == 2.0 else graph.op("Mul", square, y)
    return graph.op("Pow", y, _floats(graph, [degree], []))


regressor = Op("SVMRegressor", ML)


@regressor.decompose
def regressor_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x, weights, rho, count = (
        _matrix(node, graph),
        _listed(node, "coefficients"),
        _listed(node, "rho"),
        node.attr("n_supports", 0),
    )
    if not rho or not weights or count > 0 and len(weights) != count:
        fail(
            node,
            f"{len(weights)} coefficients and {len(rho)} offsets do not fit {count} support"
            " vectors",
        )
    if count > 0:
        k = _meets(node, graph, x, _listed(node, "support_vectors"), count, _kernel_of(node))
        y = graph.op("MatMul", k, _floats(graph, weights, [count, 1]))
    else:
        y = _meets(node, graph, x, weights, 1, ("LINEAR", 0.0, 0.0, 0.0))
    y = graph.op("Add", y, _floats(graph, rho[:1], []))
    if node.attr("one_class", 0):
        y = graph.op(
            "Where",
            graph.op("Greater", y, _floats(graph, [0], [])),
            _floats(graph, [1], []),
            _floats(graph, [-1], []),
        )
    return [y]


classifier = Op("SVMClassifier", ML)
labelled_by_strings(classifier, "classlabels_ints")


def _pairs(node: BoundNode, graph: Graph, x, classes, sizes, weights, rho):
    """[rows, pairs]: above 0 where the first class of a pair wins."""
    starts, count = [sum(sizes[:i]) for i in range(classes)], sum(sizes)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if len(weights) < (classes - 1) * count or len(rho) < len(pairs):
        fail(
            node,
            f"{len(weights)} coefficients and {len(rho)} offsets do not fit {count} support vectors"
            f" of {classes} classes",
        )
    table = [[0.0] * len(pairs) for _ in range(count)]
    for p, (i, j) in enumerate(pairs):
        for v in range(starts[i], starts[i] + sizes[i]):
            table[v][p] = weights[(j - 1) * count + v]
        for v in range(starts[j], starts[j] + sizes[j]):
            table[v][p] = weights[i * count + v]
    k = _meets(node, graph, x, _listed(node, "support_vectors"), count, _kernel_of(node))
    y = graph.op(
        "MatMul", k, _floats(graph, [w for row in table for w in row], [count, len(pairs)])
    )
    return graph.op("Add", y, _floats(graph, rho[: len(pairs)])), pairs


def _most_votes(graph: Graph, scores, pairs, classes):
    """The class that wins most pairs, the first of them."""
    won = graph.op("Cast", graph.op("Greater", scores, _floats(graph, [0], [])), to=FLOAT)
    swing = [0.0] * (
        len(pairs) * classes
    )  # a pair's vote goes to its second class, unless the first one wins
    for p, (i, j) in enumerate(pairs):
        swing[p * classes + i], swing[p * classes + j] = 1.0, -1.0
    votes = graph.op(
        "Add",
        graph.op("MatMul", won, _floats(graph, swing, [len(pairs), classes])),
        _floats(graph, [float(i) for i in range(classes)]),
    )  # class i is the second one of i pairs
    return graph.op("ArgMax", votes, axis=1, keepdims=0)


@classifier.decompose
def classifier_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    x, labels, sizes = (
        _matrix(node, graph),
        _listed(node, "classlabels_ints", int),
        _listed(node, "vectors_per_class", int),
    )
    classes = len(node.attrs.get("classlabels_strings") or labels)
    weights, rho, a, b = (_listed(node, k) for k in ("coefficients", "rho", "prob_a", "prob_b"))
    if (
        not 1 <= classes <= MOST_CLASSES
        or not weights
        or not rho
        or len(a) != len(b)
        or min(sizes, default=0) < 0
    ):
        fail(
            node,
            f"its attributes do not describe a classifier of {classes} classes",
            "Export the model again.",
        )
    if sum(sizes) == 0:  # liblinear
        scores = graph.op(
            "Add",
            _meets(node, graph, x, weights, classes, ("LINEAR", 0.0, 0.0, 0.0)),
            _floats(graph, rho[:1], []),
        )
        index = graph.op("ArgMax", scores, axis=1, keepdims=0)
        if (
            classes == 2 and not a
            # by onnxruntime's rule for two classes, the second one wins where the larger score is
            # high enough
        ):
            most = graph.op("ReduceMax", scores, graph.ints([1]), keepdims=0)
            over = (
                graph.op("GreaterOrEqual", most, _floats(graph, [0.5], []))
                if min(weights) >= 0
                else graph.op("Greater", most, _floats(graph, [0], []))
            )
            index = graph.op("Where", over, graph.constant(INT64, [], [1]), index)
        as_it_is = (
            classes == 1 and node.attr("post_transform", "NONE") != "PROBIT"
        )  # one score is of no distribution
        return [
            class_labels(node, graph, index, labels),
            scores if as_it_is else transformed(node, graph, scores),
        ][: len(node.outputs)]
    if len(sizes) != classes or classes < 2:
        fail(
            node,
            f"{len(sizes)} numbers of vectors do not fit {classes} classes",
            "Export the model again.",
        )
    scores, pairs = _pairs(node, graph, x, classes, sizes, weights, rho)
    index = _most_votes(graph, scores, pairs, classes)
    if a:
        if len(a) < len(pairs):
            fail(
                node,
                f"{len(a)} prob_a do not fit {len(pairs)} pairs of classes",
                "Export the model again.",
            )
        first = graph.op(
            "Sigmoid",
            graph.op(
                "Neg",
                graph.op(
                    "Add",
                    graph.op("Mul", scores, _floats(graph, a[: len(pairs)])),
                    _floats(graph, b[: len(pairs)]),
                ),
            ),
        )
        scores = graph.op(
            "Couple",
            graph.op("Clip", first, _floats(graph, [1e-7], []), _floats(graph, [1 - 1e-7], [])),
            domain="edgewise",
            classes=classes,
        )
    elif classes == 2:
        return second_of_two(
            node,
            graph,
            scores,
            class_labels(node, graph, index, labels),
            negated=("LOGISTIC", "NONE"),
        )
    return [class_labels(node, graph, index, labels), transformed(node, graph, scores)][
        : len(node.outputs)
    ]
