"""The text of one or several windows of a recording, with its chunks. Mirrors `_decode_asr` of
transformers' tokenization_whisper.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .words import Decode, words_of

Span = tuple[float, float]


@dataclass
class Window:
    """The tokens of a window.

    Attributes:
        tokens: of text and times.
        token_times: when each was spoken, in seconds from the window's start; None: not known.
        stride: (length, left overlap, right overlap) in seconds; None: the window stands alone.
        language: name; None: not known.
    """

    tokens: list[int]
    token_times: list[float] | None = None
    stride: tuple[float, float, float] | None = None
    language: str | None = None


@dataclass
class Joiner:
    """Joins the windows of a recording.

    Attributes:
        decode: from ids of text to text.
        eos: id of the first special token.
        begin: id of the token of 0.00 s; ids from it on are times.
        words: whether chunks are words.
        precision: seconds between two tokens of times.
        segment_size: positions of a window.
        chunks: the complete ones.
    """

    decode: Decode
    eos: int
    begin: int
    words: bool = False
    times: bool = False
    precision: float = 0.02
    segment_size: int = 1500
    chunks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._language: str | None = None
        self._chunk = self._new_chunk()
        self._offset, self._skip = 0.0, False
        self._texts: list[list[int]] = []  # of windows that overlap
        self._spans: list[list[Span]] = []

    def add(self, window: Window) -> None:
        """Adds the next window."""
        self._change_language(window.language)
        last, first, right = self._overlap(window)
        self._tokens: list[int] = []
        self._token_spans: list[Span] = []
        highest = before = lead = 0.0
        tokens = window.tokens
        for i, token in enumerate(tokens):
            if token < self.begin:
                if token < self.eos:
                    self._add_text(window, i, token)
                continue
            time = float((token - self.begin) * self.precision)
            if time < highest:  # the next segment of a long recording
                single = i >= 2 and not (
                    tokens[i - 1] >= self.begin and tokens[i - 2] >= self.begin
                )
                if single:
                    lead += self.precision * self.segment_size
                else:
                    highest = before
                    lead += before
            before, highest = highest, time
            at = round((token - self.begin) * self.precision + self._offset + lead, 2)
            self._add_time(token, at, last, first)
        if window.stride is not None:
            self._offset += window.stride[0] - window.stride[2]
        if self._tokens:
            self._texts.append(self._tokens)
            if self.words:
                self._spans.append(self._token_spans)
        elif not any(self._texts):
            self._chunk = self._new_chunk()
            self._texts, self._spans = [], []

    def end(self) -> tuple[str, list[dict[str, Any]]]:
        """(text, chunks: [{text, timestamp: [start, end], language}]; of words with `words`)"""
        if self._texts:
            self._finish()
        text = "".join(chunk["text"] for chunk in self.chunks)
        if self.words:
            return text, [word for chunk in self.chunks for word in chunk["words"]]
        return text, self.chunks

    def _new_chunk(self) -> dict[str, Any]:
        return {"language": self._language, "timestamp": [None, None], "text": ""}

    def _change_language(self, language: str | None) -> None:
        if language is None:
            return
        if self._language and language != self._language and not self.times and self._texts:
            self._finish()
            self._chunk = self._new_chunk()
        self._language = self._chunk["language"] = language

    def _overlap(self, window: Window) -> tuple[int | None, float, float]:
        """(first time token that lies in the right overlap, end of the left one, start of the right
        one)
        """
        last, first = None, float(self.begin)
        if window.stride is None:
            return last, first, 0.0
        length, left, right = window.stride
        self._offset -= left
        start = length - right
        if left:
            first = left / self.precision + self.begin
        if right:
            for token in reversed(window.tokens):
                if token >= self.begin:
                    # The last one is always skipped.
                    if last is not None and (token - self.begin) * self.precision < start:
                        break
                    last = token
        return last, first, start

    def _add_text(self, window: Window, i: int, token: int) -> None:
        self._tokens.append(token)
        if self.words and window.token_times is not None:
            start = window.token_times[i - 1] if i else 0.0
            end = window.token_times[i]
            self._token_spans.append((round(start + self._offset, 2), round(end + self._offset, 2)))

    def _add_time(self, token: int, at: float, last: int | None, first: float) -> None:
        start = self._chunk["timestamp"]
        if last and token >= last:
            self._skip = True  # in the overlap: the next window decides, its pair included
        elif self._skip or (self._texts and token < first):
            self._skip = False
        elif start[0] is None:
            start[0] = at
        elif at != start[0]:  # a repeated start is no end
            start[1] = at
            self._texts.append(self._tokens)
            if self.words:
                self._spans.append(self._token_spans)
            self._finish()
            self._tokens, self._token_spans = [], []
            self._chunk = self._new_chunk()

    def _finish(self) -> None:
        """Completes the current chunk."""
        tokens, spans = merge_sequences(self._texts, self._spans)
        self._chunk["text"] = self.decode(tokens)
        if self.words:
            words, indices = words_of(tokens, self.decode, self.eos, self._language)
            chunks: list[dict[str, Any]] = [
                {
                    "text": word,
                    "timestamp": [spans[at[0]][0], spans[at[-1]][1]],
                    "language": self._language,
                }
                for word, at in zip(words, indices)
            ]
            self._chunk["words"] = chunks
        self.chunks.append(self._chunk)
        self._texts, self._spans = [], []


def merge_sequences(
    sequences: Sequence[list[int]], spans: Sequence[list[Span]] = ()
) -> tuple[list[int], list[Span]]:
    """Joins sequences, the end of each of which is about the beginning of the next.

    Args:
        sequences: ids.
        spans: of each id; an id only matches one of the next sequence that is not earlier.

    Returns:
        (ids, their spans)
    """
    left, left_spans = sequences[0], list(spans[0]) if spans else []
    total: list[int] = []
    total_spans: list[Span] = []
    for number, right in enumerate(sequences[1:], 1):
        here = spans[number] if spans else []
        best, found = 0.0, (len(left), len(left), 0, 0)
        for i in range(1, len(left) + len(right)):
            a, b = max(0, len(left) - i), min(len(left), len(left) + len(right) - i)
            c, d = max(0, i - len(left)), min(len(right), i)
            matches = 0
            for j in range(b - a):
                if left[a + j] == right[c + j] and (not spans or left_spans[a + j] <= here[c + j]):
                    matches += 1
            score = matches / i + i / 10000.0  # prefers long matches
            if matches > 1 and score > best:
                best, found = score, (a, b, c, d)
        # The left one is trusted for the left half of what both have, the right one for the right.
        middle, start = (found[0] + found[1]) // 2, (found[2] + found[3]) // 2
        total += left[:middle]
        total_spans += left_spans[:middle]
        left, left_spans = right[start:], list(here[start:])
    return total + left, total_spans + left_spans
