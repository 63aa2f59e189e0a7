"""Boxes of text from the map of a detector, as DBPostProcess of PP-OCR finds them: connected parts
of the map, the smallest rectangle around each, and the rectangle made larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..images.geometry import Size
from ..native import next_one
from ..tasks.inputs import Values
from .shapes import Point, Quad, enlarged, rows_inside, smallest_rectangle

MAX_CANDIDATES = 1000
MIN_SIDE = 3
"""Of a rectangle, in numbers of the map, and of the result in pixels."""
SAME_LINE = 10
"""Boxes whose tops differ by less are of one line."""


@dataclass(frozen=True)
class Finding:
    """How boxes are found.

    Attributes:
        thresh: numbers of the map above it are text.
        box_thresh: the mean within a box is at least this.
        unclip_ratio: how far boxes are made larger.
    """

    thresh: float
    box_thresh: float
    unclip_ratio: float


class _Parts:
    """Runs of text in rows, and which are connected."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.parents: list[int] = []

    def add(self, y: int, start: int, end: int) -> None:
        self.rows.append(y)
        self.starts.append(start)
        self.ends.append(end)
        self.parents.append(len(self.parents))

    def root(self, i: int) -> int:
        while self.parents[i] != i:
            self.parents[i] = self.parents[self.parents[i]]
            i = self.parents[i]
        return i

    def join(self, first: int, second: int, stop: int) -> None:
        """Connects the runs of two rows that touch, also at corners: those from `first` and those
        from `second` on.
        """
        i, j = first, second
        while i < second and j < stop:
            if self.starts[i] <= self.ends[j] and self.starts[j] <= self.ends[i]:
                a, b = self.root(i), self.root(j)
                self.parents[max(a, b)] = min(a, b)
            if self.ends[i] < self.ends[j]:
                i += 1
            else:
                j += 1


def parts_of(mask: bytes, height: int, width: int) -> list[list[Point]]:
    """The outermost points of each connected part of a mask.

    Args:
        mask: [height, width], 1 or 0.
        height: of the mask.
        width: of the mask.
    """
    parts = _Parts()
    before = 0
    for y in range(height):
        first, at, stop = len(parts.rows), y * width, (y + 1) * width
        while True:
            start = next_one(mask, 1, at, stop)
            if start < 0:
                break
            end = next_one(mask, 0, start, stop)
            at = stop if end < 0 else end
            parts.add(y, start - y * width, at - y * width)
        parts.join(before, first, len(parts.rows))
        before = first
    found: dict[int, list[Point]] = {}
    for i, y in enumerate(parts.rows):
        root = parts.root(i)
        of = found.get(root, [])
        of.append((float(parts.starts[i]), float(y)))
        of.append((float(parts.ends[i] - 1), float(y)))
        found[root] = of
    return list(found.values())


def boxes_of_text(maps: Values, mask: bytes, how: Finding, size: Size, margin: int) -> list[Quad]:
    """The boxes of text in a picture, in the order in which they are read.

    Args:
        maps: of the detector, [1, 1, height, width].
        mask: the numbers above the threshold, [height, width].
        how: they are found.
        size: height and width of the picture.
        margin: rows that were added above and below the picture.
    """
    rows, columns = maps.dims[2], maps.dims[3]
    height, width = size[0] + 2 * margin, size[1]
    found: list[Quad] = []
    for points in parts_of(mask, rows, columns)[:MAX_CANDIDATES]:
        inner = smallest_rectangle(points)
        if inner.short < MIN_SIDE:
            continue
        if mean_within(maps.data, rows, columns, inner.corners) < how.box_thresh:
            continue
        outer = smallest_rectangle(enlarged(inner.corners, how.unclip_ratio))
        if outer.short < MIN_SIDE + 2:
            continue
        placed: list[Point] = []
        for x, y in outer.corners:
            at_x = min(max(round(x / columns * width), 0), width)
            at_y = min(max(round(y / rows * height), 0), height) - margin
            placed.append((at_x, at_y))
        box = _clipped(_clockwise(placed), size)
        if box is not None:
            found.append(box)
    return in_order(found)


def mean_within(data: Sequence[float], height: int, width: int, corners: Quad) -> float:
    """The mean of a map within a rectangle (box_score_fast of PP-OCR)."""
    xs, ys = [p[0] for p in corners], [p[1] for p in corners]
    left = min(max(math.floor(min(xs)), 0), width - 1)
    right = min(max(math.ceil(max(xs)), 0), width - 1)
    top = min(max(math.floor(min(ys)), 0), height - 1)
    bottom = min(max(math.ceil(max(ys)), 0), height - 1)
    whole: list[Point] = []
    for x, y in corners:
        whole.append((float(math.trunc(x - left) + left), float(math.trunc(y - top) + top)))
    total, count = 0.0, 0
    for i, (first, last) in enumerate(rows_inside(whole, top, bottom)):
        start, end = max(first, left), min(last, right) + 1
        if end > start:
            at = (top + i) * width
            total += sum(data[at + start : at + end])
            count += end - start
    return total / count if count else 0.0


def _clockwise(points: Sequence[Point]) -> Quad:
    """As order_points_clockwise of PP-OCR."""
    ordered = sorted(points, key=lambda p: p[0])
    left = sorted(ordered[:2], key=lambda p: p[1])
    right = sorted(ordered[2:], key=lambda p: p[1])
    return [left[0], right[0], right[1], left[1]]


def _clipped(quad: Quad, size: Size) -> Quad | None:
    """A box within the picture; None if it is too small."""
    height, width = size
    made: Quad = []
    for x, y in quad:
        made.append((min(max(x, 0), width - 1), min(max(y, 0), height - 1)))
    across = math.hypot(made[1][0] - made[0][0], made[1][1] - made[0][1])
    down = math.hypot(made[3][0] - made[0][0], made[3][1] - made[0][1])
    return None if int(across) <= MIN_SIDE or int(down) <= MIN_SIDE else made


def in_order(boxes: Sequence[Quad]) -> list[Quad]:
    """Boxes from top to bottom, and those of a line from left to right."""
    made = sorted(boxes, key=lambda q: (q[0][1], q[0][0]))
    for i in range(len(made) - 1):
        for j in range(i, -1, -1):
            a, b = made[j], made[j + 1]
            if abs(b[0][1] - a[0][1]) >= SAME_LINE or b[0][0] >= a[0][0]:
                break
            made[j], made[j + 1] = b, a
    return made
