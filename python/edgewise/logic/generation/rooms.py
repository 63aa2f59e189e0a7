"""The memory of a sequence, which grows with it: caches have room for some tokens, and are replaced
by larger ones when these are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..manifest.limits import ROOM_STEP
from ..manifest.schema import Cache, DecoderPlan
from .chunks import PlanRun


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


def cache_bytes(cache: Cache, capacity: int, room: int) -> int:
    """The bytes of a cache with room for so many tokens.

    Args:
        cache: of the manifest.
        capacity: most tokens of a sequence.
        room: tokens.
    """
    rows = cache.get("rows")
    return cache["bytes"] if rows is None or room == capacity else rows[0] * rows[1] * room


def sequence_bytes(caches: Sequence[Cache], capacity: int, room: int) -> int:
    """The bytes of all caches of a sequence with room for so many tokens."""
    return sum([cache_bytes(cache, capacity, room) for cache in caches])


def moves(cache: Cache, count: int, room: int, larger: int) -> list[tuple[int, int, int]]:
    """(offset, offset in the larger cache, bytes) of what is copied when a cache is replaced.

    Args:
        cache: of the manifest, which grows.
        count: tokens that are there.
        room: of the cache.
        larger: room of the one in its place.
    """
    rows = cache.get("rows")
    if rows is None:
        return [(0, 0, cache["bytes"])]
    row = rows[1]
    if count == 0:
        return []
    return [(i * room * row, i * larger * row, count * row) for i in range(rows[0])]
