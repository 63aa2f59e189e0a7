"""Scores of labels from logits. Mirrors the classification pipelines of transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ...errors import InputError
from ..options import read_choice, read_count

FUNCTIONS = ("default", "softmax", "sigmoid", "none")


class Score(TypedDict):
    """A label with its score."""

    label: str
    score: float


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities that add up to 1; none of no logits."""
    most = max(logits, default=0.0)
    powers = [math.exp(x - most) for x in logits]
    total = sum(powers)
    return [p / total for p in powers]


def sigmoid(logits: Sequence[float]) -> list[float]:
    """Independent probabilities."""
    return [1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x)) for x in logits]


def function_for(problem_type: str | None, labels: int) -> str:
    """The function from logits to scores that a model's configuration implies.

    Args:
        problem_type: of config.json.
        labels: how many there are.
    """
    if problem_type == "regression":
        return "none"
    if problem_type == "multi_label_classification" or labels == 1:
        return "sigmoid"
    return "softmax"


def scores_of(logits: Sequence[float], function: str) -> list[float]:
    """Scores of logits. function: "softmax", "sigmoid" or "none"."""
    if function == "softmax":
        return softmax(logits)
    return sigmoid(logits) if function == "sigmoid" else list(logits)


def best(scores: Sequence[float], id2label: Mapping[str, str], top_k: int | None) -> list[Score]:
    """The labels with the highest scores, the highest first.

    Args:
        scores: of each label.
        id2label: of config.json; a label that is missing is "LABEL_i".
        top_k: how many; None: all.
    """
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [{"label": label_of(id2label, i), "score": scores[i]} for i in order[:top_k]]


def label_of(id2label: Mapping[str, object], index: int) -> str:
    """The name of a label."""
    return str(id2label.get(str(index), f"LABEL_{index}"))


def id2label_of(config: Mapping[str, Any]) -> Mapping[str, str]:
    """id2label of config.json; empty if there is none."""
    given: object = config.get("id2label")
    if not isinstance(given, dict):
        return {}
    return {str(i): str(label) for i, label in given.items()}


@dataclass(frozen=True)
class Labeling:
    """How logits become labels.

    Attributes:
        top_k: how many labels; None: all.
        function: one of FUNCTIONS.
    """

    top_k: int | None
    function: str


def labeling(options: Mapping[str, Any], top: int | None) -> Labeling:
    """The options `top_k` and `function_to_apply`.

    Args:
        options: of a call.
        top: default of top_k.

    Raises:
        InputError: one is not valid.
    """
    top_k = read_count(options, "top_k") if "top_k" in options else top
    return Labeling(top_k, read_choice(options, "function_to_apply", "default", FUNCTIONS))


def labeled(logits: Sequence[float], config: Mapping[str, Any], how: Labeling) -> list[Score]:
    """The labels of logits, the highest first.

    Args:
        logits: of each class.
        config: contents of config.json.
        how: they become labels.
    """
    return best(class_scores(logits, config, how.function), id2label_of(config), how.top_k)


def class_scores(logits: Sequence[float], config: Mapping[str, Any], function: str) -> list[float]:
    """Scores of logits. function: one of FUNCTIONS; "default": as config.json implies."""
    if function == "default":
        kind: object = config.get("problem_type")
        function = function_for(kind if isinstance(kind, str) else None, len(logits))
    return scores_of(logits, function)


def entailment_of(label2id: Mapping[str, int]) -> int:
    """The index of the label "entailment"; -1 if there is none."""
    for label, index in label2id.items():
        if label.lower().startswith("entail"):
            return int(index)
    return -1


def zero_shot(
    logits: Sequence[Sequence[float]], labels: Sequence[str], entailment: int, multi_label: bool
) -> tuple[list[str], list[float]]:
    """Scores of candidate labels from those of "the text entails the label".

    Args:
        logits: of each label's pair of texts: [labels, classes of the model].
        labels: the candidates.
        entailment: index of the class "entailment"; negative: from the end.
        multi_label: whether several labels may be true.

    Returns:
        (labels, scores), the highest first; of equal ones the later first, as in transformers
    """
    classes = len(logits[0])
    at = entailment + classes if entailment < 0 else entailment
    if multi_label or len(labels) == 1:
        other = classes - 1 if at == 0 else 0
        scores = [softmax([row[other], row[at]])[1] for row in logits]
    else:
        scores = softmax([row[at] for row in logits])
    order = sorted(range(len(labels)), key=lambda i: (scores[i], i), reverse=True)
    return [labels[i] for i in order], [scores[i] for i in order]


def fill_mask(
    logits: Sequence[float], top_k: int, targets: Sequence[int] | None = None
) -> list[tuple[int, float]]:
    """The likeliest tokens of a masked position.

    Args:
        logits: of the vocabulary.
        top_k: how many.
        targets: ids to choose from. Default: all.

    Returns:
        [(id, probability among all tokens)], the highest first
    """
    scores = softmax(logits)
    ids = range(len(scores)) if targets is None else targets
    order = sorted(ids, key=lambda i: -scores[i])[:top_k]
    return [(i, scores[i]) for i in order]


def check_top_k(top_k: object, all_allowed: bool = True) -> None:
    """Raises InputError unless top_k is a positive integer or, if allowed, None."""
    if top_k is None and all_allowed:
        return
    if type(top_k) is not int or top_k < 1:
        raise InputError(
            f"{top_k!r} is not a positive integer{' or None' if all_allowed else ''}", "top_k"
        )
