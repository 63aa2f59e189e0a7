"""Pairs that models with an encoder learn from: a recording and its words, a text and the text that
is made of it, pictures with a question and the answer. targets.py has the tokens of the targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import frames, written
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


@dataclass(frozen=True)
class Pair:
    """A pair.

    Attributes:
        source: a recording, a text, or a list of pictures.
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
        several = frames(source)
        source = [source] if several is None else several
        if not source:
            raise InputError("it has no picture", where, f"Give {SHAPES[kind]}.")
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


__all__ = ["SHAPES", "Pair", "PairKind", "pairs_of"]
