"""Tokens that are pieces of words, as of SentencePiece, with the frames in which they were heard:
text, words and sentences of them, and their times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import InputError
from ..native import option, utf8, written

SPACE = "▁"  # begins a piece that begins a word
MARKS = ("?", "'", "¡", "¿", "-", ":", ",", "%", "/", ".", "!")  # of which NeMo moves the times
ENDS = (".", "?", "!")  # of sentences: NeMo's segment separators
DIGITS = "0123456789ABCDEF"


@dataclass(frozen=True)
class Pieces:
    """The tokens of a model.

    Attributes:
        tokens: by id. A byte is "<0x0A>".
        blank: id of the token that is none.
        hidden: ids of tokens that are no text.
    """

    tokens: Sequence[str]
    blank: int
    hidden: Sequence[int]


class Heard(NamedTuple):
    """A token, and the frames from `start` to `end` (exclusive) that it was heard in."""

    token: int
    start: int
    end: int


class Timed(NamedTuple):
    """A text, and its frames."""

    text: str
    start: int
    end: int


def text_of(pieces: Pieces, ids: Sequence[int]) -> str:
    """The text of tokens, without spaces at its ends."""
    shown = [pieces.tokens[i] for i in ids if i not in pieces.hidden and i < len(pieces.tokens)]
    return _joined(shown).strip()


def _joined(tokens: Sequence[str]) -> str:
    """The text of tokens, as SentencePiece decodes them."""
    parts: list[str] = []
    waiting: list[int] = []  # bytes that are not decoded yet
    for token in tokens:
        byte = _byte_of(token)
        if byte >= 0:
            waiting.append(byte)
            continue
        if waiting:
            parts.append(utf8(waiting))
            waiting = []
        parts.append(token.replace(SPACE, " "))
    if waiting:
        parts.append(utf8(waiting))
    return "".join(parts)


def _byte_of(token: str) -> int:
    """The byte that a token such as "<0x0A>" is; -1: it is none."""
    if len(token) != 6 or token[:3] != "<0x" or token[5] != ">":
        return -1
    high, low = DIGITS.find(token[3].upper()), DIGITS.find(token[4].upper())
    return -1 if high < 0 or low < 0 else 16 * high + low


def tokens_of(pieces: Pieces, frames: Sequence[int], first: int = 0) -> list[Heard]:
    """The tokens that those of frames are, as of CTC: repeated ones are one, blanks are left out.

    Args:
        frames: the token of each frame.
        first: number of the first frame.
    """
    found: list[Heard] = []
    last = pieces.blank
    for i, token in enumerate(frames):
        if token != pieces.blank:
            if token == last:
                before = found[-1]
                found[-1] = Heard(token, before.start, first + i + 1)
            else:
                found.append(Heard(token, first + i, first + i + 1))
        last = token
    return found


def times_of(options: Mapping[str, Any]) -> str:
    """The option return_timestamps: "segment", "word", "char" (of tokens) or "" for none."""
    value: object = options.get("return_timestamps")
    if value is None or value is False:
        return ""
    if value is True:
        return "segment"
    if value != "char" and value != "word":
        raise InputError(
            f"there are no times of kind {written(value)}",
            option("return_timestamps"),
            f'Give {written(False)}, {written(True)}, "char" or "word".',
        )
    return str(value)


def timed_tokens(pieces: Pieces, heard: Sequence[Heard], marked: bool) -> list[Timed]:
    """Tokens with their texts. Bytes of one character are one token.

    Args:
        marked: whether a mark of punctuation is at the end of what is before it, as NeMo has it for
            models with durations.
    """
    found: list[Timed] = []
    waiting: list[Heard] = []
    for one in heard:
        if one.token in pieces.hidden or one.token >= len(pieces.tokens):
            continue
        token = pieces.tokens[one.token]
        if _byte_of(token) >= 0:
            waiting.append(one)
            continue
        _add_bytes(pieces, waiting, found)
        waiting = []
        text = token.replace(SPACE, " ")
        if marked and found and text in MARKS:
            end = found[-1].end
            found.append(Timed(text, end, end))
        else:
            found.append(Timed(text, one.start, one.end))
    _add_bytes(pieces, waiting, found)
    return found


def _add_bytes(pieces: Pieces, waiting: Sequence[Heard], found: list[Timed]) -> None:
    if waiting:
        text = _joined([pieces.tokens[one.token] for one in waiting])
        found.append(Timed(text, waiting[0].start, waiting[-1].end))


def words_of(tokens: Sequence[Timed]) -> list[Timed]:
    """The words that tokens form; one begins where a token has a space."""
    words: list[Timed] = []
    fresh = True
    for one in tokens:
        text = one.text.strip()
        if one.text[:1] == " ":
            fresh = True
        if not text:
            continue
        if fresh:
            words.append(Timed(text, one.start, one.end))
        else:
            before = words[-1]
            words[-1] = Timed(before.text + text, before.start, one.end)
        fresh = False
    return words


def segments_of(words: Sequence[Timed]) -> list[Timed]:
    """The sentences that words form."""
    found: list[Timed] = []
    fresh = True
    for word in words:
        if fresh:
            found.append(word)
        else:
            before = found[-1]
            found[-1] = Timed(f"{before.text} {word.text}", before.start, word.end)
        fresh = word.text[-1:] in ENDS
    return found


def transcript(
    pieces: Pieces, heard: Sequence[Heard], times: str, seconds: float, marked: bool = False
) -> dict[str, Any]:
    """The result for a recording: {"text"}, and with times {"chunks": [{"text", "timestamp"}]}.

    Args:
        heard: tokens.
        times: of `times_of`.
        seconds: of a frame.
        marked: see `timed_tokens`.
    """
    text = text_of(pieces, [one.token for one in heard])
    if not times:
        return {"text": text}
    parts = timed_tokens(pieces, heard, marked)
    if times != "char":
        parts = words_of(parts)
    if times == "segment":
        parts = segments_of(parts)
    chunks: list[dict[str, Any]] = [
        {"text": one.text, "timestamp": (one.start * seconds, one.end * seconds)} for one in parts
    ]
    return {"text": text, "chunks": chunks}
