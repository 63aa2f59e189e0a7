"""Features of the tiles of a picture as one grid: LLaVA-OneVision, LLaVA-NeXT. Mirrors
pack_image_features of transformers/models/llava_onevision/modeling_llava_onevision.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...images.geometry import Size
from ...images.views import Seen, best_size

NEWLINE = -1
MIXED = -2
"""Pieces besides those of the encoder: the feature that ends a row, and those of `mixes`."""
BLOCK = 64
"""Features that are mixed in one run."""


@dataclass
class Copy:
    """Consecutive features of a piece.

    Attributes:
        piece: 0: the whole picture; then its tiles; or NEWLINE, MIXED.
        first: index of the first one.
        count: how many.
    """

    piece: int
    first: int
    count: int


@dataclass
class Mix:
    """A run that makes BLOCK features, each of four others.

    Attributes:
        sources: (piece, index) of the four of each.
        weights: of these.
        count: features that count; the others fill it up.
    """

    sources: list[tuple[int, int]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    count: int = 0


@dataclass
class Grid:
    """The features of the tiles.

    Attributes:
        side: features along a side of a tile.
        columns: of tiles.
        top, left: features before those that are no padding.
        high, wide: these.
        rows, across: features of the result, which is smaller where there are too many.
    """

    side: int
    columns: int
    top: int
    left: int
    high: int
    wide: int
    rows: int
    across: int


def grid_of(count: int, sizes: Sequence[Size], most: int, picture: Seen) -> Grid:
    """The features of a picture's tiles.

    Args:
        count: features of a tile.
        sizes: of the processor.
        most: tiles as which the features are kept; 0: all.
        picture: what the model sees.
    """
    side, tile = round(math.sqrt(count)), picture.piece[0]
    height, width = picture.size
    tall, broad = best_size(sizes, height, width)
    high, wide = side * (tall // tile), side * (broad // tile)
    columns, top, left = broad // tile, 0, 0
    if width / height > wide / high:
        new = int(round(height * (wide / width) * 1e7) / 1e7)
        top = (high - new) // 2
        high -= 2 * top
    else:
        new = int(round(width * (high / height) * 1e7) / 1e7)
        left = (wide - new) // 2
        wide -= 2 * left
    rows, across = high, wide
    if most:
        ratio = math.sqrt(high * wide / (most * side * side))
        if ratio > 1.1:
            rows, across = math.floor(high / ratio), math.floor(wide / ratio)
    return Grid(side, columns, top, left, high, wide, rows, across)


def _place(grid: Grid, row: int, column: int) -> tuple[int, int]:
    """The piece and the index there of a feature of the part that is no padding."""
    y, x = row + grid.top, column + grid.left
    piece = 1 + y // grid.side * grid.columns + x // grid.side
    return piece, y % grid.side * grid.side + x % grid.side


def copies(grid: Grid) -> list[Copy]:
    """The features of a picture: those of the whole, and the rows of its tiles, each followed by
    the feature that ends a row.
    """
    found = [Copy(0, 0, grid.side * grid.side)]
    shrunk = (grid.rows, grid.across) != (grid.high, grid.wide)
    for row in range(grid.rows):
        if shrunk:
            found.append(Copy(MIXED, row * grid.across, grid.across))
        column = grid.wide if shrunk else 0
        while column < grid.wide:
            piece, first = _place(grid, row, column)
            count = min(grid.side - (column + grid.left) % grid.side, grid.wide - column)
            found.append(Copy(piece, first, count))
            column += count
        found.append(Copy(NEWLINE, 0, 1))
    return found


def mixes(grid: Grid) -> list[Mix]:
    """The runs that make a smaller grid of features, bilinearly; none where it is small enough."""
    if (grid.rows, grid.across) == (grid.high, grid.wide):
        return []
    runs: list[Mix] = []
    columns = [_between(i, grid.wide, grid.across) for i in range(grid.across)]
    for row in range(grid.rows):
        low, high, down = _between(row, grid.high, grid.rows)
        for left, right, over in columns:
            if not runs or runs[-1].count == BLOCK:
                runs.append(Mix())
            run = runs[-1]
            run.count += 1
            run.sources += [_place(grid, low, left), _place(grid, low, right)]
            run.sources += [_place(grid, high, left), _place(grid, high, right)]
            up = 1 - down
            run.weights += [up * (1 - over), up * over, down * (1 - over), down * over]
    last = runs[-1]
    last.sources += [(0, 0)] * (4 * (BLOCK - last.count))
    last.weights += [0.0] * (4 * (BLOCK - last.count))
    return runs


def _between(i: int, size: int, new: int) -> tuple[int, int, float]:
    """Where the middle of one of `new` parts of a line of `size` is: indices of the numbers before
    and after it, and the part of the second one.
    """
    at = max((i + 0.5) * (size / new) - 0.5, 0.0)
    low = min(math.floor(at), size - 1)
    return low, min(low + 1, size - 1), at - low
