"""The search for the highest logits on a GPU (core/sampling/*.wgsl), level by level."""

from __future__ import annotations

from typing import NamedTuple

from ..generation.shortlist import HIGHEST

ARGMAX_CHUNK = 4096
"""Logits that a workgroup reads."""
TOP_CHUNK = 1024
NONE = 0xFFFFFFFF
"""The token, or the rank, where a logit is NaN or +infinity, or all are -infinity."""


class Level(NamedTuple):
    """A dispatch of a search. words: of 32 bits, that it reads; groups: workgroups."""

    words: int
    groups: int


def levels_of_argmax(count: int) -> list[Level]:
    """The dispatches of the search for the highest of `count` logits."""
    groups = -(-count // ARGMAX_CHUNK)
    return [Level(count, groups), Level(2 * groups, 1)]


def levels_of_top(count: int) -> list[Level]:
    """The dispatches of the search for the HIGHEST highest of `count` logits."""
    groups = -(-count // TOP_CHUNK)
    found = [Level(count, groups)]
    while groups > 1:
        left = groups * HIGHEST
        groups = -(-left // TOP_CHUNK)
        found.append(Level(2 * left, groups))
    return found
