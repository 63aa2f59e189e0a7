"""Pairs that models with an encoder learn from: a recording and its words, a text and the text that
is made of it, pictures with a question and the answer. The target alone is learned; before it
stands what generation begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import written
from .chat import Example
from .records import Record

PairKind = Literal["speech", "text", "pictures"]
# The fields of a record: of the input, and of the target. The first one of each is TRL's, or that
# of data sets of transformers.
SOURCES: dict[str, list[str]] = {
    "speech": ["audio"],
    "text": ["source", "input"],
    "pictures": ["image", "images"],
}
TARGETS: dict[str, list[str]] = {
    "speech": ["text", "sentence"],
    "text": ["target", "output"],
    "pictures": ["answer", "completion"],
}
SHAPES: dict[str, str] = {
    "speech": '{"audio": ..., "text": "..."}',
    "text": '{"source": "...", "target": "..."}',
    "pictures": '{"image": ..., "prompt": "...", "answer": "..."}',
}
MIN_ROW = 2  # tokens of a row


@dataclass(frozen=True)
class Pair:
    """A pair.

    Attributes:
        source: a recording, a text, or pictures.
        prompt: the question; "" but for pictures.
        target: the text that is learned.
        where: for errors.
    """

    source: Any
    prompt: str
    target: str
    where: str


def pairs_of(records: Sequence[Any], kind: PairKind, where: str) -> list[Pair]:
    """Checks records, which become pairs.

    Args:
        records: objects with the fields of SHAPES.
        kind: which of them.
        where: name of the argument, for errors.

    Raises:
        InputError: there is none, or one has other fields or an empty text; the message says which.
    """
    if not records:
        raise InputError("there are no pairs", where, f"Give some, such as {SHAPES[kind]}.")
    return [_pair(records[i], kind, f"{where}, record {i + 1}") for i in range(len(records))]


def _pair(given: Any, kind: PairKind, where: str) -> Pair:
    if not isinstance(given, dict):
        raise InputError(f"{written(given)[:80]} is not a pair", where, f"Give {SHAPES[kind]}.")
    record: Record = given
    source = _field(record, SOURCES[kind], kind, where)
    target = _text(record, TARGETS[kind], kind, where)
    prompt = ""
    if kind == "text":
        source = _text(record, SOURCES[kind], kind, where)
    if kind == "pictures":
        prompt = _text(record, ["prompt"], kind, where)
    return Pair(source, prompt, target, where)


def _field(record: Record, names: list[str], kind: PairKind, where: str) -> Any:
    for name in names:
        if record.get(name) is not None:
            return record[name]
    raise InputError(f"it has no {names[0]}", where, f"Give {SHAPES[kind]}.")


def _text(record: Record, names: list[str], kind: PairKind, where: str) -> str:
    value: Any = _field(record, names, kind, where)
    if not isinstance(value, str):
        raise InputError(f"{names[0]} is {written(value)[:80]}", where, "Give a text.")
    if not value.strip():
        raise InputError(f"{names[0]} is empty", where, "Give a text, or leave the record out.")
    return value


def target_example(prefix: Sequence[int], target: Sequence[int], end: int | None) -> Example:
    """The tokens of a decoder's row: a prefix that generation begins with, and the target up to its
    end, which is learned.

    transformers writes it as labels, of which the decoder's input is made by a shift to the right;
    a row here has both, since the loss compares each place with the next token.

    Args:
        prefix: such as decoder_start_token_id, with Whisper's tokens of language and task.
        target: ids of the target.
        end: id of the token that ends a text, if the target has none; None: there is none.
    """
    ids = [*prefix, *target]
    if end is not None and (len(target) == 0 or target[-1] != end):
        ids.append(end)
    return Example(ids, [i >= len(prefix) for i in range(len(ids))], len(prefix))


def target_ids(ids: Sequence[int], forced: int | None, languages: Sequence[int]) -> list[int]:
    """The ids of a target text of a model for several languages: with the token of the target's
    language in place of that of the source, as transformers' tokenizers write targets.

    Args:
        ids: of the text, as the tokenizer writes sources.
        forced: id of the token of the target's language; None: there is none.
        languages: ids of all of them.
    """
    if forced is None:
        return list(ids)
    return [forced if i in languages else i for i in ids]


def row_length(examples: Sequence[Example], given: int | None, most: int) -> int:
    """The tokens of a row: as many as the longest example has, or as were given.

    Args:
        given: sequence_length, or None.
        most: tokens that the decoder takes.

    Raises:
        InputError: more are given than the decoder takes.
    """
    if given is not None:
        if given > most:
            raise InputError(
                f"{given} tokens are more than the model's {most}",
                "sequence_length",
                "Give a smaller one, or leave it out.",
            )
        return given
    longest = MIN_ROW
    for example in examples:
        longest = len(example.ids) if len(example.ids) > longest else longest
    return longest if longest < most else most


def check_window(samples: int, most: int, rate: int, where: str) -> None:
    """Raises InputError where a recording is empty, or longer than a window of the encoder.

    Args:
        samples: of the recording.
        most: of a window.
        rate: samples of a second.
    """
    if samples == 0:
        raise InputError("the recording has no samples", where, "Leave it out.")
    if samples > most:
        raise InputError(
            f"the recording has {samples / rate:.1f} s, a window of the model {most / rate:.0f} s",
            where,
            "Cut it into parts, each with its text.",
        )


__all__ = [
    "SHAPES",
    "Pair",
    "PairKind",
    "check_window",
    "pairs_of",
    "row_length",
    "target_example",
    "target_ids",
]
