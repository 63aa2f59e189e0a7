"""Which cache each beam continues with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Caches(NamedTuple):
    """The caches of the new beams, by number; numbers from the count of the old ones on are new.

    Attributes:
        of_beams: the number of each beam's cache.
        copies: (source, target) of the caches that are copied.
        unused: caches that no beam needs any more.
    """

    of_beams: list[int]
    copies: list[tuple[int, int]]
    unused: list[int]


def caches_of(parents: Sequence[int], count: int) -> Caches:
    """Assigns `count` caches to new beams; beam i continues parents[i]. The first child of a parent
    takes its cache, the others get copies in unused caches.
    """
    unused = [cache for cache in range(count) if cache not in parents]
    taken: set[int] = set()
    made: list[int] = []
    copies: list[tuple[int, int]] = []
    for parent in parents:
        cache = parent
        if parent in taken:
            if unused:
                cache = unused.pop()
            else:
                cache = count
                count += 1
            copies.append((parent, cache))
        taken.add(parent)
        made.append(cache)
    return Caches(made, copies, unused)
