"""voice-activity-detection with Silero VAD. Mirrors silero_vad's get_speech_timestamps and
VADIterator.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from ...compiler.arrays import Array
from ...errors import InputError
from ...logic.post.voice_activity import (
    OPTIONS,
    WINDOWS,
    Event,
    VoiceEvents,
    VoiceRules,
    digits_of,
    rules_of,
    segments_of,
    times_of,
)
from ..media.decode import stream_samples
from ..media.recording import PIECE, Recording, Samples, open_sound, part
from ..session import InferenceSession
from .base import Pipeline

STATE = 2 * 128


class VoiceActivityPipeline(Pipeline):
    """Finds speech: pipe("talk.wav"), pipe(samples), or a list of these.

    Options:
        sampling_rate: of arrays, and of the model: 16000 or 8000. Files are resampled.
        threshold: speech begins where the probability reaches it. Default: 0.5.
        neg_threshold: speech may end below it. Default: threshold - 0.15, at least 0.01.
        min_speech_duration_ms: shorter speech is dropped. Default: 250.
        max_speech_duration_s: longer speech is divided. Default: infinite.
        min_silence_duration_ms: shorter silences do not divide speech. Default: 100.
        speech_pad_ms: added at both ends. Default: 30.
        min_silence_at_max_speech: ms of a silence at which speech that is too long may be divided.
            Default: 98.
        return_seconds: times in seconds rather than samples. Default: False.
        time_resolution: decimals of seconds. Default: 1.

    Returns:
        [{"start", "end"}]
    """

    task = "voice-activity-detection"
    PACKAGED = True
    CALL = OPTIONS

    def is_list(self, inputs: Any) -> bool:
        return isinstance(inputs, (list, tuple)) and not (
            inputs and isinstance(inputs[0], (int, float))
        )

    def check(self, options: Mapping[str, Any]) -> None:
        rules_of(options)
        digits_of(options)

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        rules = rules_of(options)
        samples = open_sound(given, rules.sampling_rate)
        with samples if isinstance(samples, Recording) else nullcontext():
            probabilities = self.probabilities(samples, rules.sampling_rate)
        found = segments_of(probabilities, rules, samples.size)
        return times_of(found, rules.sampling_rate, samples.size, digits_of(options))

    def probabilities(self, samples: Samples, rate: int = 16000) -> list[float]:
        """The probability of speech in each window of 512 samples (256 at 8000 Hz).

        Args:
            samples: float32 [n], or of a long file.
            rate: 16000 or 8000.
        """
        stream, found = _Windows(self._graph(rate), rate), []
        for start in range(0, samples.size, PIECE):
            found += stream.feed(memoryview(part(samples, start, PIECE)))
        return found + stream.end()

    def stream(self, **options: Any) -> VoiceStream:
        """A detector for sound that arrives in pieces.

        Args:
            options: as of a call; those of whole recordings are ignored.
        """
        options = self.options(options)
        self.check(options)
        rules = rules_of(options)
        return VoiceStream(self._graph(rules.sampling_rate), rules)

    def _graph(self, rate: int) -> InferenceSession:
        """The graph for a sampling rate: packages have one for each."""
        packaged = self.files is not None and self.files.package is not None
        found: InferenceSession = self.session(
            f"model_{rate}" if packaged and rate != 16000 else "model"
        )
        return found


class VoiceStream:
    """Speech in a stream, as silero_vad's VADIterator reports it.

    Args:
        session: Silero's graph.
        rules: thresholds and durations.
    """

    def __init__(self, session: InferenceSession, rules: VoiceRules) -> None:
        self.windows = _Windows(session, rules.sampling_rate)
        self.events = VoiceEvents(rules)

    @property
    def speaking(self) -> bool:
        """Whether the stream is within speech."""
        return self.events.speaking

    def feed(self, samples: Any) -> list[Event]:
        """Takes the next samples, any number of them.

        Args:
            samples: float32 [n] at the detector's rate.

        Returns:
            {"start": sample} and {"end": sample}, counted from the stream's beginning

        Raises:
            InputError: `samples` has another type or several dimensions, or is not finite. The
                stream goes on.
        """
        found = map(self.events.next, self.windows.feed(stream_samples(samples)))
        return [event for event in found if event is not None]


class _Windows:
    """Probabilities of windows. Each run also gets the end of the window before."""

    def __init__(self, session: InferenceSession, rate: int) -> None:
        self.session, self.rate = session, rate
        self.window, self.context = WINDOWS[rate]
        if not {"input", "state"} <= set(session.inputs):
            raise InputError(
                f"the model has the inputs {', '.join(session.inputs)}",
                "voice-activity-detection",
                "Give Silero VAD 5 or 6.",
            )
        self.state = Array((2, 1, 128), "float32", bytes(4 * STATE))
        self.before, self.rest = bytes(4 * self.context), b""

    def feed(self, data: memoryview) -> list[float]:
        """The probabilities of the windows that are complete. data: float32."""
        samples = self.rest + bytes(data)
        size, out = 4 * self.window, []
        for at in range(0, len(samples) - size + 1, size):
            out.append(self._run(samples[at : at + size]))
        self.rest = samples[len(samples) // size * size :]
        return out

    def end(self) -> list[float]:
        """The probability of the last window, which is filled with zeros."""
        if not self.rest:
            return []
        return self.feed(memoryview(bytes(4 * self.window - len(self.rest))))

    def _run(self, window: bytes) -> float:
        values = self.before + window
        feeds: dict[str, Any] = {
            "input": Array((1, self.window + self.context), "float32", values),
            "state": self.state,
        }
        if "sr" in self.session.inputs:
            feeds["sr"] = Array((), "int64", struct.pack("<q", self.rate))
        probability, self.state = self.session.run([*self.session.outputs][:2], feeds)
        self.before = values[-4 * self.context :]
        return float(probability[0][0] if hasattr(probability, "reshape") else probability.item())
