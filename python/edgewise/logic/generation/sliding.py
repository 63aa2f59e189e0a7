"""Caches of layers with a sliding window: positions that no later token sees are dropped, and the
rows after them move down. They are dropped in blocks, so that products over the others have the
order, and the results the bits, that they have with all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ..manifest.schema import Cache, SlidingWindow

BLOCK = 128
"""Positions that are dropped at once, or a multiple of them."""


class CacheWindow(TypedDict):
    """The window of the caches of a decoder.

    Fields:
        size: positions that a token sees, with its own.
        rows: of such a cache.
        dropped: maximum of the positions that are dropped: those after them fill the rows.
    """

    size: int
    rows: int
    dropped: int


def window_of(window: SlidingWindow | None, capacity: int) -> CacheWindow | None:
    """The window of a manifest's decoder; None: it has none.

    Args:
        window: of the manifest.
        capacity: maximum tokens of a sequence.
    """
    if window is None:
        return None
    size, rows = window["size"], window["rows"]
    return {"size": size, "rows": rows, "dropped": max(0, capacity - rows)}


def rows_of(size: int, longest: int) -> int:
    """The rows of a cache of a sliding window: those that are seen, those of a run, and room for
    tokens between two moves. So many can be cut off again.

    Args:
        size: positions that a token sees, with its own.
        longest: most tokens of a run.
    """
    return _blocks(size - 1) + BLOCK + _blocks(longest)


def _blocks(count: int) -> int:
    return (count + BLOCK - 1) // BLOCK * BLOCK


def first_seen(window: CacheWindow | None, length: int) -> int:
    """The first position that a cache holds for tokens after `length` others: the beginning of the
    block of the first one that they see, but none after which rows of the cache would be left over.
    """
    if window is None:
        return 0
    first = max(0, length - window["size"] + 1)
    return min(first - first % BLOCK, window["dropped"])


def dropped_for(window: CacheWindow | None, dropped: int, past: int, count: int) -> int:
    """The positions that are dropped before a run.

    Args:
        window: of the caches; None: there are none.
        dropped: positions that are dropped already.
        past: tokens before the run.
        count: of the run.
    """
    if window is None:
        return 0
    return dropped + _blocks(max(0, past - dropped + count - window["rows"]))


def rows_in(cache: Cache, room: int) -> int:
    """The rows of each part of a cache that grows, with room for so many tokens."""
    rows = cache.get("rows")
    size = 0 if rows is None else rows[0] * rows[1]
    return room if size == 0 else min(room, cache["bytes"] // size)


def shifts(cache: Cache, held: int, by: int, room: int) -> list[tuple[int, int, int]]:
    """(offset, offset that they move to, bytes) of the rows of a cache when some are dropped. Both
    places may overlap.

    Args:
        cache: of the manifest, of a sliding window.
        held: rows of it.
        by: those that are dropped.
        room: tokens that caches have room for.
    """
    rows = cache.get("rows")
    if rows is None or by == 0 or held <= by:
        return []
    row, part = rows[1], rows_in(cache, room) * rows[1]
    return [(i * part + by * row, i * part, (held - by) * row) for i in range(rows[0])]


def first_of(cache: Cache, window: CacheWindow | None, count: int) -> int:
    """The first position in a copy of the states after `count` tokens."""
    return first_seen(window, count) if cache.get("sliding") else 0


def spans(
    cache: Cache, window: CacheWindow | None, room: int, count: int, dropped: int
) -> list[tuple[int, int]]:
    """(offset, bytes) of the states after `count` tokens in a cache; all of one of a fixed shape.

    Args:
        cache: of the manifest.
        window: of caches of a sliding window.
        room: tokens that the cache has room for.
        count: tokens.
        dropped: positions that caches of a sliding window have dropped.
    """
    rows = cache.get("rows")
    if rows is None:
        return [(0, cache["bytes"])]
    row, part, first = rows[1], rows_in(cache, room), first_of(cache, window, count)
    at = first - dropped if cache.get("sliding") else 0
    return [((i * part + at) * row, (count - first) * row) for i in range(rows[0])]


def marked_bytes(caches: Sequence[Cache], window: CacheWindow | None, count: int) -> int:
    """The bytes of a copy of the states after `count` tokens that cannot be cut."""
    sizes = [n for c in caches if marked(c) for _, n in spans(c, window, count, count, 0)]
    return sum(sizes)


def marked(cache: Cache) -> bool:
    """Whether a cache cannot be cut to every length."""
    return cache.get("fixed") is True or cache.get("sliding") is True
