"""Cosine scores of voices, and error rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ...errors import InputError
from ..native import next_up
from ..options import read_text, read_within

OPTIONS: dict[str, Any] = {"threshold": 0.75, "name": None}
# Outputs of models that are vectors of voices, the first one that there is.
OUTPUTS = ("embeddings", "embedding", "embeds", "last_hidden_state", "logits")


class Match(TypedDict):
    """How near a voice is to an enrolled one."""

    label: str
    score: float
    accepted: bool


def unit(vector: Sequence[float]) -> list[float]:
    """A vector of length 1; zeros stay zeros."""
    length = math.sqrt(math.fsum(x * x for x in vector))
    return [x / length for x in vector] if length else list(vector)


def mean_voice(voices: Sequence[Sequence[float]]) -> list[float]:
    """The mean of unit vectors, as a unit vector."""
    rows = [unit(v) for v in voices]
    return unit([math.fsum(column) / len(rows) for column in zip(*rows, strict=True)])


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of two vectors."""
    return math.fsum(x * y for x, y in zip(unit(a), unit(b), strict=True))


def equal_error_rate(same: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The equal error rate of scores.

    Args:
        same: scores of a speaker's own recordings.
        other: scores of others' recordings.

    Returns:
        (rate, threshold): where as many of `same` are below the threshold as of `other` are at or
        above it, or the mean of both rates where they differ least; the lowest such threshold

    Raises:
        InputError: one of the lists is empty.
    """
    if not same or not other:
        raise InputError("there are no scores", "equal_error_rate", "Give scores of both kinds.")
    best = (2.0, 0.0, 0.0)
    for threshold in sorted({*same, *other, next_up(max(*same, *other))}):
        refused = sum(s < threshold for s in same) / len(same)
        accepted = sum(s >= threshold for s in other) / len(other)
        best = min(best, (abs(refused - accepted), (refused + accepted) / 2, threshold))
    return best[1], best[2]


def threshold_of(options: Mapping[str, Any]) -> float:
    """The cosine from which on a voice is accepted. Raises InputError."""
    otherwise: float = OPTIONS["threshold"]
    return read_within(options, "threshold", otherwise, -1, 1)


def enrolled(
    voices: Mapping[str, Sequence[float]], options: Mapping[str, Any]
) -> list[tuple[str, Sequence[float]]]:
    """The voices to compare with.

    Args:
        voices: the enrolled ones.
        options: of the call.

    Raises:
        InputError: there is none.
    """
    name = read_text(options, "name")
    found = [(label, voice) for label, voice in voices.items() if name is None or label == name]
    if not found:
        raise InputError(
            "no voice is enrolled" if name is None else f"the voice {name!r} is not enrolled",
            "speaker-verification",
            "Call enrol first.",
        )
    return found


def matches(
    heard: Sequence[float], voices: Sequence[tuple[str, Sequence[float]]], threshold: float
) -> list[Match]:
    """The result of a call: enrolled voices, the nearest first."""
    found: list[Match] = []
    for label, voice in voices:
        score = cosine(heard, voice)
        found.append({"label": label, "score": score, "accepted": score >= threshold})
    return sorted(found, key=lambda match: -match["score"])
