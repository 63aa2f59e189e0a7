"""Sampling from the highest logits alone, which a device finds. logic/generation/shortlist.py says
when they suffice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...logic.generation.shortlist import holds

if TYPE_CHECKING:
    from .run import HostMemory

Candidates = Sequence[tuple[int, float]]  # (token, logit), highest first

MINUS_INFINITY = struct.pack("<f", float("-inf"))


class Shortlist:
    """The highest logits of one generation.

    Args:
        members: of ew_sampling.
        engine, work: the engine, and the address of the scores in its memory.
    """

    def __init__(self, members: Mapping[str, Any], engine: HostMemory, work: int) -> None:
        self.members, self.engine, self.work = members, engine, work
        self.greedy = not members["do_sample"]
        self.cleared = False  # whether all scores are -infinity

    def holds(self, found: Candidates) -> bool:
        """Whether all that top_k keeps is among the highest logits."""
        return holds(self.members, [logit for _, logit in found])

    def among(self, found: Candidates, draw: Callable[[], int]) -> int:
        """What `draw` draws, with these scores and -infinity for all other tokens."""
        if self.greedy:
            return found[0][0]
        if not self.cleared:
            self.engine.write(self.work, MINUS_INFINITY * self.members["vocab_size"])
        self.cleared = True
        for token, logit in found:
            self.engine.write(self.work + 4 * token, struct.pack("<f", logit))
        try:
            return draw()
        finally:
            for token, _ in found:
                self.engine.write(self.work + 4 * token, MINUS_INFINITY)
