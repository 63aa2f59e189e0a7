"""speaker-verification: who speaks, by the cosine of voices' embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...compiler.arrays import Array
from ...compiler.processors.audio import Windows
from ...errors import InputError
from ...logic.post.speakers import cosine, equal_error_rate, mean_voice, unit
from ..media.decode import read_sound
from .audio import AudioPipeline

__all__ = ["SpeakerVerificationPipeline", "equal_error_rate"]

OUTPUTS = ("embeddings", "embedding", "embeds", "last_hidden_state", "logits")


def _parts(data: memoryview, windows: Windows) -> Iterator[Array]:
    """The parts of a recording with what lies around them, float32 [size] each. data: float32."""
    for start in windows.starts(len(data) // 4):
        first = start - windows.before
        inner = data[4 * max(first, 0) : 4 * max(first + windows.size, 0)]
        before = bytes(4 * max(-first, 0))
        after = bytes(4 * windows.size - len(before) - len(inner))
        yield Array((windows.size,), "float32", before + bytes(inner) + after)


def _parts_of_sizes(data: memoryview, sizes: Sequence[int]) -> Iterator[Array]:
    """Overlapping parts of the largest size that a recording has, as in pages; a shorter recording
    is followed by silence. data: float32.
    """
    count = len(data) // 4
    size = max((n for n in sizes if n <= count), default=sizes[0])
    parts = max(1, -(-count // size))
    for i in range(parts):
        start = int(i * (count - size) / (parts - 1) + 0.5) if parts > 1 else 0
        part = bytes(data[4 * start : 4 * (start + size)])
        yield Array((size,), "float32", part + bytes(4 * size - len(part)))


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
    CALL = {"threshold": 0.75, "name": None}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.voices: dict[str, list[float]] = {}

    def check(self, options: Mapping[str, Any]) -> None:
        value = options["threshold"]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1 <= value <= 1:
            raise InputError(f"{value!r} is not a cosine", "threshold", "Give -1 to 1.")

    def embed(self, sound: Any) -> list[float]:
        """The unit vector of a voice. Raises InputError."""
        outputs = self.session("model").outputs
        name = next(iter(outputs)) if len(outputs) == 1 else self.need_output("model", *OUTPUTS)
        windows = self.features.processor.windows
        with self.lock:
            sizes: Sequence[int] = self.described_sound.get("lengths", ())
            most = self.longest_sound
            if windows is None and most is None:
                return unit(self.vector(name, self.inputs_of(sound)))
            samples = read_sound(sound, self.features.processor.sampling_rate).samples
            data = memoryview(samples.data).cast("B")
            if windows is None and not sizes and most is not None:  # one plan for all lengths
                sizes = [min(most, max(1, len(data) // 4))]
            parts = _parts_of_sizes(data, sizes) if windows is None else _parts(data, windows)
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
        name = options["name"]
        voices = self.voices if name is None else {name: self.voices.get(name)}
        if not voices or None in voices.values():
            raise InputError(
                f"the voice {name!r} is not enrolled" if name else "no voice is enrolled",
                self.task,
                "Call enrol first.",
            )
        heard = self.embed(given)
        scores = {label: cosine(heard, voice) for label, voice in voices.items() if voice}
        least = options["threshold"]
        return [
            {"label": label, "score": score, "accepted": score >= least}
            for label, score in sorted(scores.items(), key=lambda s: -s[1])
        ]
