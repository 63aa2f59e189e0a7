"""Log-mel features of recordings of any length for Whisper: clips of one graph side by side,
normalized over the whole recording, of which hosts hold no more than they need.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from ..native import f32

HOP = 160  # samples of a frame, of all of Whisper's models
LOWEST = -1e30  # a floor that changes nothing
REFLECTED = 200  # samples after the end: half of the transform's length
BELOW = 8.0  # what is further below the maximum is raised


@dataclass(frozen=True)
class Clip:
    """Run the graph on a clip, with the floor LOWEST. Answer: its highest value."""

    number: int


class Around(NamedTuple):
    """The samples of a clip, and what lies around it: `left` samples of the recording from the
    second one on backwards, `inner` samples from `start` on, `right` samples from the last but one
    on backwards, and zeros.
    """

    start: int
    left: int
    inner: int
    right: int


class Part(NamedTuple):
    """Frames [first, first + length) of a clip, which are [at, at + length) of a window."""

    clip: int
    first: int
    length: int
    at: int


def floor_of(count: int, size: int) -> Generator[Clip, float, float]:
    """The floor of a recording's features.

    Args:
        count: samples of the recording.
        size: samples of a clip.
    """
    floor = LOWEST
    for number in range(-(-count // size)):
        highest = yield Clip(number)
        floor = max(floor, highest - BELOW)
    return f32(floor)


def around(number: int, size: int, width: int, count: int) -> Around:
    """The samples that the graph gets for a clip.

    Args:
        number: of the clip.
        size: samples of a clip.
        width: samples that the graph takes.
        count: samples of the recording.
    """
    start = number * size - (width - size + HOP) // 2
    left = max(-start, 0)
    first = max(start, 0)
    inner = max(0, min(width - left, count - first))
    return Around(first, left, inner, max(0, min(width - left - inner, REFLECTED, count - 1)))


def parts_of(start: int, size: int, frames: int, columns: int) -> list[Part]:
    """The parts of clips that a window has.

    Args:
        start: first frame of the window.
        size: its frames.
        frames: of the recording; zeros are after the last one.
        columns: frames of a clip.
    """
    parts: list[Part] = []
    at, stop = 0, min(size, frames - start)
    while at < stop:
        clip, first = divmod(start + at, columns)
        length = min(columns - first, stop - at)
        parts.append(Part(clip, first, length, at))
        at += length
    return parts
