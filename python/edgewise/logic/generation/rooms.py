"""The memory of a sequence, which grows with it: caches have room for some tokens, and are replaced
by larger ones when these are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..manifest.limits import ROOM_STEP
from ..manifest.schema import Cache, DecoderPlan
from .chunks import PlanRun
from .sliding import rows_in


def grows(plans: Sequence[DecoderPlan]) -> bool:
    """Whether the plans of a decoder take caches with room for fewer tokens than the capacity."""
    return plans[0]["registers"].get("room") is not None


def first_room(capacity: int, growing: bool) -> int:
    """The tokens that a new sequence has room for.

    Args:
        capacity: most tokens of a sequence.
        growing: whether caches grow.
    """
    return min(ROOM_STEP, capacity) if growing else capacity


def next_room(room: int, count: int, capacity: int) -> int:
    """The tokens to have room for where `count` are there: half as many more as before, so that
    few are copied.

    Args:
        room: that there is.
        count: tokens.
        capacity: most tokens of a sequence.
    """
    return least_room(max(count, room + room // 2), capacity)


def least_room(count: int, capacity: int) -> int:
    """The least room for so many tokens."""
    steps = (max(count, 1) + ROOM_STEP - 1) // ROOM_STEP
    return min(capacity, steps * ROOM_STEP)


def needed(runs: Sequence[PlanRun]) -> int:
    """The tokens that runs need room for, those included that pad a plan."""
    return max([run.past + run.size for run in runs])


def cache_bytes(cache: Cache, room: int) -> int:
    """The bytes of a cache with room for so many tokens.

    Args:
        cache: of the manifest.
        room: tokens.
    """
    rows = cache.get("rows")
    return cache["bytes"] if rows is None else rows[0] * rows[1] * rows_in(cache, room)


def sequence_bytes(caches: Sequence[Cache], room: int) -> int:
    """The bytes of all caches of a sequence with room for so many tokens."""
    return sum([cache_bytes(cache, room) for cache in caches])


def moves(cache: Cache, count: int, room: int, larger: int) -> list[tuple[int, int, int]]:
    """(offset, offset in the larger cache, bytes) of what is copied when a cache is replaced.

    Args:
        cache: of the manifest, which grows.
        count: rows that are there.
        room: of the cache.
        larger: room of the one in its place.
    """
    rows = cache.get("rows")
    if rows is None:
        return [(0, 0, cache["bytes"])]
    row = rows[1]
    if count == 0:
        return []
    part, new = rows_in(cache, room) * row, rows_in(cache, larger) * row
    return [(i * part, i * new, count * row) for i in range(rows[0])]
