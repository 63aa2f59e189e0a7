"""Entities from the scores of tokens. Mirrors transformers' TokenClassificationPipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Required, TypedDict

from ...errors import InputError
from ..native import part, size
from .classification import label_of

Strategy = Literal["none", "simple", "first", "average", "max"]
AGGREGATIONS: tuple[Strategy, ...] = ("none", "simple", "first", "average", "max")
"""How tokens become entities."""

Join = Callable[[list[str]], str]


class Entity(TypedDict, total=False):
    """An entity, which has `entity_group`, or a token or word, which has `entity`; a token has
    `index`.
    """

    entity: str
    entity_group: str
    score: Required[float]
    index: int
    word: Required[str]
    start: Required[int]
    end: Required[int]


@dataclass
class Scored:
    """A token with the probabilities of its labels.

    Attributes:
        word: the token, or the text if the token is unknown.
        scores: probability of each label.
        start, end: characters of the text.
        index: of the token in its encoding.
        is_subword: whether it continues the word of the token before.
    """

    word: str
    scores: Sequence[float]
    start: int
    end: int
    index: int
    is_subword: bool


def is_subword(text: str, token: str, start: int, end: int, has_prefix: bool) -> bool:
    """Whether a token continues a word.

    Args:
        text: the sentence.
        token: as in the vocabulary.
        start, end: its characters in the text, as of the host.
        has_prefix: whether the tokenizer marks such tokens ("##"); else white space decides.
    """
    if has_prefix:
        return size(token) != end - start
    return start > 0 and " " not in part(text, start - 1, start + 1)


def entities_of(
    tokens: Sequence[Scored],
    id2label: Mapping[str, str],
    strategy: str,
    ignore_labels: Sequence[str],
    join: Join,
) -> list[Entity]:
    """The entities of an encoding.

    Args:
        tokens: without special tokens.
        id2label: of config.json.
        strategy: one of AGGREGATIONS: how tokens become entities.
        ignore_labels: labels that are left out.
        join: makes text of tokens.

    Returns:
        strategy "none": [{"entity", "score", "index", "word", "start", "end"}]; else
        [{"entity_group", "score", "word", "start", "end"}]

    Raises:
        InputError: a token has no scores.
    """
    if any(not len(t.scores) for t in tokens):
        raise InputError("the model has no labels", "token-classification")
    if strategy in ("none", "simple"):
        entities = [_entity(t, id2label) for t in tokens]
    else:
        entities = [_word(w, id2label, strategy, join) for w in _words(tokens)]
    if strategy != "none":
        entities = _grouped(entities, join)
    return [
        e
        for e in entities
        if e.get("entity", "") not in ignore_labels
        and e.get("entity_group", "") not in ignore_labels
    ]


def without_overlaps(entities: Sequence[Entity]) -> list[Entity]:
    """Of entities that overlap the longer, of equally long ones that with the higher score."""
    kept: list[Entity] = []
    for entity in sorted(entities, key=lambda e: e["start"]):
        last = kept[-1] if kept else None
        if last is None or not last["start"] <= entity["start"] < last["end"]:
            kept.append(entity)
            continue
        length, before = entity["end"] - entity["start"], last["end"] - last["start"]
        if length > before or (length == before and entity["score"] > last["score"]):
            kept[-1] = entity
    return kept


def _argmax(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=lambda i: scores[i])


def _entity(token: Scored, id2label: Mapping[str, str]) -> Entity:
    at = _argmax(token.scores)
    return {
        "entity": label_of(id2label, at),
        "score": token.scores[at],
        "index": token.index,
        "word": token.word,
        "start": token.start,
        "end": token.end,
    }


def _words(tokens: Sequence[Scored]) -> list[list[Scored]]:
    words: list[list[Scored]] = []
    for token in tokens:
        if words and token.is_subword:
            words[-1].append(token)
        else:
            words.append([token])
    return words


def _word(word: list[Scored], id2label: Mapping[str, str], strategy: str, join: Join) -> Entity:
    """The entity of the tokens of a word."""
    scores = word[0].scores
    if strategy == "max":
        scores = max(word, key=lambda t: max(t.scores)).scores
    elif strategy == "average":
        scores = [sum(column) / len(word) for column in zip(*(t.scores for t in word))]
    at = _argmax(scores)
    return {
        "entity": label_of(id2label, at),
        "score": scores[at],
        "word": join([t.word for t in word]),
        "start": word[0].start,
        "end": word[-1].end,
    }


def _tag(label: str) -> tuple[bool, str]:
    """(whether an entity begins, its type)"""
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label


def _type_of(label: str) -> str:
    return label.split("-", 1)[-1]


def _grouped(entities: Sequence[Entity], join: Join) -> list[Entity]:
    """Neighbors of one type become one entity, unless the second begins another."""
    groups: list[list[Entity]] = []
    for entity in entities:
        begins, tag = _tag(entity["entity"])
        if groups and not begins and tag == _tag(groups[-1][-1]["entity"])[1]:
            groups[-1].append(entity)
        else:
            groups.append([entity])
    return [
        {
            "entity_group": _type_of(group[0]["entity"]),
            "score": sum(e["score"] for e in group) / len(group),
            "word": join([e["word"] for e in group]),
            "start": group[0]["start"],
            "end": group[-1]["end"],
        }
        for group in groups
    ]
