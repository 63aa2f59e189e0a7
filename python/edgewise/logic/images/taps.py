"""Filters that Pillow does not have: for each position of a result, the positions of the source
that it is computed from, and their weights. Rows and columns are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Filter = Literal["linear", "cubic", "gaussian"]
OWN = ("linear", "gaussian")
"""Filters of image processors that are none of the engine's."""


@dataclass
class Taps:
    """What the positions of a result are computed from.

    Attributes:
        count: positions of the source for each position of the result.
        at: these positions, `count` for each.
        weights: of these.
    """

    count: int
    at: list[int]
    weights: list[float]


def taps(filter_name: Filter, size: int, out: int) -> Taps:
    """The positions that each position of the result is computed from.

    Args:
        filter_name: "linear" and "cubic" as torch.nn.functional.interpolate has them with
            align_corners=False and without antialias; "gaussian" as skimage.transform.resize: what
            is reduced is blurred first.
        size: of the source.
        out: of the result.
    """
    if filter_name == "gaussian":
        return _gaussian(size, out)
    cubic = filter_name == "cubic"
    made = Taps(4 if cubic else 2, [], [])
    for i in range(out):
        x = (i + 0.5) * size / out - 0.5
        if not cubic:
            x = max(x, 0.0)
        low = math.floor(x)
        for k, weight in enumerate(_cubic(x - low) if cubic else [1 - (x - low), x - low]):
            made.at.append(min(max(low + k - (1 if cubic else 0), 0), size - 1))
            made.weights.append(weight)
    return made


def straight(start: float, step: float, size: int, out: int) -> Taps:
    """The positions for a part of the source: linear between them, and nothing outside.

    Args:
        start: in the source, of the first position of the result.
        step: in the source, from one position of the result to the next.
        size: of the source.
        out: of the result.
    """
    made = Taps(2, [], [])
    for i in range(out):
        x = i * step + start
        inside = 0 <= x <= size - 1
        low = math.floor(x) if inside else 0
        made.at += [low, min(low + 1, size - 1)]
        made.weights += [1 - (x - low), x - low] if inside else [0.0, 0.0]
    return made


def _cubic(rest: float) -> list[float]:
    a = -0.75

    def near(x: float) -> float:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: float) -> float:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(rest + 1), near(rest), near(1 - rest), far(2 - rest)]


def _gaussian(size: int, out: int) -> Taps:
    """A Gaussian, then "linear"; the edges are mirrored, without the pixel at the edge."""
    factor = size / out
    sigma = max((factor - 1) / 2, 0.0)
    radius = int(4 * sigma + 0.5)
    kernel = [math.exp(-0.5 * (k / sigma) ** 2) if k else 1.0 for k in range(-radius, radius + 1)]
    total = sum(kernel)
    kernel = [0.0, *[x / total for x in kernel], 0.0]
    made = Taps(2 * radius + 2, [], [])
    last = size - 1
    for i in range(out):
        x = abs((i + 0.5) * factor - 0.5)
        x = min(x, 2 * last - x) if x > last else x
        low = math.floor(x)
        rest = x - low
        for k in range(made.count):
            made.at.append(_mirrored(low + k - radius, last))
            made.weights.append((1 - rest) * kernel[k + 1] + rest * kernel[k])
    return made


def _mirrored(at: int, last: int) -> int:
    if last == 0:
        return 0
    rest = abs(at) % (2 * last)
    return min(rest, 2 * last - rest)


def composed(outer: Taps, inner: Taps) -> Taps:
    """The positions of `inner`'s source that `outer`, applied to its result, is computed from."""
    made = Taps(outer.count * inner.count, [], [])
    for at, weight in zip(outer.at, outer.weights):
        for k in range(at * inner.count, (at + 1) * inner.count):
            made.at.append(inner.at[k])
            made.weights.append(weight * inner.weights[k])
    return made
