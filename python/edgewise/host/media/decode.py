"""Reads sound: files, bytes, arrays, and transformers' dictionaries. WAV is read here, other files
by soundfile (`edgewise[audio]`).
"""

from __future__ import annotations

import array
import io
import os
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from ...compiler.arrays import Array, as_input
from ...compiler.declare.dtypes import DOUBLE, FLOAT, INT16, INT32, INT64, unpack
from ...errors import InputError, file_error, memory_in_words
from .resampling import resample_audio, sampling_rate
from .wav import read_wav

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SAMPLES = 1 << 29  # 9 hours at 16 kHz
# The highest byte of float32 below 2^33, whose exponent is 80 << 1.
_ALLOWED = bytes(b for b in range(256) if b & 0x7F < 80)


class Sound(NamedTuple):
    """Sound of one channel.

    Attributes:
        samples: float32 [n].
        rate: Hz.
    """

    samples: Array
    rate: int


@memory_in_words
def read_sound(source: Any, rate: int, mono: bool = True) -> Sound:
    """Reads sound and changes its sampling rate.

    Args:
        source: path of a file; bytes of a file; an array of samples, [n] or [channels, n] as
            soundfile's transposed; or a dict with "array" or "raw", and "sampling_rate", which may
            be that of another rate.
        rate: Hz that the model needs, and those of an array that has no "sampling_rate".
        mono: whether channels are averaged, those of an array with a warning; otherwise there must
            be one.

    Returns:
        one channel at `rate`

    Raises:
        InputError: there are no samples, or some that are not finite, the file is damaged or of an
            unknown format, or a sampling rate is not possible.
    """
    channels, found, where = _checked(source, rate)
    count = len(channels[0])
    if len(channels) > 1 and not mono:
        raise InputError(f"there are {len(channels)} channels", where, "Give one channel.")
    if len(channels) > 1 and where == "audio":  # files of two channels are common, such arrays not
        warnings.warn(
            f"audio: the array has {len(channels)} channels, whose mean is taken; for several"
            " sounds give a list of arrays [n].",
            UserWarning,
            stacklevel=2,
        )
    samples = channels[0] if len(channels) == 1 else mean(channels)
    check_finite(samples, where)
    sound = Array((count,), "float32", memoryview(samples).cast("B").tobytes())
    return Sound(sound if found == rate else resample_audio(sound, found, rate), rate)


@memory_in_words
def read_channels(source: Any, rate: int, count: int) -> list[bytes]:
    """float32 samples of each channel, for a model of `count` channels: of one the mean of those
    that there are; one channel is that of all.

    Raises:
        InputError: as read_sound, or the sound has another number of channels.
    """
    if count == 1:
        return [bytes(read_sound(source, rate).samples.data)]
    channels, found, where = _checked(source, rate)
    if len(channels) == 1:
        channels = channels * count
    if len(channels) != count:
        raise InputError(
            f"there are {len(channels)} channels", where, f"Give one, or {count} channels."
        )
    made = []
    for samples in channels:
        check_finite(samples, where)
        sound = Array((len(samples),), "float32", memoryview(samples).cast("B").tobytes())
        made.append(sound if found == rate else resample_audio(sound, found, rate))
    return [bytes(sound.data) for sound in made]


def _checked(source: Any, rate: int) -> tuple[Channels, int, str]:
    """As _channels. Raises InputError: there are no samples, or too many."""
    channels, found, where = _channels(source, rate)
    count = len(channels[0]) if channels else 0
    if not count:
        raise InputError("there are no samples", where, "Give a recording that is not empty.")
    if max(count, -(-count * rate // found)) > MAX_SAMPLES:
        raise InputError(f"there are {count} samples", where, "Read the recording in parts.")
    return channels, found, where


def check_finite(samples: array.array[float] | memoryview[Any], where: str) -> None:
    """Raises InputError if float32 samples are NaN, infinite, or so large (2^33) that a square or a
    variance of them would be.
    """
    high = bytes(memoryview(samples).cast("B")[3::4])  # signs, and 7 bits of exponents
    if high.translate(None, _ALLOWED):
        raise InputError(
            "samples are not finite, or 2^33 and more", where, "Record or convert it again."
        )


def stream_samples(samples: Any) -> memoryview:
    """The next samples of a stream, float32 [n], as bytes.

    Raises:
        InputError: they have another type, several dimensions or are not finite.
    """
    dtype, shape, data = as_input(samples, "samples", FLOAT)
    if dtype != FLOAT or len(shape) != 1:
        raise InputError(f"samples of shape {shape}", "feed", "Give float32 [n].")
    found = memoryview(data).cast("B") if shape[0] else memoryview(b"")
    check_finite(found, "feed")
    return found


Channels = list["array.array[float]"]


def _channels(source: Any, rate: int) -> tuple[Channels, int, str]:
    """(samples of each channel, their rate, name for errors)"""
    if isinstance(source, dict):
        unknown = set(source) - {"array", "raw", "sampling_rate", "path"}
        values = source.get("array", source.get("raw"))
        if unknown or values is None or "sampling_rate" not in source:
            raise InputError(
                f"a dict with {', '.join(map(repr, source)) or 'nothing'} is not sound",
                "audio",
                'Give "array" (or "raw") and "sampling_rate".',
            )
        return _of_array(values), sampling_rate(source["sampling_rate"]), "audio"
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if isinstance(path, str) and path.startswith(("http://", "https://")):
            raise InputError(
                "Python does not fetch sound", path, "Download it, and give the file's path."
            )
        try:
            with open(path, "rb") as file:
                content = file.read()
        except (OSError, ValueError) as e:  # ValueError: a zero byte in the path
            raise file_error(e)(f"it cannot be read ({e})", str(path), "Check the path.") from None
        return (*_of_file(content, str(path)), str(path))
    if isinstance(source, (bytes, bytearray)):
        return (*_of_file(bytes(source), "audio"), "audio")
    return _of_array(source), sampling_rate(rate), "audio"


def _of_array(values: Any) -> Channels:
    """The channels of an array [n] or [channels, n]."""
    dtype, shape, data = as_input(values, "audio", FLOAT)
    if not 1 <= len(shape) <= 2 or (len(shape) == 2 and shape[0] > 64):
        raise InputError(
            f"an array of shape {shape} is not sound", "audio", "Give samples [n] or [channels, n]."
        )
    count = shape[-1]
    raw = memoryview(data).cast("B") if count else memoryview(b"")
    if dtype == FLOAT:
        flat = array.array("f", raw.tobytes())
    elif dtype == DOUBLE:
        flat = array.array("f", array.array("d", raw.tobytes()))
    elif dtype == INT16:
        flat = array.array("f", map((1 / 32768).__mul__, array.array("h", raw.tobytes())))
    elif dtype in (INT32, INT64) and isinstance(values, (list, tuple)):
        flat = array.array("f", unpack(dtype, raw.tobytes(), count * (len(shape) == 1 or shape[0])))
    else:
        raise InputError(
            "its type is neither a float nor int16", "audio", "Convert it to float32, -1 to 1."
        )
    if len(shape) == 1:
        return [flat]
    return [flat[i * count : (i + 1) * count] for i in range(shape[0])]


def mean(channels: Sequence[array.array[float]]) -> array.array[float]:
    """The mean of channels."""
    share = 1 / len(channels)
    return array.array("f", (sum(values) * share for values in zip(*channels, strict=True)))


def _of_file(data: bytes, where: str) -> tuple[Channels, int]:
    """(channels, rate) of a file's bytes."""
    if not data:
        raise InputError("the file is empty", where, "Give a recording.")
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        wav = read_wav(data, where)
        if wav is not None:
            flat = wav.samples()
            rate = sampling_rate(wav.rate, where)
            return [flat[c :: wav.channels] for c in range(wav.channels)], rate
    try:
        import soundfile
    except (ImportError, OSError):
        raise InputError(
            "the file is not WAV, and reading others needs the package soundfile",
            where,
            "pip install edgewise[audio], or convert it to WAV.",
        ) from None
    try:
        values, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except (RuntimeError, ValueError, TypeError) as e:
        raise InputError(
            f"the sound cannot be decoded ({e})",
            where,
            "It is damaged or of a format that libsndfile does not have: convert it to WAV.",
        ) from None
    columns = [array.array("f", values[:, c].tobytes()) for c in range(values.shape[1])]
    return columns, sampling_rate(rate, where)
