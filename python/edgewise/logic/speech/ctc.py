"""Text and times of CTC models, from the token of each frame. Mirrors transformers'
Wav2Vec2CTCTokenizer.decode, and its pipeline's chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .chunks import Chunk

# Spaces before punctuation that clean_up_tokenization of transformers removes.
CLEANED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a CTC model, as packages describe them.

    Attributes:
        tokens: by id; None where there is none.
        blank: the token between two equal ones.
        unknown: the token of other ids.
        delimiter: the token that becomes `space`.
        lower: whether text is in lower case.
        clean_up: whether spaces before punctuation are removed.
    """

    tokens: Sequence[str | None]
    blank: str
    unknown: str
    delimiter: str
    space: str
    lower: bool
    clean_up: bool


class Span(NamedTuple):
    """A character or word, and the frames from `start` to `end` (exclusive) that it was read in."""

    text: str
    start: int
    end: int


def characters_of(vocabulary: Vocabulary, ids: Sequence[int]) -> list[Span]:
    """The characters that the tokens of frames are: repeated ones are one, blanks are left out."""
    found: list[Span] = []
    last: str | None = None
    for i, token_id in enumerate(ids):
        known = vocabulary.tokens[token_id] if 0 <= token_id < len(vocabulary.tokens) else None
        token = vocabulary.unknown if known is None else known
        if token != vocabulary.blank:
            if token == last:
                before = found[-1]
                found[-1] = Span(before.text, before.start, i + 1)
            else:
                text = vocabulary.space if token == vocabulary.delimiter else token
                found.append(Span(text, i, i + 1))
        last = token
    return found


def words_of(vocabulary: Vocabulary, characters: Sequence[Span]) -> list[Span]:
    """The words that characters form."""
    words: list[Span] = []
    inside = False
    for one in characters:
        if one.text == vocabulary.space:
            inside = False
        elif inside:
            word = words[-1]
            words[-1] = Span(word.text + one.text, word.start, one.end)
        else:
            words.append(one)
            inside = True
    return words


def text_of(vocabulary: Vocabulary, characters: Sequence[Span]) -> str:
    """The text of characters, without spaces at its ends."""
    text = "".join(one.text for one in characters).strip()
    if vocabulary.lower:
        text = text.lower()
    if vocabulary.clean_up:
        text = cleaned(text)
    return text


def cleaned(text: str) -> str:
    """A text without spaces before punctuation."""
    for part in CLEANED:
        text = text.replace(part, part.strip())
    return text


def frames_in(windows: Sequence[Sequence[int]], count: int) -> int:
    """Frames that convolutions make of so many samples. windows: [size, step] of each."""
    for window in windows:
        count = (count - window[0]) // window[1] + 1
    return max(count, 0)


def frames_of(chunk: Chunk, samples: int) -> tuple[int, int]:
    """The frames [first, end) of a chunk without those of its overlaps. samples: of a frame."""
    frames = round(chunk.length / samples)
    first = round(chunk.left / chunk.length * frames)
    return first, frames - round(chunk.right / chunk.length * frames)
