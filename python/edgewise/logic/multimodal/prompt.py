"""Prompts of language models that see or hear: texts that stand for pictures and sounds, and the
tokens whose embeddings are replaced by features.

A family of models (families/) has two rules. One says what stands for a picture in the prompt:
`Shown`. The other, where positions are of several dimensions, gives the positions of a prompt
(`Prepared.positions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...errors import InputError
from ..generation.chunks import Span


@dataclass
class Shown:
    """A picture, a sound or a video in a prompt.

    Attributes:
        text: stands for it.
        count: tokens of `text` whose embeddings are replaced: as many as it has features.
        grid: time, height and width of the features, where positions depend on them.
        step: positions from one time to the next.
    """

    text: str
    count: int
    grid: list[int] = field(default_factory=list)
    step: float = 1.0


@dataclass
class Prepared:
    """A prompt.

    Attributes:
        ids: its token ids.
        places: indices of the tokens whose embeddings are replaced, in order.
        positions: three rows, of time, height and width, with a position of each token. Tokens that
            follow have the largest one plus 1, 2, ... Empty: tokens are counted.
        reach: tokens that see each other, also those that come after them.
        together: tokens that one run takes.
    """

    ids: list[int]
    places: list[int]
    positions: list[list[int]] = field(default_factory=list)
    reach: list[Span] = field(default_factory=list)
    together: list[Span] = field(default_factory=list)


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


def check_room(prompt: Prepared, room: int, task: str) -> None:
    """Raises InputError for a prompt that is too long, before its pictures are encoded.

    Args:
        prompt: with the places of its features.
        room: most tokens of a sequence.
        task: its name, for the error.
    """
    if len(prompt.ids) > room:
        raise InputError(
            f"the prompt has {len(prompt.ids)} tokens, {len(prompt.places)} of them of pictures or"
            f" sounds, and a sequence has at most {room}",
            task,
            "Give fewer or smaller ones, or load the model with a larger capacity.",
        )


def check_rows(count: float, shown: Shown, task: str) -> None:
    """Raises InputError if an encoder gives other features than a prompt has tokens for.

    Args:
        count: of the features.
        shown: what they are of.
        task: its name, for the error.
    """
    if count != shown.count:
        raise InputError(
            f"its encoder gives {count} features of an input, and the prompt has {shown.count}"
            " tokens for them",
            task,
            "Do the model's encoder, preprocessor_config.json and processor_config.json belong"
            " together?",
        )


@dataclass
class Rows:
    """Features of consecutive tokens of a run.

    Attributes:
        at: index of the first token in the run.
        part: index of the picture, or so.
        first: the first feature of it.
        count: how many.
    """

    at: int
    part: int
    first: int
    count: int


def rows_of_run(places: Sequence[int], counts: Sequence[int], past: int, count: int) -> list[Rows]:
    """The features of a run of a decoder.

    Args:
        places: of the prompt (Prepared).
        counts: features of each picture, or so.
        past: tokens of the prompt before the run.
        count: tokens of the run.
    """
    found: list[Rows] = []
    part, first = 0, 0
    for place in places:
        while first == counts[part]:
            part, first = part + 1, 0
        at = place - past
        if 0 <= at < count:
            last = found[-1] if found else None
            if last is not None and last.part == part and last.at + last.count == at:
                last.count += 1
            else:
                found.append(Rows(at, part, first, 1))
        first += 1
    return found


def positions_of_run(positions: Sequence[Sequence[int]], past: int, count: int) -> list[list[int]]:
    """Positions of time, height and width of a run.

    Args:
        positions: of the prompt (Prepared); empty: tokens are counted.
        past: tokens before the run.
        count: tokens of the run.
    """
    if not positions:
        return [list(range(past, past + count)) for axis in range(3)]
    length = len(positions[0])
    after = max([max(row) for row in positions]) + 1 - length
    return [
        [row[i] if i < length else i + after for i in range(past, past + count)]
        for row in positions
    ]


Sees = Literal["pictures", "start", "prompt"]
"""Where tokens see others that come after them.

pictures: those of a picture see each other (Gemma 3), and the decoder's mask is made for any run.
start: as "pictures", but the decoder makes the mask itself of the types of tokens, for which it
    takes all up to the last picture in one run.
prompt: those of the prompt see each other (PaliGemma).
"""


def with_reach(prompt: Prepared, sees: Sees | None) -> Prepared:
    """A prompt with the tokens that see each other. sees: of the decoder; None: there are none."""
    reach: list[Span] = []
    if sees == "prompt":
        reach = [Span(0, len(prompt.ids))]
    elif sees is not None:
        for place in prompt.places:
            if reach and reach[-1].end == place:
                reach[-1] = Span(reach[-1].start, place + 1)
            else:
                reach.append(Span(place, place + 1))
    together = [Span(0, reach[-1].end)] if reach and sees == "start" else reach
    return Prepared(prompt.ids, prompt.places, prompt.positions, reach, together)


def reach_of_run(reach: Sequence[Span], past: int, count: int) -> list[int]:
    """How many tokens of the sequence each token of a run sees; 0: itself and those before it.

    Args:
        reach: of the prompt (Prepared).
        past: tokens of the prompt before the run.
        count: tokens of the run.
    """
    seen = [0] * count
    for one in reach:
        for i in range(max(one.start, past), min(one.end, past + count)):
            seen[i - past] = one.end
    return seen
