"""Heads in safetensors files, which pages read and write too (worker/pipelines/heads/files.ts)."""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import dataclass
from typing import Any

from ....compiler.declare.dtypes import FLOAT, INT64, NAME, unpack
from ....compiler.heads.examples import Examples, are_finite
from ....compiler.ir import Tensor
from ....compiler.onnx.source import Source
from ....compiler.training.safetensors import load_safetensors, save_safetensors
from ....json_text import parse_json
from ....logic.personal.files import (
    FORMAT,
    VERSION,
    WITH_ADAPTERS,
    Stored,
    broken,
    check_contents,
    head_file,
    options_of,
    tensors_of,
)
from ....logic.personal.options import HeadFields
from ...heads.fit import Head
from .lora import Adapters

DTYPES = {"float32": FLOAT, "int64": INT64}


@dataclass
class Saved:
    """A head as it is saved.

    Attributes:
        name: of the head.
        task: of the personal pipeline.
        model: digest of the model.
        fields: how it classifies and is trained.
        examples: features by label.
        head: the trained head; None for "knn", and where it has too few labels to be trained.
        adapters: that the model has for the features of `examples`, or None.
    """

    name: str
    task: str
    model: str
    fields: HeadFields
    examples: Examples
    head: Head | None
    adapters: Adapters | None = None


def write_head(saved: Saved, target: Any) -> bytes | None:
    """Writes a head. target: as of save_safetensors."""
    examples, head, fields = saved.examples, saved.head, saved.fields
    layout = saved.adapters.layout if saved.adapters is not None else None
    contents = {"examples": bytes(examples.data), "classes": array("q", examples.classes).tobytes()}
    if head is not None:
        contents |= {"weight": head.weight, "bias": head.bias}
    more = dict[str, str]()
    if saved.adapters is not None:
        contents["adapters"] = saved.adapters.data
        more["lora"] = json.dumps(saved.adapters.layout.to_dict(), ensure_ascii=False)
    tensors = {
        name: (DTYPES[stored.dtype], tuple(stored.shape), contents[name])
        for name, stored in tensors_of(examples, examples.size, head is not None, layout)
    }
    return save_safetensors(
        tensors,
        target,
        {
            **more,
            "format": FORMAT,
            "version": VERSION if layout is None else WITH_ADAPTERS,
            "name": saved.name,
            "task": saved.task,
            "model": saved.model,
            "method": fields.method,
            "labels": json.dumps(examples.labels, ensure_ascii=False),
            "options": json.dumps(options_of(fields)),
        },
    )


def read_head(source: str | os.PathLike[str] | bytes | Source) -> Saved:
    """Reads a head. Raises ModelError: the file is damaged, or none of a head."""
    tensors, metadata = load_safetensors(source)
    where = os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else "head"
    contents: dict[str, Any] = {
        name: parse_json(metadata[name], where)
        for name in ("labels", "options", "lora")
        if name in metadata
    }
    stored = {name: Stored(NAME[t.dtype], list(t.shape)) for name, t in tensors.items()}
    found = head_file(metadata, contents, stored, where)
    classes = unpack(INT64, tensors["classes"].bytes(), found.examples)
    labels = check_contents(found, classes, stored, where)
    examples = Examples(found.size)
    examples.labels, examples.classes = labels.labels, labels.classes
    examples.data = bytearray(_finite(tensors["examples"], where))
    head = None
    if found.trained:
        weight, bias = (_finite(tensors[name], where) for name in ("weight", "bias"))
        head = Head(list(found.labels), weight, bias)
    adapters = None
    if found.layout is not None:
        adapters = Adapters(found.layout, _finite(tensors["adapters"], where))
    return Saved(found.name, found.task, found.model, found.fields, examples, head, adapters)


def _finite(tensor: Tensor, where: str) -> bytes:
    """The bytes of float32 numbers. Raises ModelError: one is not finite."""
    data = tensor.bytes()
    if not are_finite(data):
        raise broken("its numbers are not finite", where)
    return data
