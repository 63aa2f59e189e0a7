"""Log-mel features of recordings of any length for Whisper: windows of one graph, normalized over
the whole recording.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT
from ...errors import InputError
from ...logic.speech.features import HOP, LOWEST, Clip, around, floor_of, parts_of
from ..drive import drive
from ..media.recording import Samples, part
from ..session import InferenceSession
from ..text.speech.whisper import Features
from .audio_features import AudioFeatures

if TYPE_CHECKING:
    from ...compiler.processors.audio import AudioProcessor
    from ..engine import Engine


class WhisperFeatures:
    """Runs Whisper's feature extractor.

    Args:
        processor: of processors.reader.audio_processor.
        engine: the Engine to use; by default that of the process.

    Attributes:
        rate: Hz.
        hop: samples of a frame.

    Raises:
        InputError: the processor is not Whisper's.
    """

    def __init__(self, processor: AudioProcessor, engine: Engine | None = None) -> None:
        if processor.kind != "Whisper" or processor.length.exact is None:
            raise InputError(
                f"{processor.kind} is not Whisper's feature extractor",
                "preprocessor_config.json",
                "Take the one of the model.",
            )
        self.processor, self.engine = processor, engine
        self.rate, self.samples = processor.sampling_rate, processor.length.exact
        self.hop = HOP
        self._short: AudioFeatures | None = None
        self._clip: InferenceSession | None = None

    def __call__(self, samples: Samples) -> Features:
        """The features of samples at `rate`.

        Those of at most a window are padded to one, longer ones keep their length: a multiple of
        the hop, without the last frame. Longer ones are computed when they are read, so the samples
        must stay.
        """
        if samples.size <= self.samples:
            if not isinstance(samples, Array):  # short, but of many samples in its file
                samples = Array((samples.size,), "float32", samples.read(0, samples.size))
            if self._short is None:
                self._short = AudioFeatures(self.processor, self.engine)
            found = _values(self._short.of_samples(samples)["input_features"])
            bins, frames = found[0][-2:]
            spoken = -(-samples.size // self.hop)
            return Features(found[1], bins, frames, spoken)
        return self._long(samples)

    def close(self) -> None:
        """Frees the memory of the graphs."""
        if self._short is not None:
            self._short.close()
        if self._clip is not None:
            self._clip.free()

    def _long(self, samples: Samples) -> Features:
        """Features that are computed where they are needed: a first pass finds the recording's
        maximum.
        """
        if self._clip is None:
            self._clip = InferenceSession(self.processor.graph("clip"), engine=self.engine)
        return _LongFeatures(self._clip, samples, self.samples)


class _LongFeatures(Features):
    """Features of a recording that are not kept.

    Args:
        session: of clips.
        samples: of the recording.
        size: samples of a clip.
    """

    def __init__(self, session: InferenceSession, samples: Samples, size: int) -> None:
        self.session, self.samples, self.size = session, samples, size
        self.floor = LOWEST
        self.kept: dict[int, Any] = {}  # the latest clips
        bins = 0

        def answer(clip: Clip) -> float:
            nonlocal bins
            (bins, _), _, highest = self._run(clip.number)
            return highest

        self.floor = drive(floor_of(samples.size, size), answer)
        frames = samples.size // HOP
        super().__init__(None, bins, frames, frames)

    def window(self, start: int, size: int) -> bytes:
        out = memoryview(bytearray(4 * self.bins * size)).cast("f")
        columns = self.size // HOP
        parts = parts_of(start, size, self.frames, columns)
        self.kept = {n: x for n, x in self.kept.items() if any(n == p.clip for p in parts)}
        for clip, first, length, at in parts:
            if clip not in self.kept:
                self.kept[clip] = self._run(clip)[1]
            for i in range(self.bins):
                row = self.kept[clip][i * columns + first : i * columns + first + length]
                out[i * size + at : i * size + at + length] = row
        return out.tobytes()

    def _run(self, number: int) -> tuple[tuple[int, int], Any, float]:
        """((bins, frames), features, highest value) of a clip."""
        width = int((self.session.inputs["audio"].shape or [])[-1])
        feeds = {
            "audio": Array((1, width), "float32", self._around(number, width)),
            "floor": Array((1,), "float32", struct.pack("<f", self.floor)),
        }
        found, highest = self.session.run(["input_features", "maximum"], feeds)
        shape, values = _values(found)
        return (shape[-2], shape[-1]), values, float(_values(highest)[1][0])

    def _around(self, number: int, width: int) -> bytes:
        """The samples of a clip, and what lies around it."""
        samples, of = self.samples, around(number, self.size, width, self.samples.size)
        last = samples.size - 1
        first = memoryview(part(samples, 0, of.left + 1)).cast("f")
        left = [first[min(of.left - i, last)] for i in range(of.left)]
        right = memoryview(part(samples, last - of.right, of.right)).cast("f").tolist()[::-1]
        inner = part(samples, of.start, of.inner)
        made = struct.pack(f"<{len(left)}f", *left) + inner + struct.pack(f"<{of.right}f", *right)
        return made + bytes(4 * width - len(made))


def _values(x: Any) -> tuple[list[int], Any]:
    """(shape, float32 values) of an output."""
    _, shape, data = as_input(x, "features", FLOAT)
    return shape, memoryview(data).cast("B").cast("f")
