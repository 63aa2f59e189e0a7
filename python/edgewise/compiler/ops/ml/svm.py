"""Support vector machines of ai.onnx.ml, SVMClassifier and SVMRegressor, as in onnxruntime.

Without support vectors the coefficients are a linear model's [classes, features] (liblinear). Else
they belong to pairs of classes (LIBSVM): between the classes i and j > i decide row j - 1, for the
vectors of class i, and row i, for those of class j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import Op, fail, takes
from .attributes import ML, float_matrix, floats, numbers_attribute
from .scores import class_labels, labelled_by_strings, second_of_two, transformed

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Builder, Inferred, Value

    Kernel = tuple[str, float, float, float]  # kernel_type, gamma, coef0, degree

MAX_CLASSES = 4096
MAX_DIFFERENCES = 1 << 22  # elements of [rows, support vectors, features] at once
LINEAR = ("LINEAR", 0.0, 0.0, 0.0)

# Probabilities [rows, classes] from those of pairs [rows, classes * (classes - 1) / 2]; attribute:
# classes.
couple = Op("Couple", "edgewise")


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


def _kernel_attributes(node: BoundNode) -> Kernel:
    kind, params = (
        node.attr("kernel_type", "LINEAR"),
        numbers_attribute(node, "kernel_params") or [0.0, 0.0, 0.0],
    )
    if kind not in ("LINEAR", "POLY", "RBF", "SIGMOID") or len(params) < 3:
        fail(node, f"its kernel is {kind!r} with {params[:8]}", "Export the model again.")
    gamma, coef0, degree = map(float, params[:3])
    return kind, gamma, coef0, degree


def _kernel_values(
    node: BoundNode, graph: Binder, x: Value, vectors: list[float], count: int, kernel: Kernel
) -> Value:
    """The kernel function of each row of x [rows, features] and each vector: [rows, count].

    Args:
        vectors: a flat list.
        count: how many vectors there are.
    """
    kind, gamma, coef0, degree = kernel
    if count < 1 or len(vectors) != count * x.shape[1]:
        fail(node, f"{len(vectors)} numbers of {count} vectors do not fit {x}")
    table = floats(graph, vectors, [count, x.shape[1]])
    if kind == "RBF":
        distance = _squared_distances(graph, x, table)
        return graph.op("Exp", graph.op("Mul", distance, floats(graph, [-gamma], [])))
    y = graph.op("MatMul", x, graph.op("Transpose", table, perm=[1, 0]))
    if kind == "LINEAR":
        return y
    y = graph.op("Add", graph.op("Mul", y, floats(graph, [gamma], [])), floats(graph, [coef0], []))
    if kind == "SIGMOID":
        return graph.op("Tanh", y)
    if degree in (2.0, 3.0):
        square = graph.op("Mul", y, y)
        return square if degree == 2.0 else graph.op("Mul", square, y)
    return graph.op("Pow", y, floats(graph, [degree], []))


def _squared_distances(graph: Binder, x: Value, table: Value) -> Value:
    """[rows, vectors], from differences: the difference of large squares would lose precision. Many
    rows are computed in parts, to bound the memory of their differences.
    """
    (rows, features), count = x.shape, table.shape[0]
    each, parts = max(1, MAX_DIFFERENCES // max(count * features, 1)), []
    for at in range(0, rows, each):
        part = x
        if each < rows:
            ends = (graph.ints([i]) for i in (at, min(at + each, rows), 0))
            part = graph.op("Slice", x, *ends)
        d = graph.op("Sub", graph.op("Unsqueeze", part, graph.ints([1])), table)
        parts.append(graph.op("ReduceSum", graph.op("Mul", d, d), graph.ints([2]), keepdims=0))
    if not parts:
        return graph.constant(FLOAT, [0, count], [])
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=0)


regressor = Op("SVMRegressor", ML)


@regressor.decompose
def regressor_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    x, weights, rho, count = (
        float_matrix(node, graph),
        numbers_attribute(node, "coefficients"),
        numbers_attribute(node, "rho"),
        node.attr("n_supports", 0),
    )
    if not rho or not weights or count > 0 and len(weights) != count:
        fail(
            node,
            f"{len(weights)} coefficients and {len(rho)} offsets do not fit {count} support"
            " vectors",
        )
    if count > 0:
        vectors = numbers_attribute(node, "support_vectors")
        k = _kernel_values(node, graph, x, vectors, count, _kernel_attributes(node))
        y = graph.op("MatMul", k, floats(graph, weights, [count, 1]))
    else:
        y = _kernel_values(node, graph, x, weights, 1, LINEAR)
    y = graph.op("Add", y, floats(graph, rho[:1], []))
    if node.attr("one_class", 0):
        y = graph.op(
            "Where",
            graph.op("Greater", y, floats(graph, [0], [])),
            floats(graph, [1], []),
            floats(graph, [-1], []),
        )
    return [y]


classifier = Op("SVMClassifier", ML)
labelled_by_strings(classifier, "classlabels_ints")


@classifier.decompose
def classifier_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    x, labels, sizes = (
        float_matrix(node, graph),
        numbers_attribute(node, "classlabels_ints", int),
        numbers_attribute(node, "vectors_per_class", int),
    )
    classes = len(node.attrs.get("classlabels_strings") or labels)
    weights, rho, a, b = (
        numbers_attribute(node, k) for k in ("coefficients", "rho", "prob_a", "prob_b")
    )
    if (
        not 1 <= classes <= MAX_CLASSES
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
    if sum(sizes) == 0:
        return _linear_classifier(node, graph, x, classes, labels)
    if len(sizes) != classes or classes < 2:
        fail(
            node,
            f"{len(sizes)} numbers of vectors do not fit {classes} classes",
            "Export the model again.",
        )
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    scores = _pair_scores(node, graph, x, pairs, sizes)
    index = _most_votes(graph, scores, pairs, classes)
    if a:
        scores = _probabilities(node, graph, scores, a, b, classes)
    label = class_labels(node, graph, index, labels)
    if classes == 2 and not a:
        return second_of_two(node, graph, scores, label, negated=("LOGISTIC", "NONE"))
    return [label, transformed(node, graph, scores)][: len(node.outputs)]


def _linear_classifier(
    node: BoundNode, graph: Binder, x: Value, classes: int, labels: list[int]
) -> list[Value | None]:
    """The outputs of a classifier without support vectors (liblinear)."""
    weights, rho = numbers_attribute(node, "coefficients"), numbers_attribute(node, "rho")
    scores = graph.op(
        "Add", _kernel_values(node, graph, x, weights, classes, LINEAR), floats(graph, rho[:1], [])
    )
    index = graph.op("ArgMax", scores, axis=1, keepdims=0)
    if classes == 2 and not numbers_attribute(node, "prob_a"):
        # onnxruntime's rule for two classes: the second one wins where the larger score is high
        # enough.
        most = graph.op("ReduceMax", scores, graph.ints([1]), keepdims=0)
        over = (
            graph.op("GreaterOrEqual", most, floats(graph, [0.5], []))
            if min(weights) >= 0
            else graph.op("Greater", most, floats(graph, [0], []))
        )
        index = graph.op("Where", over, graph.constant(INT64, [], [1]), index)
    # A single score is not transformed into a distribution.
    unchanged = classes == 1 and node.attr("post_transform", "NONE") != "PROBIT"
    return [
        class_labels(node, graph, index, labels),
        scores if unchanged else transformed(node, graph, scores),
    ][: len(node.outputs)]


def _pair_scores(
    node: BoundNode, graph: Binder, x: Value, pairs: list[tuple[int, int]], sizes: list[int]
) -> Value:
    """[rows, pairs]: above 0 where the first class of a pair wins. sizes: support vectors of each
    class.
    """
    weights, rho = numbers_attribute(node, "coefficients"), numbers_attribute(node, "rho")
    starts, count = [sum(sizes[:i]) for i in range(len(sizes))], sum(sizes)
    if len(weights) < (len(sizes) - 1) * count or len(rho) < len(pairs):
        fail(
            node,
            f"{len(weights)} coefficients and {len(rho)} offsets do not fit {count} support vectors"
            f" of {len(sizes)} classes",
        )
    table = [[0.0] * len(pairs) for _ in range(count)]
    for p, (i, j) in enumerate(pairs):
        for v in range(starts[i], starts[i] + sizes[i]):
            table[v][p] = weights[(j - 1) * count + v]
        for v in range(starts[j], starts[j] + sizes[j]):
            table[v][p] = weights[i * count + v]
    vectors = numbers_attribute(node, "support_vectors")
    k = _kernel_values(node, graph, x, vectors, count, _kernel_attributes(node))
    y = graph.op("MatMul", k, floats(graph, [w for row in table for w in row], [count, len(pairs)]))
    return graph.op("Add", y, floats(graph, rho[: len(pairs)]))


def _most_votes(graph: Binder, scores: Value, pairs: list[tuple[int, int]], classes: int) -> Value:
    """The class that wins most pairs, int64 [rows]; the first of several."""
    won = graph.op("Cast", graph.op("Greater", scores, floats(graph, [0], [])), to=FLOAT)
    # Class i is the second class of i pairs: it begins with the votes of all of them, and a pair
    # that its first class wins moves its vote.
    swing = [0.0] * (len(pairs) * classes)
    for p, (i, j) in enumerate(pairs):
        swing[p * classes + i], swing[p * classes + j] = 1.0, -1.0
    votes = graph.op(
        "Add",
        graph.op("MatMul", won, floats(graph, swing, [len(pairs), classes])),
        floats(graph, [float(i) for i in range(classes)]),
    )
    return graph.op("ArgMax", votes, axis=1, keepdims=0)


def _probabilities(
    node: BoundNode, graph: Binder, scores: Value, a: list[float], b: list[float], classes: int
) -> Value:
    """Probabilities of classes [rows, classes] from scores of pairs. a, b: of the logistic function
    of each pair's score (Platt 1999).
    """
    pairs = scores.shape[1]
    if len(a) < pairs:
        fail(
            node, f"{len(a)} prob_a do not fit {pairs} pairs of classes", "Export the model again."
        )
    steep = graph.op("Mul", scores, floats(graph, a[:pairs]))
    first = graph.op("Sigmoid", graph.op("Neg", graph.op("Add", steep, floats(graph, b[:pairs]))))
    first = graph.op("Clip", first, floats(graph, [1e-7], []), floats(graph, [1 - 1e-7], []))
    return graph.op("Couple", first, domain="edgewise", classes=classes)
