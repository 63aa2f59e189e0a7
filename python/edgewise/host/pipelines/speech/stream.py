"""Speech recognition of sound that arrives in pieces: text that is certain, and text that may still
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....errors import InputError
from ....logic.speech.agreement import Agreement, Word
from ...arrays import Array
from ...media.decode import stream_samples
from ...media.resampling import Resampler, sampling_rate

if TYPE_CHECKING:
    from ..automatic_speech_recognition import AutomaticSpeechRecognitionPipeline
    from ..voice_activity import VoiceActivityPipeline, VoiceStream

RATE = 16000  # Hz
BYTES = 4 * RATE  # of a second
PROMPT = 200  # characters of committed text that precede what is transcribed
LONG = 15.0  # seconds: then sound is forgotten up to the end of a committed sentence,
LONGER = 22.0  # or, if there is none, of a committed word,
LONGEST = 28.0  # or of what is not committed. A window has 30 s.
BEFORE = 1.0  # seconds of silence that are kept: speech is noticed some time after it began
VOICE = {"sampling_rate": RATE, "min_silence_duration_ms": 700, "speech_pad_ms": 200}
SHORT = 0.3  # seconds: what is shorter has no words
SENTENCE_ENDS = (".", "?", "!", "。", "？", "！")


class SpeechStream:
    """Transcribes a stream. Every `interval` seconds what is heard is transcribed again, up to 28
    s; what two transcripts agree on is committed (text.speech.agreement).

    Args:
        pipe: the pipeline.
        options: of its calls.
        interval: seconds between transcripts. Shorter: text comes sooner, for more computation.
        vad: finds speech. Silence is then not transcribed, which saves time and invented words,
            and 0.7 s of it commit the text before.
        live: whether the sound does not wait for its transcripts: a call of `feed` makes at most
            one, of the newest 28 s at most, however much sound it gets. So transcripts are as late
            as one takes to make, also where that is longer than `interval`.
    """

    def __init__(
        self,
        pipe: AutomaticSpeechRecognitionPipeline,
        options: Mapping[str, Any],
        interval: float = 1.0,
        vad: VoiceActivityPipeline | None = None,
        live: bool = False,
    ) -> None:
        self.pipe, self.options = pipe, {**options, "return_timestamps": "word"}
        self.step, self.live = max(1, round(interval * RATE)) * 4, live
        self.voice: VoiceStream | None = None if vad is None else vad.stream(**VOICE)
        self.agreement = Agreement()
        self.said = ""  # end of the text of sound that is forgotten
        self.heard = bytearray()  # float32
        self.first = 0  # sample of the stream with which `heard` begins
        self.seen = 0  # sample up to which there is a transcript
        self.ended: int | None = None  # sample with which speech ended that is still to commit
        self.fresh = 0  # bytes since the last transcript was due
        self.resampler: Resampler | None = None
        self.rate: int | None = None
        self.shown = ""

    def feed(self, samples: Any) -> list[dict[str, Any]]:
        """Takes the next samples, any number of them.

        Args:
            samples: float32 [n] at 16 kHz, or {"array", "sampling_rate"}, always of one rate.

        Returns:
            events {"committed": text that is certain, "partial": text behind it that may change,
            "timestamp": (start, end) of what is committed, in seconds of the stream, or None}.
            The committed texts joined are the transcript. There is none where nothing changed.
            Events of a live stream also have "skipped", (start, end) of sound that came too fast
            to be transcribed, where there is such sound.

        Raises:
            InputError: `samples` has another type, rate or several dimensions, or is not finite.
                The stream goes on.
        """
        return self._take(self._resampled(samples))

    def end(self) -> list[dict[str, Any]]:
        """Ends the stream. Returns events; the last one commits what is left."""
        rest = b""
        if self.resampler is not None:
            rest = self.resampler.end()
            self.close()
        events = self._take(rest)
        if self.voice is None or self.voice.speaking:
            events += self._finish(len(self.heard))
        return events

    def close(self) -> None:
        """Frees memory of the engine. `end` does."""
        if self.resampler is not None:
            self.resampler.close()
            self.resampler = None

    # ---- sound
    def _resampled(self, samples: Any) -> bytes:
        rate = RATE
        if isinstance(samples, Mapping):
            rate = sampling_rate(samples.get("sampling_rate"))
            samples = samples.get("array", samples.get("raw"))
        view = stream_samples(samples)
        if self.rate not in (None, rate):
            raise InputError(
                f"the sampling rate is {rate}, that of the samples before was {self.rate}",
                "feed",
                "Give a stream samples of one rate.",
            )
        if self.rate is None and rate != RATE:
            self.resampler = Resampler(rate, RATE, self.pipe.engine)
        self.rate = rate
        return bytes(view) if self.resampler is None else self.resampler.feed(view)

    def _take(self, data: bytes) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        at = 0
        while at < len(data):  # unless live, results do not depend on how the sound is divided
            size = len(data) if self.live else max(4, self.step - self.fresh)
            piece = data[at : at + size]
            at += len(piece)
            if self.voice is None:
                self._hear(piece)
            else:
                events += self._hear_voice(self.voice, piece)
            if self.ended is not None:
                events += self._finish_speech()
            elif self.fresh >= self.step:
                if self.voice is None or self.voice.speaking:
                    events += self._transcribe()
                self.fresh = 0
        return events

    def _hear(self, piece: bytes) -> None:
        self.heard += piece
        self.fresh += len(piece)

    def _hear_voice(self, voice: VoiceStream, piece: bytes) -> list[dict[str, Any]]:
        """Hears a piece; silence is forgotten but for its last second."""
        events: list[dict[str, Any]] = []
        spoke = voice.speaking
        self._hear(piece)
        for event in voice.feed(Array((len(piece) // 4,), "float32", piece)):
            if "end" in event:
                self.ended, spoke = event["end"], False
                if not self.live:
                    events += self._finish_speech()
                continue
            spoke = True
            if self.ended is None:
                self._forget(4 * (event["start"] - self.first))
        if not spoke and not voice.speaking and self.ended is None:
            self._forget(len(self.heard) - int(BEFORE * BYTES))
        return events

    def _skip(self, end: int) -> list[dict[str, Any]]:
        """In a live stream forgets all but the newest window of the first `end` bytes. What the
        last transcript had of it is committed.
        """
        count = end - int(LONGEST * BYTES)
        if not self.live or count <= 0:
            return []
        committed, start = self.agreement.end(), max(self.seen, self.first)
        self._say(self.agreement.last)
        self._forget(count)
        skipped = (start / RATE, self.first / RATE) if start < self.first else None
        return self._event(committed, skipped)

    def _forget(self, count: int) -> None:
        """Forgets the first bytes of what is heard."""
        count = min(max(count, 0), len(self.heard))
        del self.heard[:count]
        self.first += count // 4

    # ---- text
    def _transcribe(self) -> list[dict[str, Any]]:
        """Transcribes what is heard, and forgets what is committed where it is long."""
        events = self._skip(len(self.heard))
        words = self._words(bytes(self.heard))
        committed = self.agreement.add(words)
        seconds = len(self.heard) / BYTES
        if seconds > LONGEST and not self.agreement.committed:
            committed = self.agreement.end()
        if seconds > LONG:
            self._shorten(seconds)
        return events + self._event(committed)

    def _finish_speech(self) -> list[dict[str, Any]]:
        """Commits the text of speech that has ended."""
        end, self.ended = self.ended or 0, None
        events = self._skip(4 * (end - self.first))
        return events + self._finish(4 * (end - self.first))

    def _finish(self, end: int) -> list[dict[str, Any]]:
        """Commits the text of the first `end` bytes, and forgets them."""
        words = self._words(bytes(self.heard[: max(end, 0)]))
        committed = [*self.agreement.add(words), *self.agreement.end()]
        self._say(self.agreement.last)
        self._forget(end)
        return self._event(committed)

    def _words(self, data: bytes) -> list[Word]:
        """The words in sound."""
        self.seen = self.first + len(data) // 4
        if len(data) < SHORT * BYTES:
            return []
        prompt = self._prompt()
        options = {**self.options, **({"prompt_ids": prompt} if prompt else {})}
        found = self.pipe(Array((len(data) // 4,), "float32", data), **options)
        first, length = self.first / RATE, len(data) / BYTES
        space = " " if self.pipe.is_ctc else ""  # Whisper's words begin with theirs
        return [
            Word(
                first + chunk["timestamp"][0],
                first + (length if chunk["timestamp"][1] is None else chunk["timestamp"][1]),
                space + chunk["text"],
            )
            for chunk in found["chunks"]
        ]

    def _prompt(self) -> list[int]:
        """Tokens of text before what is heard, for Whisper."""
        if self.pipe.is_ctc or not self.said:
            return []
        text = "<|startofprev|>" + self.said
        ids = self.pipe.tokenizer.encode(text, add_special_tokens=False)
        return list(getattr(ids, "ids", ids))

    def _shorten(self, seconds: float) -> None:
        """Forgets sound up to the end of a committed sentence or word."""
        known = self.agreement.committed
        ends = [w.end for w in known if w.text.rstrip().endswith(SENTENCE_ENDS)]
        if not ends and seconds > LONGER:
            ends = [w.end for w in known]
        if not ends:
            if seconds > LONGEST:  # silence: its last second may be the beginning of a word
                self._forget(len(self.heard) - 4 * RATE)
            return
        self._say(ends[-1])
        self._forget(4 * (round(ends[-1] * RATE) - self.first))

    def _say(self, time: float) -> None:
        """Makes committed words up to a time part of the prompt."""
        words = [w.text for w in self.agreement.committed if w.end <= time]
        text = (self.said + "".join(words))[-PROMPT:]
        self.said = text[max(text.find(" "), 0) :] if len(text) == PROMPT else text
        self.agreement.forget(time)

    def _event(
        self, committed: list[Word], skipped: tuple[float, float] | None = None
    ) -> list[dict[str, Any]]:
        partial = "".join(w.text for w in self.agreement.partial)
        if not committed and partial == self.shown and skipped is None:
            return []
        self.shown = partial
        text = "".join(w.text for w in committed)
        time = (committed[0].start, committed[-1].end) if committed else None
        event: dict[str, Any] = {"committed": text, "partial": partial, "timestamp": time}
        return [event if skipped is None else {**event, "skipped": skipped}]
