"""Linear models of ai.onnx.ml: LinearRegressor and LinearClassifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import Op, fail
from .attributes import ML, float_matrix, floats, numbers_attribute
from .scores import (
    above_zero,
    class_labels,
    classified,
    labelled_by_strings,
    second_of_two,
    transformed,
)

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _linear(node: BoundNode, graph: Binder, x: Value, outputs: int) -> Value:
    """x times the node's coefficients [outputs, features] plus its intercepts.

    Coefficients after these are ignored, as onnxruntime does: where fewer features are fed than
    the model was trained with, its tutorials expect that.
    """
    w, b = numbers_attribute(node, "coefficients"), numbers_attribute(node, "intercepts")
    count = outputs * x.shape[1]
    if len(w) < count or len(b) not in (0, 1, outputs):
        fail(
            node,
            f"{len(w)} coefficients and {len(b)} intercepts do not fit {x} and {outputs} outputs",
        )
    y = graph.op(
        "MatMul",
        x,
        graph.op("Transpose", floats(graph, w[:count], [outputs, x.shape[1]]), perm=[1, 0]),
    )
    return graph.op("Add", y, floats(graph, b, [] if len(b) == 1 else None)) if b else y


linear_regressor = Op("LinearRegressor", ML)


@linear_regressor.decompose
def linear_regressor_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    y = _linear(node, graph, float_matrix(node, graph), node.attr("targets", 1))
    return [transformed(node, graph, y)]


linear_classifier = Op("LinearClassifier", ML)
labelled_by_strings(linear_classifier, "classlabels_ints")


@linear_classifier.decompose
def linear_classifier_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    labels = numbers_attribute(node, "classlabels_ints", int)
    classes = max(len(labels), len(node.attrs.get("classlabels_strings") or []))
    x = float_matrix(node, graph)
    rows = len(numbers_attribute(node, "intercepts"))
    if rows == 0 or rows == 1 and classes > 2:  # only coefficients tell how many there are
        rows, rest = divmod(len(numbers_attribute(node, "coefficients")), max(x.shape[1], 1))
        if rest:
            fail(node, f"its coefficients are no rows of {x.shape[1]} features")
    scores = _linear(node, graph, x, rows)
    if rows == 1 and classes == 2:
        return second_of_two(
            node, graph, scores, class_labels(node, graph, above_zero(graph, scores), labels)
        )
    if rows == 1:
        return _one_class(node, graph, scores, labels)
    if classes not in (0, rows):
        fail(node, f"{classes} labels do not fit coefficients of {rows} classes")
    return classified(node, graph, scores, labels)


def _one_class(
    node: BoundNode, graph: Binder, scores: Value, labels: list[int]
) -> list[Value | None]:
    """[labels, scores] of a classifier of one class: its label where the score is high enough, else
    0.
    """
    y = transformed(node, graph, scores)
    threshold = 0.0 if node.attr("post_transform", "NONE") == "NONE" else 0.5
    over = graph.op("GreaterOrEqual", y, floats(graph, [threshold], []))
    label = graph.op(
        "Where",
        over,
        graph.constant(INT64, [], [labels[0] if labels else 1]),
        graph.constant(INT64, [], [0]),
    )
    return [graph.op("Reshape", label, graph.ints([-1])), y][: len(node.outputs)]
