"""Speech recognition of sound that arrives in pieces: the samples and models of
logic/speech/stream.py, which decides what is transcribed when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array
from ....errors import InputError
from ....logic.post.voice_activity import STREAM
from ....logic.speech.stream import RATE, Recognition, StreamRequest
from ...drive import drive
from ...media.decode import stream_samples
from ...media.resampling import Resampler, sampling_rate

if TYPE_CHECKING:
    from ..automatic_speech_recognition import AutomaticSpeechRecognitionPipeline
    from ..voice_activity import VoiceActivityPipeline, VoiceStream


class SpeechStream:
    """Transcribes a stream. Every `interval` seconds what is heard is transcribed again, up to 28
    s; what two transcripts agree on is committed.

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
        self.voice: VoiceStream | None = None if vad is None else vad.stream(**STREAM)
        self.logic = Recognition(interval, vad is not None, live)
        self.heard = bytearray()  # float32
        self.resampler: Resampler | None = None
        self.rate: int | None = None

    def feed(self, samples: Any) -> list[dict[str, Any]]:
        """Takes the next samples, any number of them.

        Args:
            samples: float32 [n] at 16 kHz, or {"array", "sampling_rate"}, always of one rate.

        Returns:
            events {"committed": text that is certain, "partial": text after it that may change,
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
        return events + drive(self.logic.end(), lambda request: self._answer(request, b""))

    def close(self) -> None:
        """Frees memory of the engine. `end` does."""
        if self.resampler is not None:
            self.resampler.close()
            self.resampler = None

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
        steps = self.logic.feed(len(data) // 4)
        return drive(steps, lambda request: self._answer(request, data))

    def _answer(self, request: StreamRequest, data: bytes) -> Any:
        """Does what the logic asks for. data: of the samples that are fed."""
        if request.kind == "transcribe":
            return self._words(bytes(self.heard[: 4 * request.count]), request.before)
        if request.kind == "forget":
            del self.heard[: 4 * request.count]
            return None
        piece = data[4 * request.start : 4 * request.stop]
        if request.kind == "hear":
            self.heard += piece
            return None
        assert self.voice is not None
        events = self.voice.feed(Array((len(piece) // 4,), "float32", piece))
        return events, self.voice.speaking

    def _words(self, data: bytes, before: str) -> list[dict[str, Any]]:
        """The words in sound, which follows a text."""
        options = dict(self.options)
        if before and self.pipe.spaced:
            text = "<|startofprev|>" + before
            ids = self.pipe.tokenizer.encode(text, add_special_tokens=False)
            options["prompt_ids"] = list(getattr(ids, "ids", ids))
        found = self.pipe(Array((len(data) // 4,), "float32", data), **options)
        space = "" if self.pipe.spaced else " "  # Whisper's words begin with theirs
        return [{**word, "text": space + word["text"]} for word in found["chunks"]]
