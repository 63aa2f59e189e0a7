"""Recordings in overlapping chunks, as of transformers' automatic-speech-recognition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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
