"""Heads in safetensors files, which pages read and write too (worker/pipelines/heads/files.ts)."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ....compiler.declare.dtypes import FLOAT, INT64, unpack
from ....compiler.heads.examples import Examples, are_finite
from ....compiler.heads.lora import LoraLayout
from ....compiler.ir import Tensor
from ....compiler.onnx.source import Source
from ....compiler.training.safetensors import load_safetensors, save_safetensors
from ....errors import InputError, ModelError
from ....json_text import parse_json
from ...heads.fit import FitOptions, Head
from .lora import Adapters

FORMAT = "edgewise-head"
VERSION = 1
WITH_ADAPTERS = 2
"""Version of files with adapters, whose features older versions would compare with others."""
MAX_LABELS = 100_000


@dataclass
class Saved:
    """A head as it is saved.

    Attributes:
        name: of the head.
        task: of the personal pipeline.
        model: digest of the model.
        method: "logistic" or "knn".
        neighbors: of "knn".
        options: of the training.
        examples: features by label.
        head: the trained head; None for "knn", and where it has too few labels to be trained.
        adapters: that the model has for the features of `examples`, or None.
    """

    name: str
    task: str
    model: str
    method: str
    neighbors: int
    options: FitOptions
    examples: Examples
    head: Head | None
    adapters: Adapters | None = None


def write_head(saved: Saved, target: Any) -> bytes | None:
    """Writes a head. target: as of save_safetensors."""
    examples, head = saved.examples, saved.head
    classes = array("q", examples.classes).tobytes()
    tensors: dict[str, Any] = {
        "examples": (FLOAT, (len(examples), examples.size), bytes(examples.data)),
        "classes": (INT64, (len(examples),), classes),
    }
    if head is not None:
        count = len(head.labels)
        tensors["weight"] = (FLOAT, (examples.size, count), head.weight)
        tensors["bias"] = (FLOAT, (count,), head.bias)
    more, version = dict[str, str](), VERSION
    if saved.adapters is not None:
        layout, version = saved.adapters.layout, WITH_ADAPTERS
        tensors["adapters"] = (FLOAT, (layout.numbers,), saved.adapters.data)
        more["lora"] = json.dumps(layout.to_dict(), ensure_ascii=False)
    return save_safetensors(
        tensors,
        target,
        {
            **more,
            "format": FORMAT,
            "version": str(version),
            "name": saved.name,
            "task": saved.task,
            "model": saved.model,
            "method": saved.method,
            "labels": json.dumps(examples.labels, ensure_ascii=False),
            "options": json.dumps({"neighbors": saved.neighbors, **asdict(saved.options)}),
        },
    )


def read_head(source: str | os.PathLike[str] | bytes | Source) -> Saved:
    """Reads a head. Raises ModelError: the file is damaged, or none of a head."""
    tensors, metadata = load_safetensors(source)
    where = os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else "head"
    version = metadata.get("version")
    if metadata.get("format") != FORMAT or version not in (str(VERSION), str(WITH_ADAPTERS)):
        raise _broken("it is no head of this version", where)
    labels = parse_json(metadata.get("labels", ""), where)
    options = parse_json(metadata.get("options", ""), where)
    if (
        not isinstance(labels, list)
        or not all(isinstance(label, str) for label in labels)
        or not 1 <= len(set(labels)) == len(labels) <= MAX_LABELS
        or not isinstance(options, dict)
    ):
        raise _broken("it has no labels or options", where)
    neighbors = options.pop("neighbors", None)
    try:
        fitting = FitOptions(**options)
    except (InputError, TypeError):
        raise _broken("its options are not valid", where) from None
    if type(neighbors) is not int or neighbors < 1:
        raise _broken("its number of neighbors is not valid", where)
    examples = _examples(tensors, labels, where)
    method = metadata.get("method", "")
    if method not in ("logistic", "knn"):
        raise _broken(f"its method is {method!r}", where)
    enough = len(labels) > 1 and all(examples.counts())  # pages also save the first label alone
    head = None
    if method == "logistic" and (enough or "weight" in tensors):
        head = _head(tensors, examples, where)
    adapters = None
    if version == str(WITH_ADAPTERS):
        adapters = _adapters(tensors, metadata.get("lora", ""), where)
    return Saved(
        metadata.get("name", "default"),
        metadata.get("task", ""),
        metadata.get("model", ""),
        method,
        neighbors,
        fitting,
        examples,
        head,
        adapters,
    )


def _adapters(tensors: Mapping[str, Tensor], described: str, where: str) -> Adapters:
    try:
        layout = LoraLayout.from_dict(parse_json(described, where), where)
    except InputError:
        raise _broken("its adapters are not described", where) from None
    found = tensors.get("adapters")
    if found is None or found.dtype != FLOAT or list(found.shape) != [layout.numbers]:
        raise _broken("its adapters are missing, or have a wrong type or shape", where)
    return Adapters(layout, _finite(found, where))


def _finite(tensor: Tensor, where: str) -> bytes:
    """The bytes of float32 numbers. Raises ModelError: one is not finite."""
    data = tensor.bytes()
    if not are_finite(data):
        raise _broken("its numbers are not finite", where)
    return data


def _broken(what: str, where: str) -> ModelError:
    return ModelError(what, where, "Save it again with PersonalPipeline.save.")


def _examples(tensors: Mapping[str, Tensor], labels: list[str], where: str) -> Examples:
    rows, of = tensors.get("examples"), tensors.get("classes")
    if (
        rows is None
        or of is None
        or rows.dtype != FLOAT
        or of.dtype != INT64
        or len(rows.shape) != 2
        or list(of.shape) != [rows.shape[0]]
        or not rows.shape[1]
    ):
        raise _broken("its examples are missing, or have a wrong type or shape", where)
    examples = Examples(rows.shape[1])
    examples.labels = list(labels)
    examples.classes = unpack(INT64, of.bytes(), of.count)
    examples.data = bytearray(_finite(rows, where))
    if not all(0 <= c < len(labels) for c in examples.classes):
        raise _broken("an example has a label that is not there", where)
    return examples


def _head(tensors: Mapping[str, Tensor], examples: Examples, where: str) -> Head:
    weight, bias = tensors.get("weight"), tensors.get("bias")
    count = len(examples.labels)
    if (
        weight is None
        or bias is None
        or not weight.dtype == bias.dtype == FLOAT
        or list(weight.shape) != [examples.size, count]
        or list(bias.shape) != [count]
    ):
        raise _broken("its weights are missing, or have a wrong type or shape", where)
    return Head(list(examples.labels), _finite(weight, where), _finite(bias, where))
