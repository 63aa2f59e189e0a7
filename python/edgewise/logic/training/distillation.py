"""What a teacher says of the tokens of records: of each token that is learned, its most probable
ones with their log-probabilities, as servers give them (top_logprobs, prompt_logprobs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import written
from .chat import Example
from .records import Record, are_records

FIELD = "teacher"
SHAPE = "[[id, log_probability], ...] for each token that is learned"
ABSENT = -1  # id of an entry that is not there
LOWEST = -1e30  # its log-probability
HIGHEST = 1e30  # of logits, which are taken as well: finite in float32


@dataclass(frozen=True)
class Told:
    """What a teacher says of a row, at the positions before the tokens: [sequence * top_k]."""

    ids: list[int]
    log_probs: list[float]


def taught(given: Any, where: str) -> list[Record]:
    """Records that were given, in a list.

    Raises:
        InputError: they are none.
    """
    if isinstance(given, list):
        records: list[Any] = given
        if are_records(records, where):
            return records
    raise InputError(
        "they are no records with a teacher's part",
        where,
        "Give some, such as { prompt, completion, teacher }.",
    )


def told(
    record: Record, example: Example, sequence: int, top_k: int, vocabulary: int, where: str
) -> Told:
    """Reads the teacher's part of a record.

    Args:
        record: with the field "teacher": a list for each token of its example that is learned, in
            their order; the last one, the end token, may be missing.
        example: its tokens.
        sequence: tokens of a row.
        top_k: entries that are taken of each list; shorter ones are filled up.
        vocabulary: ids of the model.
        where: for errors.

    Raises:
        InputError: there is no teacher's part, or it is another one.
    """
    given: Any = record.get(FIELD)
    if not isinstance(given, list):
        raise InputError(f"{FIELD} is {written(given)[:80]}", where, f"Give {SHAPE}.")
    lists: list[Any] = given
    places = [at for at in range(1, len(example.ids)) if example.counts[at]]
    if len(lists) != len(places) and len(lists) != len(places) - 1:
        raise InputError(
            f"{FIELD} has {len(lists)} lists for {len(places)} tokens that are learned",
            where,
            f"Give {SHAPE}, with the tokenizer of this model.",
        )
    made = Told([ABSENT] * (sequence * top_k), [LOWEST] * (sequence * top_k))
    for i in range(len(lists)):
        at = places[i] - 1
        if at < sequence:
            _put(made, at * top_k, lists[i], top_k, vocabulary, f"{where}, {FIELD} {i + 1}")
    return made


def _put(made: Told, first: int, given: Any, top_k: int, vocabulary: int, where: str) -> None:
    if not isinstance(given, list):
        raise InputError(f"it is {written(given)[:80]}", where, f"Give {SHAPE}.")
    entries: list[Any] = given
    for k in range(min(len(entries), top_k)):
        token, score = _entry(entries[k], where)
        if not 0 <= token < vocabulary:
            raise InputError(
                f"token id {token} is outside the vocabulary of {vocabulary}",
                where,
                "Take a teacher with the tokenizer of this model.",
            )
        if not score <= HIGHEST:  # NaN, too
            raise InputError(
                f"a log-probability is {written(score)[:80]}", where, f"Give {SHAPE}, as numbers."
            )
        made.ids[first + k] = token
        made.log_probs[first + k] = max(score, LOWEST)


def _entry(given: Any, where: str) -> tuple[int, float]:
    if isinstance(given, list):
        pair: list[Any] = given
        if len(pair) == 2:
            token: Any = pair[0]
            score: Any = pair[1]
            if type(token) is int and isinstance(score, (int, float)):
                if not isinstance(score, bool):
                    return token, score
    raise InputError(f"it has {written(given)[:80]}", where, f"Give {SHAPE}.")


def of_batch(rows: Sequence[Told], size: int) -> Told:
    """What a batch of `size` rows feeds. rows: at least one; the rest has nothing."""
    ids: list[int] = []
    log_probs: list[float] = []
    for row in rows:
        ids.extend(row.ids)
        log_probs.extend(row.log_probs)
    missing = size * len(rows[0].ids) - len(ids)
    return Told(ids + [ABSENT] * missing, log_probs + [LOWEST] * missing)


__all__ = ["FIELD", "Told", "of_batch", "taught", "told"]
