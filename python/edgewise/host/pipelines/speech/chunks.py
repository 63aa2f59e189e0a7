"""Recordings in overlapping chunks, as of transformers' automatic-speech-recognition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....compiler.arrays import Array
from ....errors import InputError
from ....logic.speech.chunks import Chunk, chunks_of
from ...media.recording import Samples, part

__all__ = ["chunk_lengths", "sound_and_others", "sound_chunks"]

LONGEST = 1e9  # seconds of a chunk or an overlap
_SOUND = ("raw", "array", "sampling_rate", "path")


def sound_and_others(given: Any) -> tuple[Any, dict[str, Any]]:
    """An input of a call, and the other entries of it, which belong into the result."""
    if not isinstance(given, Mapping):
        return given, {}
    return (
        {name: value for name, value in given.items() if name in _SOUND},
        {name: value for name, value in given.items() if name not in _SOUND},
    )


def chunk_lengths(
    seconds: float, stride: float | Sequence[float] | None, rate: int, multiple: int = 1
) -> tuple[int, int, int]:
    """Samples of a chunk and of its overlaps at the left and right, multiples of `multiple`.

    Args:
        seconds, stride: the options chunk_length_s and stride_length_s.
        rate: Hz.
        multiple: samples of a frame.

    Raises:
        InputError: chunks do not advance, or a value is no time.
    """
    if not _is_time(seconds):
        raise InputError(f"it is {seconds!r}", "chunk_length_s", "Give seconds.")
    stride = seconds / 6 if stride is None else stride
    sides: list[Any] = list(stride) if isinstance(stride, (list, tuple)) else [stride, stride]
    if len(sides) != 2 or not all(_is_time(side) for side in sides):
        raise InputError(f"it is {stride!r}", "stride_length_s", "Give seconds, or [left, right].")
    left, right = sides
    size, before, after = (
        int(round(s * rate / multiple) * multiple) for s in (seconds, left, right)
    )
    if size <= before + after:
        raise InputError(
            f"chunks of {seconds} s with overlaps of {left} and {right} s do not advance",
            "stride_length_s",
            "Give a smaller overlap.",
        )
    return size, before, after


def _is_time(seconds: Any) -> bool:
    return (
        isinstance(seconds, (int, float))
        and not isinstance(seconds, bool)
        and 0 <= seconds < LONGEST
    )


def sound_chunks(
    samples: Samples, size: int, before: int, after: int
) -> Iterator[tuple[Array, Chunk]]:
    """Overlapping chunks of a recording, with their samples.

    Args:
        samples: of the recording.
        size, before, after: samples of a chunk and of its overlaps.
    """
    for chunk in chunks_of(samples.size, size, before, after):
        data = part(samples, chunk.start, chunk.length)
        yield Array((len(data) // 4,), "float32", data), chunk
