"""Runs of "pre", which computes the numbers of so many pixels at once."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PIXELS = 1 << 16
"""Pixels whose numbers are computed at once."""


@dataclass
class Stretch:
    """Numbers of a picture, one after the other, of those that a run of "pre" gives.

    Attributes:
        source: index of the first one in the result.
        target: in the numbers of the picture.
        count: how many.
    """

    source: int
    target: int
    count: int


@dataclass
class Batch:
    """A run of "pre": consecutive pieces, or pixels of a picture that is not cut.

    Attributes:
        first: index of the first one.
        dims: of the run's input, bytes of red, green and blue.
        stretches: where its numbers belong.
    """

    first: int
    dims: list[int]
    stretches: list[Stretch]


def pixel_batches(size: int) -> list[Batch]:
    """The runs of "pre" for a picture that is not cut. size: its pixels."""
    out: list[Batch] = []
    for at in range(0, size, MAX_PIXELS):
        count = min(MAX_PIXELS, size - at)
        planes = [Stretch(c * count, c * size + at, count) for c in range(3)]
        out.append(Batch(at, [1, count, 1, 3], planes))
    return out
