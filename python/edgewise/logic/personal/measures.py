"""How good a personal pipeline is, on examples that it was not trained with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..post.speakers import equal_error_rate


def measured(
    labels: Sequence[str], truth: Sequence[str], scores: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Measures of scores.

    Args:
        labels: that the head knows.
        truth: the label of each example.
        scores: {label: score} of each example.

    Returns:
        {"accuracy": share of examples whose best label is right, "count", "confusion": {label:
        {best label: count}}, "equal_error_rates": {label: {"rate", "threshold"}}}; the latter, as
        of a verification of one label, for labels with examples of it and of others
    """
    confusion: dict[str, dict[str, int]] = {}
    right = 0
    for label, row in zip(truth, scores):
        guess = max(labels, key=lambda name: row[name])
        right += guess == label
        of = confusion.setdefault(label, {})
        of[guess] = of.get(guess, 0) + 1
    rates = {}
    for label in labels:
        same = [row[label] for t, row in zip(truth, scores) if t == label]
        others = [row[label] for t, row in zip(truth, scores) if t != label]
        if same and others:
            rate, threshold = equal_error_rate(same, others)
            rates[label] = {"rate": rate, "threshold": threshold}
    return {
        "accuracy": right / len(truth) if truth else None,
        "count": len(truth),
        "confusion": confusion,
        "equal_error_rates": rates,
    }


def cross_entropy(truth: Sequence[str], scores: Sequence[Mapping[str, float]]) -> float:
    """The mean of -log(the score of the right label)."""
    losses = [-math.log(max(row[label], 1e-30)) for label, row in zip(truth, scores)]
    return math.fsum(losses) / len(losses)
