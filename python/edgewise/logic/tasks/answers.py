"""visual-question-answering with a classifier of answers (ViLT). Mirrors
transformers/pipelines/visual_question_answering.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ...errors import InputError
from ..options import read_count
from ..post.classification import Labeling, labeled

TOP = 5
"""Answers that are given, unless the caller says how many."""


class ScoredAnswer(TypedDict):
    """An answer from the classes of a model."""

    score: float
    answer: str


def answering(options: Mapping[str, Any]) -> Labeling:
    """The option `top_k`. Raises InputError."""
    top = read_count(options, "top_k") if "top_k" in options else TOP
    return Labeling(TOP if top is None else top, "sigmoid")


def question_of(given: object, task: str) -> str:
    """The question of a call. Raises InputError: it is no text, or empty."""
    if not isinstance(given, str) or not given:
        raise InputError("the question is no text", task, "Give a text as the question.")
    return given


def scored_answers(
    logits: Sequence[float], config: Mapping[str, Any], how: Labeling
) -> list[ScoredAnswer]:
    """The answers, the likeliest first.

    Args:
        logits: of each class.
        config: contents of config.json.
        how: as of `answering`.
    """
    found: list[ScoredAnswer] = []
    for one in labeled(logits, config, how):
        found.append({"score": one["score"], "answer": one["label"]})
    return found
