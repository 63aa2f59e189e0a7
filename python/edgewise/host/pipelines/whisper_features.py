"""Log-mel features of recordings of any length for Whisper: windows of one graph, normalized over
the whole recording.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import FLOAT
from ...errors import InputError
from ..media.recording import Samples, part
from ..session import InferenceSession
from ..text.speech.whisper import Features
from .audio_features import AudioFeatures

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...compiler.processors.audio import AudioProcessor
    from ..engine import Engine

HOP = 160  # samples of a frame, of all of Whisper's models
LOWEST = -1e30  # a floor that changes nothing
REFLECTED = 200  # samples after the end: half of the transform's length
BELOW = 8.0  # what is further below the maximum is raised


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
        frames, floor = samples.size // self.hop, LOWEST
        for start in range(0, samples.size, self.samples):
            (bins, _), _, highest = self._window(samples, start, LOWEST)
            floor = max(floor, highest - BELOW)
        return _LongFeatures(
            lambda frame: self._window(samples, frame * self.hop, floor)[:2], bins, frames
        )

    def _window(
        self, samples: Samples, start: int, floor: float
    ) -> tuple[tuple[int, int], Any, float]:
        """((bins, frames), features, highest value) of the window from a sample on."""
        assert self._clip is not None
        around = int((self._clip.inputs["audio"].shape or [])[-1])
        before = (around - self.samples + self.hop) // 2
        feeds = {
            "audio": Array((1, around), "float32", _around(samples, start - before, around)),
            "floor": Array((1,), "float32", struct.pack("<f", floor)),
        }
        found, highest = self._clip.run(["input_features", "maximum"], feeds)
        shape, values = _values(found)
        return (shape[-2], shape[-1]), values, float(_values(highest)[1][0])


class _LongFeatures(Features):
    """Features of a recording that are not kept.

    Args:
        make: gives ((bins, frames), features) from a frame on.
        bins, frames: of the recording.
    """

    def __init__(
        self, make: Callable[[int], tuple[tuple[int, int], Any]], bins: int, frames: int
    ) -> None:
        super().__init__(None, bins, frames, frames)
        self.make = make

    def window(self, start: int, size: int) -> bytes:
        rows = [bytearray() for _ in range(self.bins)]
        done, stop = 0, max(0, min(size, self.frames - start))
        while done < stop:
            (_, columns), values = self.make(start + done)
            count = min(columns, stop - done)
            for i, row in enumerate(rows):
                row += values[i * columns : i * columns + count].cast("B")
            done += count
        rest = bytes(4 * (size - stop))
        return b"".join(bytes(row) + rest for row in rows)


def _around(samples: Samples, start: int, count: int) -> bytes:
    """`count` samples from `start` on, which may be negative: reflected at the recording's ends,
    and zeros further on.
    """
    n = samples.size
    first = memoryview(part(samples, 0, 1 - start)).cast("f") if start < 0 else ()
    left = [first[min(-i, n - 1)] for i in range(start, 0)]
    inner = part(samples, start, count)
    missing = count - len(left) - len(inner) // 4
    reach = max(0, min(missing, REFLECTED - max(start - n, 0), n - 1))
    right = memoryview(part(samples, n - 1 - reach, reach)).cast("f").tolist()[::-1]
    zeros = bytes(4 * (missing - len(right)))
    return struct.pack(f"<{len(left)}f", *left) + inner + struct.pack(f"<{reach}f", *right) + zeros


def _values(x: Any) -> tuple[list[int], Any]:
    """(shape, float32 values) of an output."""
    _, shape, data = as_input(x, "features", FLOAT)
    return shape, memoryview(data).cast("B").cast("f")
