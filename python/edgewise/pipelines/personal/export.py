"""Models with a head in their graph."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT, INT64
from ...errors import InputError
from ...heads.features import feature_nodes, tensor_names, unused
from ...heads.fit import Head
from ...ir import Info, Node
from ...onnx import BytesSource
from ...onnx.editor import ModelEditor
from ...onnx.source import Source
from ...session.open import folder_files, name_in
from ...task_package import compile_task, task_texts
from ..feature_extraction import FeatureExtractionPipeline
from ..speaker_verification import SpeakerVerificationPipeline

if TYPE_CHECKING:
    from .pipeline import PersonalPipeline

LOGITS = "logits"
TASK = {"speaker-verification": "audio-classification"}
"""Tasks that exported models are of, where they are not the pipeline's."""


def export(mine: PersonalPipeline, target: str) -> None:
    """Writes a personal pipeline's model. See PersonalPipeline.export."""
    head = mine._head.head
    if head is None and mine.method == "logistic":
        raise InputError(
            f"it knows {mine.labels[0]!r} alone", "export", "Add examples of something else."
        )
    if head is None:
        raise InputError('the method "knn" has no head', "export", 'Use method="logistic".')
    files = mine.backbone.pipe.files
    if files is None:
        raise InputError(
            "the pipeline was made from sessions", "export", "Make it from a folder or a file."
        )
    path = files.graphs[mine.backbone.stem]
    editor = ModelEditor(path)
    add_head(editor, mine, head)
    if target.endswith(".onnx"):
        editor.write(target)
        return
    model = editor.write(None)
    assert model is not None
    config = {**mine.config, **label_fields(head.labels)}
    if target.endswith(".edge"):
        _write_package(mine, files.root, path, model, config, target)
        return
    os.makedirs(os.path.join(target, "onnx"), exist_ok=True)
    found, _ = folder_files(files.root)
    texts = {**task_texts(found), "config.json": json.dumps(config, indent=2).encode()}
    for name, data in {**texts, "onnx/model.onnx": model}.items():
        place = os.path.join(target, *name.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(data)


def label_fields(labels: list[str]) -> dict[str, Any]:
    """The fields of config.json about labels."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        "num_labels": len(labels),
        "problem_type": "single_label_classification",
    }


def _write_package(
    mine: PersonalPipeline,
    root: str,
    path: str,
    model: bytes,
    config: Mapping[str, Any],
    target: str,
) -> None:
    found, root = folder_files(root)
    name = name_in(root, path)
    files: dict[str, Source] = {
        **found,
        name: BytesSource(model, name),
        "config.json": BytesSource(json.dumps(config).encode(), "config.json"),
    }
    task = TASK.get(mine.task, mine.task)
    compile_task(files, task, model_file=name).save(target)


def add_head(editor: ModelEditor, mine: PersonalPipeline, head: Head) -> None:
    """Replaces the outputs of a model by the logits of a head."""
    graph, backbone = editor.graph, mine.backbone
    pipe, features = backbone.pipe, backbone.features
    opset = graph.opsets.get("", 17)
    if isinstance(pipe, FeatureExtractionPipeline):
        tensor = _embedding_tensor(pipe)
    else:
        assert features is not None
        tensor = features.tensor
    nodes, used = graph.needed([tensor])
    if isinstance(pipe, FeatureExtractionPipeline):
        used |= {"attention_mask"}
    graph.nodes[:] = nodes
    for name in [n for n in graph.constants if n not in used]:
        editor.remove_initializer(name)
    graph.inputs[:] = [i for i in graph.inputs if i.name in used]
    graph.outputs[:] = []
    taken = tensor_names(graph) | {LOGITS}
    if any(LOGITS in n.outputs for n in nodes):
        raise InputError("a tensor before the features is called 'logits'", "export")
    vector = unused(taken, "features")
    if isinstance(pipe, FeatureExtractionPipeline):
        added = _embedding_nodes(editor, mine, tensor, vector, taken, opset)
    else:
        assert features is not None
        added, constants = feature_nodes(
            features, backbone.rank, vector, taken, opset, backbone.dtype
        )
        for t in constants:
            editor.set_initializer(t.name, t)
    if isinstance(pipe, SpeakerVerificationPipeline):
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


def _embedding_tensor(pipe: FeatureExtractionPipeline) -> str:
    from ...heads.features import text_states

    return text_states(vars(pipe)["_own_graph"]).tensor


def _embedding_nodes(
    editor: ModelEditor,
    mine: PersonalPipeline,
    tensor: str,
    vector: str,
    taken: set[str],
    opset: int,
) -> list[Node]:
    """The nodes that make an embedding of the states of tokens.

    Raises:
        InputError: it is made in a way that has no nodes here.
    """
    pipe = mine.backbone.pipe
    assert isinstance(pipe, FeatureExtractionPipeline)
    options = {**pipe.defaults, **mine.backbone.embedding}
    poolings, own = pipe._poolings(options)
    normalize = pipe.recipe.normalize if own else False
    if options["normalize"] is not None:
        normalize = options["normalize"]
    size = options["dimensions"] or (pipe.recipe.dimensions if own else None)
    nodes: list[Node] = []
    pooled = unused(taken, "pooled") if normalize else vector
    if tensor == "sentence_embedding":
        nodes.append(Node("Identity", [tensor], [pooled]))
    elif poolings == ["mean"] and any(i.name == "attention_mask" for i in editor.graph.inputs):
        nodes += _mean_nodes(editor, tensor, pooled, taken, opset)
    elif poolings == ["cls"]:
        first = unused(taken, "first")
        editor.set_initializer(first, (INT64, (), bytes(8)))
        nodes.append(Node("Gather", [tensor, first], [pooled], {"axis": 1}))
    else:
        raise InputError(
            f"its embeddings are made by {', '.join(poolings) or 'no pooling'}",
            "export",
            'Models with the poolings "mean" (with an attention_mask) and "cls" can be exported.',
        )
    if size is not None or pipe._prompt(options):
        raise InputError(
            "its embeddings are shortened or have a prompt",
            "export",
            "Make the pipeline without dimensions and prompt.",
        )
    if normalize:
        nodes.append(Node("LpNormalization", [pooled], [vector], {"axis": -1, "p": 2}))
    return nodes


def _mean_nodes(
    editor: ModelEditor, tensor: str, pooled: str, taken: set[str], opset: int
) -> list[Node]:
    """The mean of the states of tokens that the mask has."""
    mask, wide, masked, total, count = (
        unused(taken, stem) for stem in ("mask", "mask_wide", "masked", "total", "tokens")
    )
    axis_one, axis_two = unused(taken, "axis_one"), unused(taken, "axis_two")
    for name, axis in ((axis_one, 1), (axis_two, 2)):
        editor.set_initializer(name, (INT64, (1,), axis.to_bytes(8, "little")))
    return [
        Node("Cast", ["attention_mask"], [mask], {"to": FLOAT}),
        Node("Unsqueeze", [mask, axis_two], [wide])
        if opset >= 13
        else Node("Unsqueeze", [mask], [wide], {"axes": [2]}),
        Node("Mul", [tensor, wide], [masked]),
        _sum(masked, axis_one, total, opset),
        _sum(wide, axis_one, count, opset),
        Node("Div", [total, count], [pooled]),
    ]


def _sum(given: str, axis: str, result: str, opset: int) -> Node:
    if opset >= 13:
        return Node("ReduceSum", [given, axis], [result], {"keepdims": 0})
    return Node("ReduceSum", [given], [result], {"keepdims": 0, "axes": [1]})
