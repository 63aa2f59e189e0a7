"""Prompts of language models that see or hear: texts that stand for pictures and sounds, and the
tokens whose embeddings are replaced by features.

A family of models (families/) has two rules. One says what stands for a picture in the prompt:
`Shown`. The other, where positions are of several dimensions, gives the positions of a prompt
(`Prepared.positions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import InputError


@dataclass
class Shown:
    """A picture, a sound or a video in a prompt.

    Attributes:
        text: stands for it.
        count: tokens of `text` whose embeddings are replaced: as many as it has features.
        grid: time, height and width of the features, where positions depend on them.
    """

    text: str
    count: int
    grid: list[int] = field(default_factory=list)


@dataclass
class Prepared:
    """A prompt.

    Attributes:
        ids: its token ids.
        places: indices of the tokens whose embeddings are replaced, in order.
        positions: three rows, of time, height and width, with a position of each token. Tokens that
            follow have the largest one plus 1, 2, ... Empty: tokens are counted.
    """

    ids: list[int]
    places: list[int]
    positions: list[list[int]] = field(default_factory=list)


def with_texts(text: str, placeholder: str, texts: Sequence[str], task: str, kind: str) -> str:
    """A text with other texts in place of placeholders.

    Args:
        text: of a chat template, or the caller's.
        placeholder: stands for a picture.
        texts: of the pictures.
        task, kind: its name, and "picture" or so, for errors.

    Raises:
        InputError: there are not as many placeholders.
    """
    parts = text.split(placeholder)
    if len(parts) - 1 != len(texts):
        raise InputError(
            f"the text has {len(parts) - 1} placeholders '{placeholder}', and {len(texts)}"
            f" {kind}s are given",
            task,
            f"Put one '{placeholder}' into the text for each {kind}, or give messages with their"
            " parts.",
        )
    out = [parts[0]]
    for i, one in enumerate(texts):
        out.append(one)
        out.append(parts[i + 1])
    return "".join(out)


def placed(ids: list[int], tokens: Sequence[int], shown: Sequence[Shown], task: str) -> Prepared:
    """A prompt with the places of its features.

    Args:
        ids: token ids.
        tokens: ids of tokens whose embeddings are replaced.
        shown: the pictures, or so.
        task: its name, for errors.

    Raises:
        InputError: there are not as many such tokens as features.
    """
    places = [i for i, token in enumerate(ids) if token in tokens]
    count = sum([one.count for one in shown])
    if len(places) != count:
        raise InputError(
            f"the prompt has {len(places)} tokens of pictures or sounds, which have {count}"
            " features",
            task,
            "Do the model's tokenizer and its processor belong together? A text must not have these"
            " tokens itself.",
        )
    return Prepared(ids, places)
