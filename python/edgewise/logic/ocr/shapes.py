"""Rectangles around points, and polygons that are made larger: what PP-OCR takes from OpenCV and
Clipper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]
"""x and y."""
Quad = list[Point]
"""Four corners: top left, top right, bottom right, bottom left, as the text is read."""
ARC = 8
"""Parts of a quarter turn around a corner."""


@dataclass(frozen=True)
class Rectangle:
    """A rectangle, which may be turned.

    Attributes:
        corners: in order.
        short: length of the shorter side.
    """

    corners: Quad
    short: float


def hull(points: Sequence[Point]) -> list[Point]:
    """The convex hull of points, without those on its sides."""
    ordered = sorted(points, key=lambda p: (p[0], p[1]))
    if len(ordered) < 3:
        return ordered
    lower = _half(ordered)
    upper = _half(list(reversed(ordered)))
    return [*lower[:-1], *upper[:-1]]


def _half(points: Sequence[Point]) -> list[Point]:
    made: list[Point] = []
    for p in points:
        while len(made) > 1 and _turn(made[-2], made[-1], p) <= 0:
            made.pop()
        made.append(p)
    return made


def _turn(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def smallest_rectangle(points: Sequence[Point]) -> Rectangle:
    """The rectangle of the least area around points: one side lies on a side of their hull.

    The corners are ordered as get_mini_boxes of PP-OCR does it.
    """
    around = hull(points)
    best, least = _along(around, 1.0, 0.0), math.inf
    for i, a in enumerate(around):
        b = around[(i + 1) % len(around)]
        length = math.hypot(b[0] - a[0], b[1] - a[1])
        if length == 0:
            continue
        found = _along(around, (b[0] - a[0]) / length, (b[1] - a[1]) / length)
        area = found.short * found.long
        if area < least:
            best, least = found, area
    return Rectangle(ordered_corners(best.corners), best.short)


@dataclass(frozen=True)
class _Around:
    corners: list[Point]
    short: float
    long: float


def _along(points: Sequence[Point], x: float, y: float) -> _Around:
    """The rectangle around points with a side in a direction of length 1."""
    first = [p[0] * x + p[1] * y for p in points]
    second = [p[1] * x - p[0] * y for p in points]
    left, right, top, bottom = min(first), max(first), min(second), max(second)
    sides_of: list[Point] = [(left, top), (right, top), (right, bottom), (left, bottom)]
    corners: list[Point] = []
    for u, v in sides_of:
        corners.append((u * x - v * y, u * y + v * x))
    sides = right - left, bottom - top
    return _Around(corners, min(sides[0], sides[1]), max(sides[0], sides[1]))


def ordered_corners(corners: Sequence[Point]) -> Quad:
    """Corners from the top left one on, clockwise, as get_mini_boxes of PP-OCR."""
    points = sorted(corners, key=lambda p: p[0])
    first, last = (0, 1) if points[1][1] > points[0][1] else (1, 0)
    second, third = (2, 3) if points[3][1] > points[2][1] else (3, 2)
    return [points[first], points[second], points[third], points[last]]


def area_of(corners: Sequence[Point]) -> float:
    """The area of a polygon."""
    total = 0.0
    for i, (x, y) in enumerate(corners):
        a, b = corners[(i + 1) % len(corners)]
        total += x * b - a * y
    return abs(total) / 2


def length_of(corners: Sequence[Point]) -> float:
    """The length of a polygon's sides."""
    total = 0.0
    for i, (x, y) in enumerate(corners):
        a, b = corners[(i + 1) % len(corners)]
        total += math.hypot(a - x, b - y)
    return total


def enlarged(corners: Sequence[Point], ratio: float) -> list[Point]:
    """A convex polygon whose sides are moved outwards, with round corners. As pyclipper's offset of
    JT_ROUND, whose coordinates are integers.

    Args:
        corners: of the polygon, clockwise as in pictures.
        ratio: how far, in areas by lengths (`unclip_ratio`).
    """
    length = length_of(corners)
    far = 0.0 if length == 0 else area_of(corners) * ratio / length
    whole: list[Point] = [(float(math.trunc(x)), float(math.trunc(y))) for x, y in corners]
    made: list[Point] = []
    for i, (x, y) in enumerate(whole):
        before, after = whole[(i + len(whole) - 1) % len(whole)], whole[(i + 1) % len(whole)]
        start = math.atan2(before[0] - x, y - before[1])
        end = math.atan2(x - after[0], after[1] - y)
        turn = end - start
        while turn < 0:
            turn += 2 * math.pi
        for k in range(ARC + 1):
            angle = start + turn * k / ARC
            made.append((_nearest(x + far * math.cos(angle)), _nearest(y + far * math.sin(angle))))
    return made


def _nearest(x: float) -> float:
    return float(math.floor(x + 0.5) if x >= 0 else math.ceil(x - 0.5))


def rows_inside(corners: Sequence[Point], top: int, bottom: int) -> list[tuple[int, int]]:
    """The columns, first and last, of each row that a polygon covers, with the pixels of its sides
    (fillPoly of OpenCV); the first after the last where it covers none.

    Args:
        corners: of a convex polygon.
        top, bottom: the rows, of which the last one counts.
    """
    made: list[tuple[int, int]] = []
    for y in range(top, bottom + 1):
        left, right = math.inf, -math.inf
        for i, (ax, ay) in enumerate(corners):
            bx, by = corners[(i + 1) % len(corners)]
            # Of a flat side a row has all pixels that are nearest to it.
            half = 0.5 if abs(bx - ax) > abs(by - ay) else 0.0
            low, high = max(min(ay, by), y - half), min(max(ay, by), y + half)
            if low > high:
                continue
            ends = [ax, bx]
            if ay != by:
                slope = (bx - ax) / (by - ay)
                ends = [ax + (low - ay) * slope, ax + (high - ay) * slope]
            left, right = min(left, ends[0], ends[1]), max(right, ends[0], ends[1])
        made.append((round(left), round(right)) if left <= right else (0, -1))
    return made


def unit_to_quad(quad: Quad) -> list[float]:
    """The projection of the unit square to four corners: of (u, v) the point
    ((m[0] u + m[1] v + m[2]) / w, (m[3] u + m[4] v + m[5]) / w), w being m[6] u + m[7] v + 1.
    """
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = quad
    dx, dy = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3
    if dx == 0 and dy == 0:
        return [x1 - x0, x3 - x0, x0, y1 - y0, y3 - y0, y0, 0.0, 0.0]
    ax, ay, bx, by = x1 - x2, y1 - y2, x3 - x2, y3 - y2
    divisor = ax * by - bx * ay
    if divisor == 0:
        return [x1 - x0, x3 - x0, x0, y1 - y0, y3 - y0, y0, 0.0, 0.0]
    g, h = (dx * by - bx * dy) / divisor, (ax * dy - dx * ay) / divisor
    across = [x1 - x0 + g * x1, x3 - x0 + h * x3, x0]
    return [*across, y1 - y0 + g * y1, y3 - y0 + h * y3, y0, g, h]
