"""Runs a processor of sound: sound in, inputs of the model out."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array
from ..media.recording import open_sound
from ..session import InferenceSession

if TYPE_CHECKING:
    from ...compiler.processors.audio import AudioProcessor
    from ..engine import Engine

__all__ = ["AudioFeatures"]


class AudioFeatures:
    """A processor with its compiled graph.

    Args:
        processor: of processors.reader.audio_processor.
        engine: the Engine to use; by default that of the process.
        variant: of the processor's graph.
    """

    def __init__(
        self, processor: AudioProcessor, engine: Engine | None = None, variant: str = ""
    ) -> None:
        self.processor = processor
        self.session = InferenceSession(processor.graph(variant), engine=engine)

    def __call__(self, sound: Any) -> dict[str, Any]:
        """The inputs of the model.

        Args:
            sound: see processors.audio.recording.open_sound; the rate of an array is that of the
                processor.

        Returns:
            {name: array} with a batch dimension of 1, as the transformers extractor's

        Raises:
            InputError: the sound is too short or too long, or cannot be read.
        """
        samples = open_sound(sound, self.processor.sampling_rate)
        if isinstance(samples, Array):
            return self.of_samples(samples)
        with samples:
            total = self.processor.total(samples.size)  # what is after it is not read
            count = min(total, samples.size)
            return self.of_samples(Array((count,), "float32", samples.read(0, count)))

    def of_samples(self, samples: Array) -> dict[str, Any]:
        """As __call__, for float32 [n] at the processor's rate."""
        processor, count = self.processor, samples.size
        total = processor.total(count)
        data = _fitted(memoryview(samples.data).cast("B"), 4 * total, processor.length.repeat)
        feeds: dict[str, Any] = {"audio": Array((1, total), "float32", data)}
        if processor.frames is not None:
            frame, hop = processor.frames
            valid = (min(count, total) - frame) // hop + 1
            feeds["valid"] = Array((1,), "int64", struct.pack("<q", valid))
        names = [*self.session.outputs]
        out = dict(zip(names, self.session.run(names, feeds), strict=True))
        if processor.mask is not None:
            ones, size = processor.mask.sizes(min(count, total), total)
            mask = struct.pack(f"<{size}q", *[1] * ones, *[0] * (size - ones))
            out[processor.mask.name] = Array((1, size), "int64", mask)
        return out

    def close(self) -> None:
        """Frees the memory of the graph."""
        self.session.free()


def _fitted(data: memoryview, nbytes: int, repeat: str) -> bytes:
    """The bytes of samples, repeated as Length.repeat says, cut, or filled with zeros."""
    if len(data) >= nbytes:
        return bytes(data[:nbytes])
    if repeat == "repeat":
        return (bytes(data) * (nbytes // len(data) + 1))[:nbytes]
    whole = bytes(data) * (nbytes // len(data)) if repeat else bytes(data)
    return whole + bytes(nbytes - len(whole))
