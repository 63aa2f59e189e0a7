"""How good a personal pipeline is, on examples that it was not trained with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

from ..post.speakers import equal_error_rate


class Rate(TypedDict):
    """Where as many of a label's own examples are refused as of others are accepted, and the
    score at which that is.
    """

    rate: float
    threshold: float


class Measures(TypedDict):
    """How often a head is right on examples that it was not trained with.

    Attributes:
        accuracy: share of examples whose best label is right; None without examples.
        count: number of examples.
        confusion: {label: {best label: how many examples}}.
        equal_error_rates: as of a verification of one label, for labels with examples of it and of
            others.
    """

    accuracy: float | None
    count: int
    confusion: Mapping[str, Mapping[str, int]]
    equal_error_rates: Mapping[str, Rate]


def measured(
    labels: Sequence[str], truth: Sequence[str], scores: Sequence[Mapping[str, float]]
) -> Measures:
    """Measures of scores.

    Args:
        labels: that the head knows.
        truth: the label of each example.
        scores: {label: score} of each example.
    """
    confusion: dict[str, dict[str, int]] = {}
    right = 0
    for label, row in zip(truth, scores):
        guess = max(labels, key=lambda name: row[name])
        right += guess == label
        of = confusion.setdefault(label, {})
        of[guess] = of.get(guess, 0) + 1
    rates: dict[str, Rate] = {}
    for label in labels:
        same = [row[label] for t, row in zip(truth, scores) if t == label]
        others = [row[label] for t, row in zip(truth, scores) if t != label]
        if same and others:
            rate, threshold = equal_error_rate(same, others)
            rates[label] = {"rate": rate, "threshold": threshold}
    return {
        "accuracy": right / len(truth) if truth else None,
        "count": len(truth),
        "confusion": {label: dict(of) for label, of in confusion.items()},
        "equal_error_rates": dict(rates),
    }


def cross_entropy(truth: Sequence[str], scores: Sequence[Mapping[str, float]]) -> float:
    """The mean of -log(the score of the right label)."""
    losses = [-math.log(max(row[label], 1e-30)) for label, row in zip(truth, scores)]
    return math.fsum(losses) / len(losses)
