"""Recordings in overlapping chunks, as of transformers' automatic-speech-recognition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ...errors import InputError
from ..native import listed, option, written
from ..options import refused

MAX_SECONDS = 1e9  # of a chunk or an overlap


class Chunk(NamedTuple):
    """A part of a recording, in samples.

    Attributes:
        start, length: where it begins, and its length.
        left, right: how much of it the chunks before and after have, too.
    """

    start: int
    length: int
    left: int
    right: int


@dataclass(frozen=True)
class Hear:
    """Answer: the tokens of samples [start, start + length) of the recording."""

    start: int
    length: int
    kind: Literal["hear"] = "hear"


@dataclass(frozen=True)
class Done:
    """Tell of the samples that are done. No answer."""

    done: int
    total: int
    kind: Literal["done"] = "done"


def chunk_lengths(
    seconds: object, stride: object, rate: int, multiple: int = 1
) -> tuple[int, int, int]:
    """Samples of a chunk and of its overlaps at the left and right, multiples of `multiple`.

    Args:
        seconds, stride: the options chunk_length_s and stride_length_s.
        rate: Hz.
        multiple: samples of a frame.

    Raises:
        InputError: chunks do not advance, or a value is no time.
    """
    chunk = _time(seconds)
    if chunk is None:
        raise refused("chunk_length_s", seconds, "Give seconds.")
    given = chunk / 6 if stride is None else stride
    sides = listed(given)
    both: list[Any] = [given, given] if sides is None else sides
    times = [x for x in map(_time, both) if x is not None]
    if len(both) != 2 or len(times) != 2:
        raise refused("stride_length_s", stride, "Give seconds, or [left, right].")
    size, before, after = [int(round(s * rate / multiple) * multiple) for s in [chunk, *times]]
    if size <= before + after:
        raise InputError(
            f"chunks of {written(seconds)} s with overlaps of {written(both[0])} and"
            f" {written(both[1])} s do not advance",
            option("stride_length_s"),
            "Give a smaller overlap.",
        )
    return size, before, after


def _time(value: Any) -> float | None:
    """Seconds; None where a value is no time."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if known and 0 <= value < MAX_SECONDS else None


def chunks_of(length: int, size: int, before: int, after: int) -> list[Chunk]:
    """The chunks of a recording, as transformers' `chunk_iter`.

    Args:
        length: samples of the recording.
        size, before, after: samples of a chunk and of its overlaps, which are shorter than it.
    """
    found: list[Chunk] = []
    start = 0
    while start < length:
        last = start + size >= length
        count = min(size, length - start)
        left = 0 if start == 0 else before
        if count > left:
            found.append(Chunk(start, count, left, 0 if last else after))
        if last:
            break
        start += size - before - after
    return found


def joined_tokens(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """The tokens of two overlapping chunks, common ones once. Mirrors transformers'
    `_find_longest_common_sequence`.
    """
    best, at = 0.0, 0
    for size in range(1, min(len(before), len(after)) + 1):
        start = len(before) - size
        same = 0
        for i in range(size):
            if before[start + i] == after[i]:
                same += 1
        share = same / size + size / 10000  # prefers long ones
        if same > 1 and share > best:
            best, at = share, size
    return [*before, *after[at:]]
