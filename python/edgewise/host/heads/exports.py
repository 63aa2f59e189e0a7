"""Exports of personal pipelines: models with a head in their graph, and packages of them."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...compiler.declare.dtypes import FLOAT, FLOAT16
from ...compiler.heads.features import Features
from ...compiler.heads.graph import Vectors, model_with_head, with_labels
from ...compiler.onnx import BytesSource
from ...compiler.onnx.source import Source
from ...errors import InputError
from ...json_text import parse_json_object
from ...logic.personal.layout import layout_of
from .adapters import put_adapters
from .fit import Head

if TYPE_CHECKING:
    from ...compiler.package import Package

TASK = {"speaker-verification": "audio-classification"}
"""Tasks that exported models are of, where they are not the personal pipeline's."""
WEIGHT, BIAS, ADAPTERS = "head.weight", "head.bias", "adapters"
_DTYPES = {"float32": FLOAT, "float16": FLOAT16}


def package_with_head(
    files: Mapping[str, Source],
    name: str,
    model: bytes,
    config: bytes,
    task: str,
    max_length: int | None = None,
) -> Package:
    """A package of a model with a head.

    Args:
        files: of the model without it.
        name: of the graph among them.
        model, config: the graph with the head, and config.json with its labels.
        task: of the personal pipeline.
        max_length: as of compile_task.

    Raises:
        InputError, ModelError, UnsupportedOp: as compile_task.
    """
    from ...compiler.task_package import compile_task

    changed: dict[str, Source] = {
        **files,
        name: BytesSource(model, name),
        "config.json": BytesSource(config, "config.json"),
    }
    task = TASK.get(task, task)
    return compile_task(changed, task, max_length=max_length, model_file=name)


def call(files: Mapping[str, Source], options: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Answers a page's question for a model with a head (page.py).

    Args:
        files: {name: Source} of the model, and WEIGHT and BIAS of the head, float32.
            With adapters ADAPTERS, float32.
        options: "form": "onnx" or "edge"; "model_file": name of the graph; "labels" of the head;
            "task" of the personal pipeline; "vectors": {tensor, pooling, rank, dtype, masked,
            unit} as of heads.graph.Vectors, with names of pooling as those of embeddings; where it
            is given, "max_length"; with adapters "lora" (LoraLayout.to_dict).

    Returns:
        ("{}", {form: bytes of the file})

    Raises:
        InputError: the features are made in a way that has no nodes, or the file is too large.
        ModelError, UnsupportedOp: the model is damaged.
    """
    head = _head(files, options["labels"])
    name = options["model_file"]
    vectors = _vectors(options["vectors"])
    editor = model_with_head(files[name], vectors, head)
    if "lora" in options:
        layout = layout_of(options["lora"], "lora")
        data = files[ADAPTERS].read_all(4 * layout.numbers + 1)
        if len(data) != 4 * layout.numbers:
            raise InputError("the adapters' numbers do not fit their layers", "export")
        put_adapters(editor, layout, data)
    model = editor.write(None)
    assert model is not None
    if options["form"] == "onnx":
        return "{}", {"onnx": model}
    config: dict[str, Any] = {}
    if "config.json" in files:
        found = files["config.json"]
        config = parse_json_object(found.read(0, found.size), "config.json", InputError, "")
    rest = {n: source for n, source in files.items() if n not in (WEIGHT, BIAS, ADAPTERS)}
    package = package_with_head(
        rest, name, model, with_labels(config, head), options["task"], options.get("max_length")
    )
    target = io.BytesIO()
    package.write(target)
    return "{}", {"edge": target.getvalue()}


def embedding_vectors(
    tensor: str, poolings: list[str], normalize: bool, dtype: int = FLOAT
) -> Vectors:
    """How feature-extraction makes its vectors.

    Args:
        tensor: of states, [batch, tokens, size].
        poolings: ways of pooling whose vectors are joined.
        normalize: whether vectors get length 1.
        dtype: of the tensor.

    Raises:
        InputError: there are no nodes for it.
    """
    if poolings not in (["mean"], ["cls"]):
        raise InputError(
            f"its embeddings are made by {', '.join(poolings) or 'no pooling'}",
            "export",
            'Models with the poolings "mean" (with an attention_mask) and "cls" can be exported.',
        )
    features = Features(tensor, {"mean": "mean", "cls": "first"}[poolings[0]])
    return Vectors(features, 3, dtype, masked=True, unit=normalize)


def _vectors(given: Mapping[str, Any]) -> Vectors:
    dtype = _DTYPES.get(given["dtype"])
    if dtype is None:
        raise InputError(f"the features are of the type {given['dtype']}", "export")
    if given["masked"]:
        return embedding_vectors(given["tensor"], [given["pooling"]], given["unit"], dtype)
    features = Features(given["tensor"], given["pooling"])
    return Vectors(features, given["rank"], dtype, unit=given["unit"])


def _head(files: Mapping[str, Source], labels: list[str]) -> Head:
    """Raises InputError: sizes do not match."""
    weight, bias = (files[name].read(0, files[name].size) for name in (WEIGHT, BIAS))
    step = struct.calcsize("f") * len(labels)
    if not labels or len(bias) != step or not weight or len(weight) % step:
        raise InputError("the head's numbers do not fit its labels", "export")
    return Head(list(labels), weight, bias)
