"""Heads in safetensors files: what they hold, and what is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError, ModelError
from ..native import listed, written
from .examples import Labels
from .layout import LoraLayout, layout_of
from .options import HeadFields, head_fields

FORMAT = "edgewise-head"
VERSION = "1"
WITH_ADAPTERS = "2"
"""Version of files with adapters, whose features older versions would compare with others."""
MAX_LABELS = 100_000
OPTIONS = ("neighbors", "c", "class_weight", "steps", "learning_rate")
SAVE_AGAIN = "Save it again with `save`."


@dataclass(frozen=True)
class Stored:
    """A tensor of a file."""

    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class HeadFile:
    """What a file says of a head.

    Attributes:
        name: of the head.
        task: of the personal pipeline.
        model: digest of the model.
        fields: how it is trained.
        labels: of the head.
        examples: how many there are.
        size: numbers of an example's features.
        trained: whether it has weights.
        layout: of its adapters, or None.
    """

    name: str
    task: str
    model: str
    fields: HeadFields
    labels: list[str]
    examples: int
    size: int
    trained: bool
    layout: LoraLayout | None


def options_of(fields: HeadFields) -> dict[str, Any]:
    """The options of a head, for a file."""
    return {
        "neighbors": fields.neighbors,
        "c": fields.c,
        "class_weight": fields.class_weight,
        "steps": fields.steps,
        "learning_rate": fields.learning_rate,
    }


def tensors_of(
    examples: Labels, size: int, trained: bool, layout: LoraLayout | None
) -> list[tuple[str, Stored]]:
    """The tensors of a file, in their order.

    Args:
        examples: of the head.
        size: numbers of an example's features.
        trained: whether it has weights.
        layout: of its adapters, or None.
    """
    count = len(examples.classes)
    labels = len(examples.labels)
    found = [("examples", Stored("float32", [count, size])), ("classes", Stored("int64", [count]))]
    if trained:
        found.append(("weight", Stored("float32", [size, labels])))
        found.append(("bias", Stored("float32", [labels])))
    if layout is not None:
        found.append(("adapters", Stored("float32", [layout.numbers])))
    return found


def head_file(
    metadata: Mapping[str, str],
    contents: Mapping[str, Any],
    tensors: Mapping[str, Stored],
    where: str,
) -> HeadFile:
    """What a file says of a head.

    Args:
        metadata: of the file.
        contents: those of metadata that are JSON: "labels", "options" and "lora"; None where it is
            none.
        tensors: of the file.
        where: name of the file, for errors.

    Raises:
        ModelError: it is damaged, or none of a head.
    """
    version = metadata.get("version", "")
    if metadata.get("format", "") != FORMAT or version not in (VERSION, WITH_ADAPTERS):
        raise broken("it is no head of this version", where)
    labels = _labels(contents.get("labels"))
    if labels is None:
        raise broken("it has no labels", where)
    method = metadata.get("method", "")
    if method not in ("logistic", "knn"):
        raise broken(f"its method is {written(method)}", where)
    fields = _fields(method, contents.get("options"), where)
    rows = _tensor(tensors, "examples", "float32", 2, where)
    classes = _tensor(tensors, "classes", "int64", 1, where)
    count = rows.shape[0]
    size = rows.shape[1]
    if classes.shape[0] != count or size == 0:
        raise broken("its examples and classes do not match", where)
    layout: LoraLayout | None = None
    if version == WITH_ADAPTERS:
        layout = _layout(contents.get("lora"), where)
        numbers = _tensor(tensors, "adapters", "float32", 1, where).shape[0]
        if numbers != layout.numbers:
            raise broken("its adapters have a wrong shape", where)
    return HeadFile(
        metadata.get("name", "default"),
        metadata.get("task", ""),
        metadata.get("model", ""),
        fields,
        labels,
        count,
        size,
        method == "logistic" and "weight" in tensors,
        layout,
    )


def check_contents(
    file: HeadFile, classes: Sequence[int], tensors: Mapping[str, Stored], where: str
) -> Labels:
    """The labels of a file's examples.

    Args:
        file: that was read.
        classes: the index of each example's label.
        tensors: of the file.
        where: name of the file, for errors.

    Raises:
        ModelError: an example has no label, or the weights are missing or have another shape.
    """
    labels = file.labels
    if not all(0 <= c < len(labels) for c in classes):
        raise broken("an example has a label that is not there", where)
    found = Labels(labels, classes)
    # a page also saves the first label alone, which is not trained
    if file.trained or file.fields.method == "logistic" and found.trainable():
        weight = _tensor(tensors, "weight", "float32", 2, where).shape
        bias = _tensor(tensors, "bias", "float32", 1, where).shape
        if [*weight, *bias] != [file.size, len(labels), len(labels)]:
            raise broken("its weights have a wrong shape", where)
    return found


def broken(what: str, where: str) -> ModelError:
    """The error of a damaged file."""
    return ModelError(what, where, SAVE_AGAIN)


def _labels(given: object) -> list[str] | None:
    labels = listed(given)
    if labels is None or not labels or len(labels) > MAX_LABELS:
        return None
    if not all(isinstance(label, str) for label in labels):
        return None
    return labels if len(set(labels)) == len(labels) else None


def _fields(method: str, options: object, where: str) -> HeadFields:
    if isinstance(options, Mapping) and sorted(options) == sorted(OPTIONS):
        try:
            return head_fields({**options, "method": method})
        except InputError:
            pass
    raise broken("its options are not valid", where)


def _layout(described: object, where: str) -> LoraLayout:
    try:
        return layout_of(described, where)
    except InputError:
        raise broken("its adapters are not described", where) from None


def _tensor(tensors: Mapping[str, Stored], name: str, dtype: str, rank: int, where: str) -> Stored:
    found = tensors.get(name)
    if found is None or found.dtype != dtype or len(found.shape) != rank:
        raise broken(f"it has no {name}, or of a wrong type or shape", where)
    return found
