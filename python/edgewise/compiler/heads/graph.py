"""Models with a head in their graph: its logits instead of their outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..declare.dtypes import FLOAT, FLOAT16, INT64
from ..ir import Info, Node
from ..onnx.editor import MAX_MODEL, ModelEditor
from ..onnx.source import Source
from .features import Features, feature_nodes, tensor_names, unused

if TYPE_CHECKING:
    from ...host.heads.fit import Head

LOGITS = "logits"
MASK = "attention_mask"


@dataclass(frozen=True)
class Vectors:
    """How the features of an input are made of a tensor of a graph.

    Attributes:
        features: the tensor, and how it becomes a vector: "none", "mean" or "first".
        rank: of the tensor.
        dtype: of the tensor: FLOAT or FLOAT16.
        masked: whether a mean is that of the tokens in the input `attention_mask`.
        unit: whether vectors are divided by their lengths.
    """

    features: Features
    rank: int
    dtype: int = FLOAT
    masked: bool = False
    unit: bool = False


def check_has_head(head: Head | None, method: str, labels: list[str]) -> Head:
    """The head, if there is one. Raises InputError."""
    if head is not None:
        return head
    if method == "logistic":
        raise InputError(
            f"it knows {labels[0]!r} alone", "export", "Add examples of something else."
        )
    raise InputError('the method "knn" has no head', "export", 'Use method="logistic".')


def model_with_head(source: str | Source, vectors: Vectors, head: Head) -> ModelEditor:
    """A model that can be written, whose output is the logits of a head, [batch, labels]; its
    metadata has `id2label`.

    Args:
        source: path or Source of a model; its external data is beside it.
        vectors: that the head was trained on.
        head: of at least one label.

    Raises:
        InputError: the graph has no such tensor, or the file would have more than 2 GB.
        ModelError, UnsupportedOp: the model is damaged.
    """
    editor = ModelEditor(source)
    add_head(editor, vectors, head)
    size = sum(t.nbytes for t in editor.graph.constants.values())
    if size > MAX_MODEL:
        raise InputError(
            f"the model has {size >> 20} MB, and an .onnx file holds 2048 MB",
            "export",
            "Teach a smaller model, or one with quantized weights.",
        )
    return editor


def label_fields(labels: list[str]) -> dict[str, Any]:
    """The fields of config.json about labels."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        "num_labels": len(labels),
        "problem_type": "single_label_classification",
    }


def with_labels(config: Mapping[str, Any], head: Head) -> bytes:
    """config.json of a model with a head."""
    return json.dumps({**config, **label_fields(head.labels)}, indent=2).encode()


def add_head(editor: ModelEditor, vectors: Vectors, head: Head) -> None:
    """Replaces the outputs of a model by the logits of a head. Raises InputError."""
    graph, tensor = editor.graph, vectors.features.tensor
    if tensor not in tensor_names(graph):
        raise InputError(f"the model has no tensor {tensor!r}", "export")
    nodes, used = graph.needed([tensor])
    masked = vectors.masked and vectors.features.pooling == "mean"
    if masked and not any(i.name == MASK for i in graph.inputs):
        raise InputError(
            f"its embeddings are means, and the graph has no {MASK}",
            "export",
            f"Export the model with the input {MASK}.",
        )
    if masked:
        used |= {MASK}
    graph.nodes[:] = nodes
    for name in [n for n in graph.constants if n not in used]:
        editor.remove_initializer(name)
    graph.inputs[:] = [i for i in graph.inputs if i.name in used]
    graph.outputs[:] = []
    taken = tensor_names(graph) | {LOGITS}
    if any(LOGITS in n.outputs for n in nodes):
        raise InputError("a tensor before the features is called 'logits'", "export")
    vector = unused(taken, "features")
    if masked:
        added = _mean_nodes(editor, vectors, vector, taken)
    else:
        opset = graph.opsets.get("", 17)
        added, constants = feature_nodes(
            vectors.features, vectors.rank, vector, taken, opset, vectors.dtype
        )
        for t in constants:
            editor.set_initializer(t.name, t)
    if vectors.unit:
        vector = _normalized(added, vector, taken)
    size, count = len(head.weight) // 4 // len(head.labels), len(head.labels)
    weight, bias = unused(taken, "head.weight"), unused(taken, "head.bias")
    editor.set_initializer(weight, (FLOAT, (size, count), head.weight))
    editor.set_initializer(bias, (FLOAT, (count,), head.bias))
    added.append(Node("Gemm", [vector, weight, bias], [LOGITS], {}, "", "head"))
    editor.add_nodes(added)
    editor.add_output(Info(LOGITS, FLOAT, ["batch_size", count]))
    editor.set_metadata("id2label", json.dumps(dict(enumerate(head.labels)), ensure_ascii=False))


def _normalized(nodes: list[Node], vector: str, taken: set[str]) -> str:
    """Adds the division of vectors by their lengths; returns the name of the result."""
    unit = unused(taken, "unit")
    nodes.append(Node("LpNormalization", [vector], [unit], {"axis": -1, "p": 2}))
    return unit


def _mean_nodes(editor: ModelEditor, vectors: Vectors, vector: str, taken: set[str]) -> list[Node]:
    """The mean of the states of tokens that the mask has."""
    opset, tensor = editor.graph.opsets.get("", 17), vectors.features.tensor
    nodes: list[Node] = []
    if vectors.dtype == FLOAT16:
        states = unused(taken, "features_float")
        nodes.append(Node("Cast", [tensor], [states], {"to": FLOAT}))
        tensor = states
    mask, wide, masked, total, count = (
        unused(taken, stem) for stem in ("mask", "mask_wide", "masked", "total", "tokens")
    )
    axis_one, axis_two = unused(taken, "axis_one"), unused(taken, "axis_two")
    if opset >= 13:
        for name, axis in ((axis_one, 1), (axis_two, 2)):
            editor.set_initializer(name, (INT64, (1,), axis.to_bytes(8, "little")))
    return nodes + [
        Node("Cast", [MASK], [mask], {"to": FLOAT}),
        Node("Unsqueeze", [mask, axis_two], [wide])
        if opset >= 13
        else Node("Unsqueeze", [mask], [wide], {"axes": [2]}),
        Node("Mul", [tensor, wide], [masked]),
        _sum(masked, axis_one, total, opset),
        _sum(wide, axis_one, count, opset),
        Node("Div", [total, count], [vector]),
    ]


def _sum(given: str, axis: str, result: str, opset: int) -> Node:
    if opset >= 13:
        return Node("ReduceSum", [given, axis], [result], {"keepdims": 0})
    return Node("ReduceSum", [given], [result], {"keepdims": 0, "axes": [1]})
