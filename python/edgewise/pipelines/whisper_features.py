"""Log-mel features of recordings of any length for Whisper: windows of one graph, normalized over
the whole recording.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..arrays import Array, as_input
from ..declare.dtypes import FLOAT
from ..errors import InputError
from ..session import InferenceSession
from ..text.speech.whisper import Features
from .audio_features import AudioFeatures

if TYPE_CHECKING:
    from ..engine import Engine
    from ..processors.audio import AudioProcessor

HOP = 160  # samples of a frame, of all of Whisper's models
LOWEST = -1e30  # a floor that changes nothing
REFLECTED = 200  # samples behind the end: half of the transform's length
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

    def __call__(self, samples: Array) -> Features:
        """The features of samples, float32 [n] at `rate`.

        Those of at most a window are padded to one, longer ones keep their length: a multiple of
        the hop, without the last frame.
        """
        if samples.size <= self.samples:
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

    def _long(self, samples: Array) -> Features:
        """Windows side by side: a first pass finds the recording's maximum."""
        if self._clip is None:
            self._clip = InferenceSession(self.processor.graph("clip"), engine=self.engine)
        shape = self._clip.inputs["audio"].shape or []
        around = int(shape[-1])
        data = memoryview(samples.data).cast("B").cast("f")
        starts = range(0, samples.size, self.samples)
        passes: list[list[Any]] = []
        floor = LOWEST
        for _ in range(2):
            passes.append([self._window(data, start, around, floor) for start in starts])
            floor = max(highest for _, highest in passes[-1]) - BELOW
        parts = [rows for rows, _ in passes[-1]]
        shape, _ = parts[0]
        bins, size = shape[-2:]
        frames = samples.size // self.hop
        rows = bytearray()
        for i in range(bins):
            row = b"".join(bytes(values[i * size : (i + 1) * size]) for _, values in parts)
            rows += row[: 4 * frames]
        return Features(memoryview(rows).cast("f"), bins, frames, frames)

    def _window(
        self, data: Any, start: int, around: int, floor: float
    ) -> tuple[tuple[list[int], Any], float]:
        """((shape, features) of a window, the highest value in it)"""
        assert self._clip is not None
        before = (around - self.samples + self.hop) // 2
        feeds = {
            "audio": Array((1, around), "float32", _around(data, start - before, around)),
            "floor": Array((1,), "float32", struct.pack("<f", floor)),
        }
        found, highest = self._clip.run(["input_features", "maximum"], feeds)
        return _values(found), float(_values(highest)[1][0])


def _around(data: Any, start: int, count: int) -> bytes:
    """`count` samples from `start` on, which may be negative: reflected at the recording's ends,
    and zeros further behind.
    """
    n, size = len(data), count
    left = [data[min(-i, n - 1)] for i in range(start, 0)]
    inner = data[max(start, 0) : start + size]
    missing = size - len(left) - len(inner)
    reach = max(0, min(missing, REFLECTED - max(start - n, 0), n - 1))
    right = [data[n - 2 - i] for i in range(reach)]
    zeros = bytes(4 * (missing - len(right)))
    return (
        struct.pack(f"<{len(left)}f", *left)
        + bytes(inner)
        + struct.pack(f"<{len(right)}f", *right)
        + zeros
    )


def _values(x: Any) -> tuple[list[int], Any]:
    """(shape, float32 values) of an output."""
    _, shape, data = as_input(x, "features", FLOAT)
    return shape, memoryview(data).cast("B").cast("f")
