"""Scores and labels of the classifiers and regressors of ai.onnx.ml."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import INT64
from ...declare.op import Op, fail, unsupported
from ...declare.symbolic import NeedsHost
from ...declare.values import StringTensor
from .attributes import floats

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, HostContext, Value


def transformed(node: BoundNode, graph: Binder, scores: Value, kind: str | None = None) -> Value:
    """Scores [rows, classes] after a transform. kind: which; None: the attribute post_transform."""
    kind = node.attr("post_transform", "NONE") if kind is None else kind
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
    near_zero = graph.op("LessOrEqual", graph.op("Abs", scores), floats(graph, [1e-7], []))
    shares = graph.op(
        "Where",
        near_zero,
        graph.op("Mul", scores, graph.op("Exp", graph.op("Neg", most))),
        graph.op("Exp", graph.op("Sub", scores, most)),
    )
    total = graph.op("ReduceSum", shares, axis)
    nothing = graph.op("Equal", total, floats(graph, [0], []))
    return graph.op(
        "Where",
        nothing,
        floats(graph, [0.5], []),
        graph.op("Div", shares, graph.op("Where", nothing, floats(graph, [1], []), total)),
    )


def _probit(graph: Binder, p: Value) -> Value:
    """sqrt(2) erfinv(2 p - 1), by the formula of Winitzki 2008, as in onnxruntime."""
    x = graph.op("Sub", graph.op("Mul", p, floats(graph, [2], [])), floats(graph, [1], []))
    log = graph.op("Log", graph.op("Sub", floats(graph, [1], []), graph.op("Mul", x, x)))
    a = graph.op(
        "Add",
        floats(graph, [2 / (math.pi * 0.147)], []),
        graph.op("Mul", log, floats(graph, [0.5], [])),
    )
    root = graph.op(
        "Sqrt",
        graph.op(
            "Sub", graph.op("Mul", a, a), graph.op("Mul", log, floats(graph, [1 / 0.147], []))
        ),
    )
    return graph.op(
        "Mul",
        graph.op("Mul", graph.op("Sign", x), graph.op("Sqrt", graph.op("Sub", root, a))),
        floats(graph, [1.41421356], []),
    )


def class_labels(node: BoundNode, graph: Binder, index: Value, labels: list[int]) -> Value | None:
    """The labels, int64 [rows], of classes; the index itself if the node has no labels.

    Raises:
        NeedsHost: the labels are strings (labelled_by_strings).
    """
    if node.attrs.get("classlabels_strings"):
        if not node.wants(0):
            return None
        raise NeedsHost
    return (
        graph.op("Gather", graph.constant(INT64, [len(labels)], labels), index) if labels else index
    )


def labelled_by_strings(op: Op, integers: str) -> None:
    """Declares that a classifier may have classlabels_strings.

    The host runs it with integer labels and replaces them by strings. integers: the name of the
    attribute of integer labels.
    """

    @op.host
    def op_host(node: BoundNode, run: HostContext, inputs: list[Any]) -> list[Any] | None:
        names = node.attrs.get("classlabels_strings")
        if not names or not node.wants(0):
            return None
        if type(names) is not list or not all(isinstance(s, str) for s in names):
            fail(
                node, "its classlabels_strings are not a list of strings", "Export the model again."
            )
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


def above_zero(graph: Binder, scores: Value) -> Value:
    """Whether scores [rows, 1] are above 0, as 0 or 1, int64 [rows]."""
    return graph.op(
        "Reshape",
        graph.op("Cast", graph.op("Greater", scores, floats(graph, [0], [])), to=INT64),
        graph.ints([-1]),
    )


def second_of_two(
    node: BoundNode,
    graph: Binder,
    scores: Value,
    label: Value | None,
    negated: tuple[str, ...] = ("LOGISTIC",),
) -> list[Value | None]:
    """[label, scores of both classes] from the scores of the second class, [rows, 1].

    As in onnxruntime, the first class's score is 1 minus the second's. negated: values of
    post_transform for which it is the negative of it.
    """
    kind = node.attr("post_transform", "NONE")
    if kind == "PROBIT":
        unsupported(node, "post_transform 'PROBIT' of one score for two classes")
    other = (
        graph.op("Neg", scores)
        if kind in negated
        else graph.op("Sub", floats(graph, [1], []), scores)
    )
    both = graph.op("Concat", other, scores, axis=1)
    return [label, graph.op("Sigmoid", both) if kind == "LOGISTIC" else both][: len(node.outputs)]


def classified(
    node: BoundNode, graph: Binder, scores: Value, labels: list[int]
) -> list[Value | None]:
    """[labels, transformed scores]: the class of the highest score [rows, classes]."""
    index = graph.op("ArgMax", scores, axis=1, keepdims=0)
    return [class_labels(node, graph, index, labels), transformed(node, graph, scores)][
        : len(node.outputs)
    ]
