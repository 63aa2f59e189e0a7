"""Runs a processor of sound: sound in, inputs of the model out."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array
from ...logic.speech.samples import input_of, repeated
from ..media.recording import open_sound
from ..session import InferenceSession

if TYPE_CHECKING:
    from ...compiler.processors.audio import AudioProcessor
    from ...logic.manifest.processor import AudioFields
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
        sound = self.processor.description()
        given = input_of(sound, samples.size)
        data = fitted(memoryview(samples.data).cast("B"), sound, given.total)
        feeds: dict[str, Any] = {"audio": Array((1, given.total), "float32", data)}
        if given.valid is not None:
            feeds["valid"] = Array((1,), "int64", struct.pack("<q", given.valid))
        names = [*self.session.outputs]
        out = dict(zip(names, self.session.run(names, feeds), strict=True))
        if given.mask is not None:
            ones, size = given.mask
            mask = struct.pack(f"<{size}q", *[1] * ones, *[0] * (size - ones))
            out[sound["mask"]["name"]] = Array((1, size), "int64", mask)
        return out

    def close(self) -> None:
        """Frees the memory of the graph."""
        self.session.free()


def fitted(data: memoryview, sound: AudioFields, total: int) -> bytes:
    """The bytes of so many samples: of the sound, repeated as its processor says, and zeros."""
    used = 4 * repeated(sound["length"], len(data) // 4, total)
    return (bytes(data) * -(-used // len(data)))[:used] + bytes(4 * total - used)
