"""speaker-verification: who speaks, by the cosine of voices' embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...compiler.arrays import Array
from ...errors import InputError
from ...logic.post.speakers import (
    OPTIONS,
    OUTPUTS,
    enrolled,
    equal_error_rate,
    matches,
    mean_voice,
    threshold_of,
)
from ...logic.speech.samples import voice_parts
from ..media.decode import read_sound
from .audio import AudioPipeline

__all__ = ["SpeakerVerificationPipeline", "equal_error_rate"]


def _cut(data: memoryview, first: int, size: int) -> Array:
    """Samples from `first` on, zeros where the recording has none. data: float32."""
    inner = bytes(data[4 * max(first, 0) : 4 * max(first + size, 0)])
    before = bytes(4 * max(-first, 0))
    after = bytes(4 * size - len(before) - len(inner))
    return Array((size,), "float32", before + inner + after)


class SpeakerVerificationPipeline(AudioPipeline):
    """Compares voices: pipe.enrol("me", recordings), then pipe("talk.wav") or pipe.verify.

    The model gives one vector for a recording: an x-vector or d-vector model, such as WavLM's or
    WeSpeaker's, with an output `embeddings`, or whose only output is a vector.

    Options:
        threshold: a voice is accepted from this cosine on. Default: 0.75; pick one with
            `equal_error_rate` on recordings of others.
        name: compare with this voice only.

    Returns:
        [{"label": name, "score": cosine, "accepted"}] for each enrolled voice, the best first
    """

    task = "speaker-verification"
    CALL = OPTIONS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.voices: dict[str, list[float]] = {}

    def check(self, options: Mapping[str, Any]) -> None:
        threshold_of(options)

    def embed(self, given: Any) -> list[float]:
        """The unit vector of a voice. Raises InputError."""
        outputs = self.session("model").outputs
        name = next(iter(outputs)) if len(outputs) == 1 else self.need_output("model", *OUTPUTS)
        with self.lock:
            sound = self.described_sound or self.features.processor.description()
            samples = read_sound(given, sound["sampling_rate"]).samples
            data = memoryview(samples.data).cast("B")
            parts = [_cut(data, *of) for of in voice_parts(sound, samples.size)]
            return mean_voice([self.vector(name, self.inputs_of(part)) for part in parts])

    def enrol(self, name: str, recordings: Any) -> list[float]:
        """Learns a voice: the mean of the vectors of its recordings. Replaces one of this name.

        Args:
            name: of the speaker.
            recordings: a sound, or a list of them; several of different days are better than one.

        Returns:
            the unit vector, which may be kept: `pipe.voices[name] = vector` restores it

        Raises:
            InputError: there is no recording, or one cannot be read.
        """
        sounds: Sequence[Any] = recordings if self.is_list(recordings) else [recordings]
        if not sounds:
            raise InputError("there is no recording", "enrol", "Give one or more.")
        self.voices[name] = mean_voice([self.embed(s) for s in sounds])
        return self.voices[name]

    def verify(self, name: str, sound: Any, threshold: float | None = None) -> dict[str, Any]:
        """Whether a sound is of an enrolled voice: {"label", "score", "accepted"}.

        Raises:
            InputError: there is no such voice.
        """
        options: dict[str, Any] = {"name": name}
        if threshold is not None:
            options["threshold"] = threshold
        result: dict[str, Any] = self(sound, **options)[0]
        return result

    def one(self, given: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
        voices = enrolled(self.voices, options)
        found = matches(self.embed(given), voices, threshold_of(options))
        return [dict(match) for match in found]
