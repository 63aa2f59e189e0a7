"""Which words of a growing recording are certain: LocalAgreement-2 of Macháček, Dabre and Bojar,
"Turning Whisper into Real-Time Transcription System" (2023). Mirrors HypothesisBuffer of their
whisper_streaming.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NEAR = 0.1  # seconds: words that begin earlier before the last committed one's end are old
AGAIN = 1.0  # seconds around it in which words may be a repetition of committed ones
REPEATED = 5  # words of such a repetition


class Word(NamedTuple):
    """A word of a transcript.

    Attributes:
        start, end: seconds from the beginning of the stream.
        text: with the space before it.
    """

    start: float
    end: float
    text: str


class Agreement:
    """Commits what two successive transcripts of the recording begin with.

    Attributes:
        partial: what the latest transcript has after the committed words.
        committed: words, without those that `forget` was told to leave out.
        last: end of the last committed word, in seconds.
    """

    def __init__(self) -> None:
        self.partial: list[Word] = []
        self.committed: list[Word] = []
        self.last = 0.0

    def add(self, words: Sequence[Word]) -> list[Word]:
        """Takes the words of a transcript. Returns those that it commits."""
        new = self._unknown([w for w in words if w.start > self.last - NEAR])
        agreed = 0
        while agreed < min(len(new), len(self.partial)):
            if new[agreed].text != self.partial[agreed].text:
                break
            agreed += 1
        self.partial = new[agreed:]
        return self._commit(new[:agreed])

    def end(self) -> list[Word]:
        """Commits what is left: nothing will confirm it. Returns it."""
        words, self.partial = self.partial, []
        return self._commit(words)

    def forget(self, time: float) -> None:
        """Leaves out committed words that end at or before a time."""
        self.committed = [w for w in self.committed if w.end > time]

    def _commit(self, words: list[Word]) -> list[Word]:
        if words:
            self.last = words[-1].end
            self.committed += words
        return words

    def _unknown(self, new: list[Word]) -> list[Word]:
        """Without words at the beginning that repeat the last committed ones."""
        if not new or abs(new[0].start - self.last) >= AGAIN:
            return new
        texts, known = [w.text for w in new], [w.text for w in self.committed]
        for count in range(1, min(len(texts), len(known), REPEATED) + 1):
            if texts[:count] == known[-count:]:
                return new[count:]
        return new
