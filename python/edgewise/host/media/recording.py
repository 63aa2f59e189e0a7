"""Long recordings in files: their samples are read where they are needed, so that an hour takes no
more memory than a minute.
"""

from __future__ import annotations

import array
import os
import struct
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...compiler.arrays import Array
from ...errors import InputError, file_error, memory_in_words
from .decode import MAX_SAMPLES, check_finite, mean, read_sound
from .resampling import Resampler, sampling_rate
from .wav import FLOAT, Wav, read_wav

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = 1 << 22  # frames of files that are not read at once: 4 minutes at 16 kHz
PIECE = 1 << 18  # frames
HEAD = 1 << 16  # bytes that contain a WAV file's header


class Recording:
    """Samples of one channel at one rate in a file, float32. A context manager.

    Reading raises InputError where samples are not finite.

    Args:
        file: an open file; a WAV file, or float32 samples alone.
        size: number of samples.
        wav: where and how they are stored in a WAV file.

    Attributes:
        size: number of samples.
    """

    def __init__(self, file: Any, size: int, wav: Wav | None = None) -> None:
        self.file, self.size, self.wav = file, size, wav

    def read(self, start: int, count: int) -> bytes:
        """float32 of samples [start, start + count), without those outside of the recording."""
        start, end = max(start, 0), min(start + count, self.size)
        if end <= start:
            return b""
        if self.wav is None:
            self.file.seek(4 * start)
            return bytes(self.file.read(4 * (end - start)))
        self.file.seek(self.wav.offset + start * self.wav.frame)
        data = self.file.read((end - start) * self.wav.frame)
        samples = _one_channel(replace(self.wav, data=memoryview(data)))
        if self.wav.kind == FLOAT:  # integers are finite
            check_finite(samples, str(self.file.name))
        return samples.tobytes()

    def pieces(self, count: int = PIECE) -> Iterator[bytes]:
        """All samples, `count` at a time."""
        for start in range(0, self.size, count):
            yield self.read(start, count)

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Samples = Array | Recording


@memory_in_words
def open_sound(source: Any, rate: int) -> Samples:
    """As read_sound(...).samples; of a path of a file of more than 2^22 frames a Recording. Where
    it has another rate or is not a WAV file, a temporary file gets its samples.

    Args:
        source: see read_sound.
        rate: Hz of the samples.

    Raises:
        InputError: as read_sound.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if isinstance(path, str) and not path.startswith(("http://", "https://")):
            found = _open_wav(path, rate) or _open_other(path, rate)
            if found is not None:
                return found
    return read_sound(source, rate).samples


def part(samples: Samples, start: int, count: int) -> bytes:
    """float32 of samples [start, start + count), without those outside of the sound."""
    if isinstance(samples, Recording):
        return samples.read(start, count)
    data = memoryview(samples.data).cast("B")
    return bytes(data[4 * max(start, 0) : 4 * max(start + count, 0)])


def _open_wav(path: str, rate: int) -> Recording | None:
    """A long WAV file; None: it is none, or short."""
    try:
        with open(path, "rb") as file:
            head, size = file.read(HEAD), os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as e:  # ValueError: a zero byte in the path
        raise file_error(e)(f"it cannot be read ({e})", path, "Check the path.") from None
    if size < LONG or head[:4] != b"RIFF" or head[8:12] != b"WAVE":
        return None
    try:
        wav = read_wav(head, path)
    except InputError:
        return None  # read_sound says why, or finds the samples further on
    if wav is None:
        return None
    (declared,) = struct.unpack_from("<I", head, wav.offset - 4)
    count = min(declared, size - wav.offset) // wav.frame
    wav = replace(wav, data=memoryview(b""))
    if count <= LONG:
        return None
    own = sampling_rate(wav.rate, path)
    _check(max(count, -(-count * rate // own)), path)
    found = Recording(open(path, "rb"), count, wav)  # noqa: SIM115
    if own == rate:
        return found
    with found:
        return _copied(found.pieces(), own, rate)


def _open_other(path: str, rate: int) -> Recording | None:
    """A long file that soundfile reads; None: it cannot, or it is short."""
    try:
        import soundfile

        with soundfile.SoundFile(path) as file:
            if file.frames <= LONG:
                return None
            own = sampling_rate(file.samplerate, path)
            _check(max(file.frames, -(-file.frames * rate // own)), path)
            blocks = file.blocks(PIECE, dtype="float32", always_2d=True)
            return _copied((_mixed(block, path) for block in blocks), own, rate)
    except InputError:
        raise
    except (ImportError, OSError, RuntimeError, TypeError, ValueError):
        return None  # read_sound says what is wrong


def _copied(pieces: Iterator[bytes], rate: int, to_rate: int) -> Recording:
    """Samples at another rate, in a temporary file, which disappears with the Recording."""
    file, size = tempfile.TemporaryFile(), 0  # noqa: SIM115
    try:
        if rate == to_rate:
            size = sum(map(file.write, pieces))
        else:
            with Resampler(rate, to_rate) as resampler:
                size = sum(file.write(resampler.feed(piece)) for piece in pieces)
                size += file.write(resampler.end())
    except OSError as e:
        file.close()
        raise InputError(
            f"its samples cannot be kept ({e})", "temporary file", "Free space, or set TMPDIR."
        ) from None
    except BaseException:
        file.close()
        raise
    return Recording(file, size // 4)


def _check(count: int, where: str) -> None:
    if count > MAX_SAMPLES:
        raise InputError(f"there are {count} samples", where, "Read the recording in parts.")


def _mixed(block: Any, where: str) -> bytes:
    """The mean of soundfile's channels."""
    columns = [array.array("f", block[:, c].tobytes()) for c in range(block.shape[1])]
    samples = columns[0] if len(columns) == 1 else mean(columns)
    check_finite(samples, where)
    return samples.tobytes()


def _one_channel(wav: Wav) -> array.array[float]:
    """The mean of a WAV file's channels."""
    flat = wav.samples()
    if wav.channels == 1:
        return flat
    return mean([flat[c :: wav.channels] for c in range(wav.channels)])
