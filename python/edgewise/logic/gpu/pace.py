"""How much a GPU is given at once: about 50 ms of work. A dispatch cannot be interrupted, and
everything else that uses the GPU waits behind it: other pages, other sessions, the screen. Windows
resets a GPU that does not answer for 2 s.
"""

from __future__ import annotations

from collections.abc import Sequence

from .variants import first_of, most_of
from .wgsl import FOLD

# Milliseconds of what is given at once: if it took less than the first, more is given, and less
# after more than the second.
SHORT = 25.0
LONG = 100.0
SLOWER = 16  # times that a GPU may be slower than is expected at first
# Workgroups that a GPU runs side by side: fewer take as long.
BESIDE = 64


class Pace:
    """How much a GPU is given before it is waited for; the bound follows the times that it took.

    Attributes:
        bound: operations that are submitted at once, unless a piece of a dispatch has more.
        submitted: operations that were submitted so far.
        finished: those of them that are known to be done.
        fewest: workgroups of a piece, unless they are more work than is given at first.

    Args:
        serial: whether the GPU is one in software.
    """

    def __init__(self, serial: bool) -> None:
        self.first = first_of(serial)
        self.bound = self.first
        self.submitted = 0
        self.finished = 0
        self.fewest = BESIDE
        self.least = self.bound // SLOWER
        self.most = most_of(serial)
        self.begun = 0.0

    @property
    def given(self) -> int:
        """Operations that may not be done yet."""
        return self.submitted - self.finished

    def waits(self, work: int) -> bool:
        """Whether the GPU is to be waited for before more operations are submitted."""
        return self.given > 0 and self.given + work > self.bound

    def give(self, work: int, now: float) -> None:
        """Notes what is submitted. now: milliseconds of a clock."""
        if self.given == 0:
            self.begun = now
        self.submitted += work

    def read(self, submitted: int) -> None:
        """Notes that a read has waited. submitted: `self.submitted` when it began."""
        self.finished = max(self.finished, submitted)

    def together(self, work: Sequence[int], first: int, end: int) -> int:
        """The launch after those from `first` on that may be submitted at once, at least one.

        Args:
            work: operations of each launch.
            first, end: the launches that are left.
        """
        total = self.given + work[first]
        after = first + 1
        while after < end and total + work[after] <= self.bound:
            total += work[after]
            after += 1
        return after

    def piece(self, count: int, start: int, work: int) -> int:
        """How many workgroups of a dispatch that is too much are submitted next; whole rows of a
        grid that is folded, so that none runs twice.

        Args:
            count: workgroups of the dispatch.
            start: those that were submitted.
            work: operations of the dispatch.
        """
        least = min(self.fewest, self.first * count // max(work, 1))
        size = max(1, least, self.bound * count // max(work, 1))
        left = count - start
        return left if size >= left else size - size % FOLD if size > FOLD else size

    def done(self, now: float, waited: float) -> None:
        """Notes that all of it is done.

        Args:
            now: milliseconds of the clock.
            waited: how long this was waited for. The time from the submit until then is not
                counted: the GPU may have had nothing to do.
        """
        if 2 * self.given >= self.bound:  # less says nothing about the bound
            if now - self.begun < SHORT:
                self.bound = min(2 * self.bound, self.most)
            elif waited > LONG and self.given <= self.bound:  # else a lower one changes nothing
                self.bound = max(self.bound // 2, self.least)
        self.finished = self.submitted
