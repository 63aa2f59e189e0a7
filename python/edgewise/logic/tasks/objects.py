"""Objects by any labels: zero-shot-object-detection. Mirrors transformers' pipeline of this name
and post_process_grounded_object_detection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..images.geometry import Size
from ..options import read_count, read_flag, read_within
from ..post.classification import sigmoid
from ..post.detection import Box, corners, named_box
from .inputs import Values
from .pictures import Found, wrong_shape

MAX_TEXT = 256
"""Tokens of a text of Grounding DINO, as many as it has scores of each box."""


@dataclass(frozen=True)
class Finding:
    """How objects are found.

    Attributes:
        threshold: scores above it are kept.
        text_threshold: of Grounding DINO: a label has the tokens with a score above it.
        top_k: how many; None: all.
        percentage: whether boxes are parts of the picture instead of pixels.
    """

    threshold: float
    text_threshold: float
    top_k: int | None
    percentage: bool


def finding(options: Mapping[str, Any]) -> Finding:
    """The options `threshold` (or `box_threshold`), `text_threshold`, `top_k` and `percentage`.
    Raises InputError.
    """
    threshold = read_within(options, "threshold", 0.1, 0, 1)
    threshold = read_within(options, "box_threshold", threshold, 0, 1)
    return Finding(
        threshold,
        read_within(options, "text_threshold", threshold, 0, 1),
        read_count(options, "top_k"),
        read_flag(options, "percentage", False),
    )


def is_grounded(config: Mapping[str, Any]) -> bool:
    """Whether a model reads all labels as one text, whose tokens name what is in a box."""
    return config.get("model_type") in ("grounding-dino", "mm-grounding-dino")


def is_squared(config: Mapping[str, Any]) -> bool:
    """Whether a model's pictures are squares, of which the given one is a part."""
    return config.get("model_type") == "owlv2"


def found_by_labels(
    logits: Values,
    boxes: Values,
    labels: Sequence[str],
    how: Finding,
    size: Size,
    squared: bool,
    task: str,
) -> list[Found]:
    """The objects of models that compare each box with each label (OWL-ViT, OWLv2).

    Args:
        logits: [1, boxes, labels].
        boxes: [1, boxes, 4].
        labels: the candidates.
        how: they are found.
        size: height and width of the picture.
        squared: see is_squared.
        task: of the pipeline.

    Raises:
        InputError: the outputs are not those of this task.
    """
    count = len(labels)
    if boxes.dims[-1] != 4 or logits.dims[-1] != count:
        raise wrong_shape(logits.dims, task)
    if len(boxes.data) * count != len(logits.data) * 4:
        raise wrong_shape(boxes.dims, task)
    queries = len(boxes.data) // 4
    found: list[Found] = []
    for k in range(count):
        scores = sigmoid([logits.data[q * count + k] for q in range(queries)])
        for q in range(queries):
            if scores[q] > how.threshold:
                found.append(_found(scores[q], labels[k], boxes.data, q, how, size, squared))
    return _best(found, how)


def _found(
    score: float,
    label: str,
    boxes: Sequence[float],
    query: int,
    how: Finding,
    size: Size,
    squared: bool,
) -> Found:
    height, width = (max(size[0], size[1]), max(size[0], size[1])) if squared else size
    box: Box = corners(boxes, query, height, width)
    return {"score": score, "label": label, "box": named_box(box, size[0], size[1], how.percentage)}


def _best(found: list[Found], how: Finding) -> list[Found]:
    """The objects with the highest scores, the highest first."""
    ordered = sorted(found, key=lambda one: -one["score"])
    return ordered if how.top_k is None else ordered[: how.top_k]


# Grounding DINO


def grounded_text(labels: Sequence[str]) -> str:
    """The text that labels make: "a cat. a dog."; one that has a dot is taken as it is."""
    if len(labels) == 1 and "." in labels[0]:
        return labels[0]
    texts: list[str] = []
    for label in labels:
        if "." in label:
            raise InputError(
                f"the label {label!r} has a dot",
                "candidate_labels",
                "A dot divides labels: leave it out, or give one text with all labels.",
            )
        texts.append(label.strip().lower())
    return ". ".join(texts) + "."


def check_text(tokens: int, most: int | None) -> None:
    """Raises InputError if a text that labels make is too long. most: tokens that are taken."""
    limit = MAX_TEXT if most is None else min(most, MAX_TEXT)
    if tokens > limit:
        raise InputError(
            f"the labels have {tokens} tokens, the model takes {limit}",
            "candidate_labels",
            "Give fewer labels.",
        )


@dataclass(frozen=True)
class Grounded:
    """An object, with the tokens that name it.

    Attributes:
        score: of the box.
        tokens: ids.
        found: without its label.
    """

    score: float
    tokens: list[int]
    found: Found


def grounded(
    logits: Values, boxes: Values, ids: Sequence[int], how: Finding, size: Size, task: str
) -> list[Grounded]:
    """The objects of Grounding DINO, the highest score first.

    Args:
        logits: [1, boxes, tokens], at least as many tokens as the text has.
        boxes: [1, boxes, 4].
        ids: of the text.
        how: they are found.
        size: height and width of the picture.
        task: of the pipeline.

    Raises:
        InputError: the outputs are not those of this task.
    """
    tokens = logits.dims[-1]
    if boxes.dims[-1] != 4 or len(boxes.data) * tokens != len(logits.data) * 4:
        raise wrong_shape(boxes.dims, task)
    made: list[Grounded] = []
    for q in range(len(boxes.data) // 4):
        scores = sigmoid(logits.data[q * tokens : (q + 1) * tokens])
        best = max(scores)
        if best <= how.threshold:
            continue
        named = [
            ids[i] for i in range(1, min(tokens - 1, len(ids))) if scores[i] > how.text_threshold
        ]
        made.append(Grounded(best, named, _found(best, "", boxes.data, q, how, size, False)))
    ordered = sorted(made, key=lambda one: -one.score)
    return ordered if how.top_k is None else ordered[: how.top_k]
