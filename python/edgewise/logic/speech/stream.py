"""Speech recognition of sound that arrives in pieces: which samples are transcribed when, text that
is certain, and text after it that may still change. The host keeps the samples.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..options import read_flag, read_within
from .agreement import Agreement, Word

RATE = 16000  # Hz
PROMPT = 200  # characters of committed text that precede what is transcribed
LONG = 15.0  # seconds: then sound is forgotten up to the end of a committed sentence,
LONGER = 22.0  # or, if there is none, of a committed word,
LONGEST = 28.0  # or of what is not committed. A window has 30 s.
BEFORE = 1.0  # seconds of silence that are kept: speech is noticed some time after it began
SHORT = 0.3  # seconds; shorter sounds have no words
SENTENCE_ENDS = (".", "?", "!", "。", "？", "！")


@dataclass(frozen=True)
class Hear:
    """Append samples [start, stop) of those that were fed to what is heard. No answer."""

    start: int
    stop: int
    kind: Literal["hear"] = "hear"


@dataclass(frozen=True)
class Listen:
    """Find speech in samples [start, stop) of those that were fed. Answer: ([{"start": sample of
    the stream} or {"end": sample}, ...], whether somebody speaks after them)
    """

    start: int
    stop: int
    kind: Literal["listen"] = "listen"


@dataclass(frozen=True)
class Transcribe:
    """Answer: the words in the first samples of what is heard, [{"text": with the space before it,
    "timestamp": [start, end or None: that of the sound]}, ...] in seconds.

    Attributes:
        count: number of samples.
        before: text that precedes them.
    """

    count: int
    before: str
    kind: Literal["transcribe"] = "transcribe"


@dataclass(frozen=True)
class Forget:
    """Forget the first samples of what is heard. No answer."""

    count: int
    kind: Literal["forget"] = "forget"


StreamRequest = Hear | Listen | Transcribe | Forget
Event = dict[str, Any]


def check_stream(options: Mapping[str, Any]) -> tuple[float, bool]:
    """The options `interval` and `live` of a stream. Raises InputError."""
    return read_within(options, "interval", 1.0, 0.1, 10.0), read_flag(options, "live")


class Recognition:
    """Transcribes a stream. Every `interval` seconds what is heard is transcribed again, up to 28
    s; what two transcripts agree on is committed.

    Args:
        interval: seconds between transcripts.
        voice: whether speech is looked for. Silence is then not transcribed, and ends what is
            committed.
        live: whether the sound does not wait for its transcripts: `feed` makes at most one, of the
            newest 28 s at most.

    Events are {"committed": text that is certain, "partial": text after it that may change,
    "timestamp": (start, end) of what is committed, in seconds of the stream, or None}, and in a
    live stream "skipped", (start, end) of sound that came too fast to be transcribed.
    """

    def __init__(self, interval: float, voice: bool, live: bool) -> None:
        self.step = max(1, round(interval * RATE))
        self.voice = voice
        self.live = live
        self.agreement = Agreement()
        self.said = ""  # end of the text of sound that is forgotten
        self.heard = 0  # samples that are held
        self.first = 0  # sample of the stream with which they begin
        self.seen = 0  # sample up to which there is a transcript
        self.ended: int | None = None  # sample with which speech ended that is still to commit
        self.fresh = 0  # samples since the last transcript was due
        self.speaking = not voice
        self.shown = ""

    def feed(self, count: int) -> Generator[StreamRequest, Any, list[Event]]:
        """Takes the next samples. Returns events."""
        events: list[Event] = []
        at = 0
        while at < count:  # unless live, results do not depend on how the sound is divided
            size = count if self.live else max(1, self.step - self.fresh)
            stop = min(at + size, count)
            yield Hear(at, stop)
            self.heard += stop - at
            self.fresh += stop - at
            if self.voice:
                events += yield from self._listen(at, stop)
            at = stop
            if self.ended is not None:
                events += yield from self._end_speech(self.ended)
            elif self.fresh >= self.step:
                if self.speaking:
                    events += yield from self._next()
                self.fresh = 0
        return events

    def end(self) -> Generator[StreamRequest, Any, list[Event]]:
        """Ends the stream. Returns events; the last one commits what is left."""
        if not self.speaking:
            return []
        events = yield from self._finish(self.heard)
        return events

    # Sound

    def _listen(self, start: int, stop: int) -> Generator[StreamRequest, Any, list[Event]]:
        """Finds speech in what was just heard; silence is forgotten but for its last second."""
        events: list[Event] = []
        spoke = self.speaking
        answer: tuple[list[Event], bool] = yield Listen(start, stop)
        found, self.speaking = answer
        for event in found:
            end: int | None = event.get("end")
            spoke = end is None
            if end is not None:
                self.ended = end
                if not self.live:
                    events += yield from self._end_speech(end)
            elif self.ended is None:
                begin: int = event["start"]
                yield from self._forget(begin - self.first)
        if not spoke and not self.speaking and self.ended is None:
            yield from self._forget(self.heard - int(BEFORE * RATE))
        return events

    def _skip(self, length: int) -> Generator[StreamRequest, Any, list[Event]]:
        """In a live stream forgets all but the newest window of the first samples. What the last
        transcript had of it is committed.
        """
        count = length - int(LONGEST * RATE)
        if not self.live or count <= 0:
            return []
        committed = self.agreement.end()
        start = max(self.seen, self.first)
        self._say(self.agreement.last)
        yield from self._forget(count)
        skipped: tuple[float, float] | None = None
        if start < self.first:
            skipped = (start / RATE, self.first / RATE)
        return self._event(committed, skipped)

    def _forget(self, count: int) -> Generator[StreamRequest, Any, None]:
        """Forgets the first samples of what is heard."""
        most = min(max(count, 0), self.heard)
        if most > 0:
            yield Forget(most)
        self.heard -= most
        self.first += most

    # Text

    def _next(self) -> Generator[StreamRequest, Any, list[Event]]:
        """Transcribes what is heard, and forgets what is committed where it is long."""
        events = yield from self._skip(self.heard)
        words = yield from self._words(self.heard)
        committed = self.agreement.add(words)
        seconds = self.heard / RATE
        if seconds > LONGEST and not self.agreement.committed:
            committed = self.agreement.end()
        if seconds > LONG:
            yield from self._shorten(seconds)
        return events + self._event(committed)

    def _end_speech(self, end: int) -> Generator[StreamRequest, Any, list[Event]]:
        """Commits the text of speech that has ended."""
        self.ended = None
        events = yield from self._skip(end - self.first)
        events += yield from self._finish(end - self.first)
        return events

    def _finish(self, count: int) -> Generator[StreamRequest, Any, list[Event]]:
        """Commits the text of the first samples, and forgets them."""
        words = yield from self._words(min(max(count, 0), self.heard))
        committed = [*self.agreement.add(words), *self.agreement.end()]
        self._say(self.agreement.last)
        yield from self._forget(count)
        return self._event(committed)

    def _words(self, count: int) -> Generator[StreamRequest, Any, list[Word]]:
        """The words in the first samples of what is heard."""
        self.seen = self.first + count
        if count < SHORT * RATE:
            return []
        found: Sequence[dict[str, Any]] = yield Transcribe(count, self.said)
        first = self.first / RATE
        length = count / RATE
        words: list[Word] = []
        for word in found:
            times: tuple[float, float | None] = word["timestamp"]
            end = length if times[1] is None else times[1]
            words.append(Word(first + times[0], first + end, word["text"]))
        return words

    def _shorten(self, seconds: float) -> Generator[StreamRequest, Any, None]:
        """Forgets sound up to the end of a committed sentence or word."""
        known = self.agreement.committed
        ends = [w.end for w in known if w.text.rstrip().endswith(SENTENCE_ENDS)]
        if not ends and seconds > LONGER:
            ends = [w.end for w in known]
        if ends:
            self._say(ends[-1])
            yield from self._forget(round(ends[-1] * RATE) - self.first)
        elif seconds > LONGEST:  # silence: its last second may be the beginning of a word
            yield from self._forget(self.heard - RATE)

    def _say(self, time: float) -> None:
        """Makes committed words up to a time part of the prompt."""
        text = self.said + "".join(w.text for w in self.agreement.committed if w.end <= time)
        text = text[-PROMPT:]
        self.said = text[max(text.find(" "), 0) :] if len(text) == PROMPT else text
        self.agreement.forget(time)

    def _event(
        self, committed: list[Word], skipped: tuple[float, float] | None = None
    ) -> list[Event]:
        partial = "".join(w.text for w in self.agreement.partial)
        if not committed and partial == self.shown and skipped is None:
            return []
        self.shown = partial
        text = "".join(w.text for w in committed)
        time = (committed[0].start, committed[-1].end) if committed else None
        event: Event = {"committed": text, "partial": partial, "timestamp": time}
        if skipped is not None:
            event["skipped"] = skipped
        return [event]
