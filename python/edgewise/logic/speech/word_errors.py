"""The word error rate of transcripts, as jiwer and the metric "wer" of evaluate define it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import InputError
from ..native import listed, written


def word_error_rate(references: str | Sequence[str], predictions: str | Sequence[str]) -> float:
    """Words that were replaced, left out or added, per word of the references.

    Words are what stands between white space; capitals and punctuation count. Where the references
    have no words, it is the number of words that were added.

    Args:
        references: texts as they were said, or one.
        predictions: a transcript of each, in the same order.

    Raises:
        InputError: there are not as many of both, or none.
    """
    meant = _texts(references, "references")
    made = _texts(predictions, "predictions")
    if len(meant) != len(made):
        raise InputError(
            f"there are {len(meant)} references and {len(made)} predictions",
            "predictions",
            "Give a transcript of each reference.",
        )
    if not meant:
        raise InputError("there are no texts", "references", "Give one or more.")
    words = errors = 0
    for i in range(len(meant)):
        said = _words(meant[i], f"references[{i}]")
        errors += _distance(said, _words(made[i], f"predictions[{i}]"))
        words += len(said)
    return errors / words if words else float(errors)


def _texts(given: str | Sequence[str], where: str) -> list[Any]:
    found: list[Any] | None = [given] if isinstance(given, str) else listed(given)
    if found is None:
        raise InputError(f"it is {written(given)[:80]}", where, "Give a text or a list of texts.")
    return found


def _words(text: object, where: str) -> list[str]:
    if not isinstance(text, str):
        raise InputError(f"{written(text)[:80]} is no text", where, "Give a text.")
    return text.split()


def _distance(said: list[str], heard: list[str]) -> int:
    """The least number of words to be replaced, left out or added (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for i in range(len(said)):
        before, row = row, [i + 1]
        for j in range(len(heard)):
            change = before[j] + (0 if said[i] == heard[j] else 1)
            row.append(min(change, before[j + 1] + 1, row[j] + 1))
    return row[len(heard)]


__all__ = ["word_error_rate"]
