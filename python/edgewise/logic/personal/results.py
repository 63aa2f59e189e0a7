"""Calls and evaluations of personal pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ...errors import InputError
from ..native import given, written
from ..post.classification import Score, best, check_top_k, scores_of, softmax
from .examples import OTHER
from .options import other_examples

VOICES = "speaker-verification"
FUNCTIONS = ("default", "softmax", "sigmoid", "none")


class Accepted(TypedDict):
    """A voice: whether its score is at least the threshold."""

    label: str
    score: float
    accepted: bool


@dataclass(frozen=True)
class CallOptions:
    """Options of a call.

    Attributes:
        threshold: of voices: they are accepted from this probability on.
        name: of voices: this one only; None: all.
        top_k: how many labels; None: all.
        function: that makes scores of logits.
    """

    threshold: float
    name: str | None
    top_k: int | None
    function: str


def call_options(
    options: Mapping[str, Any], task: str, method: str, where: str = ""
) -> CallOptions:
    """The options of a call, checked.

    Args:
        options: {name: value}.
        task: of the personal pipeline.
        method: of the head in use.
        where: prefix of the names of options, for errors.

    Raises:
        InputError: one is not valid.
    """
    values: dict[str, Any] = {
        "threshold": 0.5,
        "name": None,
        "top_k": 1 if task == "text-classification" else 5,
        "function_to_apply": "default",
    }
    for name, value in given(options):
        values[name] = value
    threshold = values["threshold"]
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not number or not 0 <= threshold <= 1:
        raise InputError(
            f"{written(threshold)} is not a probability", where + "threshold", "Give 0 to 1."
        )
    name = values["name"]
    if name is not None and not isinstance(name, str):
        raise InputError(f"{written(name)} is not a name", where + "name", "Give a text.")
    check_top_k(values["top_k"])
    function = values["function_to_apply"]
    if function is None:
        function = "default"
    if function not in FUNCTIONS:
        raise InputError(
            f"there is no function {written(function)}",
            where + "function_to_apply",
            f"There are: {', '.join(FUNCTIONS)}.",
        )
    if function != "default" and method == "knn":
        raise InputError(
            'the method "knn" has no logits', where + "function_to_apply", "Leave it out."
        )
    applied = "softmax" if function == "default" else function
    return CallOptions(float(threshold), name, values["top_k"], applied)


def check_known(labels: Sequence[str], trained: bool, method: str) -> None:
    """Raises InputError if a head has too few labels to classify."""
    if not trained and method == "logistic":
        known = f"{labels[0]!r} alone" if labels else "no label"
        raise InputError(f"it knows {known}", "personalize", other_examples())


def results(
    options: CallOptions, task: str, labels: Sequence[str], values: Sequence[float], trained: bool
) -> Sequence[Score | Accepted]:
    """The labels of an input, the highest score first.

    Args:
        options: of the call.
        task: of the personal pipeline.
        labels: of the head.
        values: the logits of a trained head, else shares of the nearest examples.
        trained: which of these.

    Raises:
        InputError: there is no voice of the name.
    """
    names: Mapping[str, str] = {str(i): label for i, label in enumerate(labels)}
    if task != VOICES:
        scores = scores_of(values, options.function) if trained else list(values)
        return best(scores, names, options.top_k)
    name = options.name
    if name is not None and name not in labels:
        raise InputError(f"there is no voice {name!r}", task, f"There are: {', '.join(labels)}.")
    found: list[Score | Accepted] = []
    for one in best(softmax(values) if trained else list(values), names, None):
        if one["label"] == name or name is None and one["label"] != OTHER:
            accepted = one["score"] >= options.threshold
            found.append({"label": one["label"], "score": one["score"], "accepted": accepted})
    return found


def label_of(label: str, labels: Sequence[str]) -> str:
    """The label of an example of an evaluation: one that the head does not know stands for OTHER
    where it knows that, else none of its answers is right.
    """
    return label if label in labels or OTHER not in labels else OTHER


def by_label(labels: Sequence[str], values: Sequence[float], trained: bool) -> Mapping[str, float]:
    """The score of each label.

    Args:
        labels, values, trained: as of `results`.
    """
    scores = softmax(values) if trained else list(values)
    return {label: scores[i] for i, label in enumerate(labels)}
