"""Keypoints from heatmaps. Mirrors post_process_pose_estimation of transformers' image processor
for ViTPose: the greatest number of each map, moved by a second-order expansion of the logarithm of
the blurred map (DARK of Zhang et al., 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

KERNEL = 11
"""Side of the Gaussian in numbers of a heatmap."""
SIGMA = 0.8
MIN_HEAT = 0.001
MAX_HEAT = 50.0
EPSILON = 1.1920928955078125e-07  # of float32

Point = tuple[float, float]


def strongest(maps: Sequence[float], count: int) -> list[tuple[int, float]]:
    """The place of the greatest number of each map, and this number. maps: [count, cells]."""
    cells = len(maps) // count if count else 0
    found: list[tuple[int, float]] = []
    for k in range(count):
        best, at = -math.inf, 0
        for i in range(cells):
            heat = maps[k * cells + i]
            if heat > best:
                best, at = heat, i
        found.append((at, best))
    return found


class Blurred:
    """The logarithm of blurred heatmaps, which is computed where it is asked for.

    Args:
        maps: [count, height, width], flat.
        count: how many maps.
        height, width: of a map.
        kernel: side of the Gaussian.
    """

    def __init__(
        self, maps: Sequence[float], count: int, height: int, width: int, kernel: int
    ) -> None:
        self._maps = maps
        self._count = count
        self._height = height
        self._width = width
        self._radius = (kernel - 1) // 2
        numbers = range(0 - self._radius, self._radius + 1)
        powers = [math.exp(-0.5 * (i / SIGMA) ** 2) for i in numbers]
        total = sum(powers)
        self._weights = [p / total for p in powers]

    def padded(self, at: int) -> float:
        """A number of the maps, each with a margin of one, one after the other.

        transformers reads beyond a map where it has no positive number: of the one before it, or
        for the first map of the last one.
        """
        across = self._width + 2
        cells = (self._height + 2) * across
        place = at % (cells * self._count)
        k, rest = place // cells, place % cells
        y = min(max(rest // across - 1, 0), self._height - 1)
        x = min(max(rest % across - 1, 0), self._width - 1)
        return self._logarithm(k, y, x)

    def _logarithm(self, k: int, y: int, x: int) -> float:
        total = 0.0
        for i, down in enumerate(self._weights):
            row = _mirrored(y + i - self._radius, self._height)
            line = (k * self._height + row) * self._width
            part = 0.0
            for j, across in enumerate(self._weights):
                part += across * self._maps[line + _mirrored(x + j - self._radius, self._width)]
            total += down * part
        return math.log(min(max(total, MIN_HEAT), MAX_HEAT))


def _mirrored(at: int, size: int) -> int:
    """A place in a row that its mirror image continues, with the edge repeated."""
    rest = at % (2 * size)
    return rest if rest < size else 2 * size - 1 - rest


def refined(
    maps: Sequence[float], count: int, height: int, width: int, kernel: int = KERNEL
) -> list[tuple[Point, float]]:
    """The keypoints of one person.

    Args:
        maps: [count, height, width], flat.
        count: keypoints.
        height: of a map.
        width: of a map.
        kernel: side of the Gaussian.

    Returns:
        ((x, y) in cells of the map, score) of each
    """
    blurred = Blurred(maps, count, height, width, kernel)
    across, cells = width + 2, (width + 2) * (height + 2)
    found: list[tuple[Point, float]] = []
    for k, (at, score) in enumerate(strongest(maps, count)):
        x, y = (at % width, at // width) if score > 0 else (-1, -1)
        place = k * cells + x + 1 + (y + 1) * across
        here = blurred.padded(place)
        right, left = blurred.padded(place + 1), blurred.padded(place - 1)
        below, above = blurred.padded(place + across), blurred.padded(place - across)
        after, before = blurred.padded(place + across + 1), blurred.padded(place - across - 1)
        dx, dy = 0.5 * (right - left), 0.5 * (below - above)
        dxx = right - 2 * here + left + EPSILON
        dyy = below - 2 * here + above + EPSILON
        dxy = 0.5 * (after - right - below + here + here - left - above + before)
        divisor = dxx * dyy - dxy * dxy
        if divisor == 0:
            found.append(((x, y), score))
            continue
        moved = (dyy * dx - dxy * dy) / divisor, (dxx * dy - dxy * dx) / divisor
        found.append(((x - moved[0], y - moved[1]), score))
    return found
