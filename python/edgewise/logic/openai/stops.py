"""Stop strings in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Ends a text before the first of some strings, and holds back what may become one.

    Args:
        stops: the strings.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = list(stops)
        self.held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that can be told."""
        if not self.stops:
            return text
        self.held += text
        found = [self.held.find(stop) for stop in self.stops if stop in self.held]
        if found:
            self.stopped = True
            before = self.held[: min(found)]
            self.held = ""
            return before
        ready = len(self.held) - max([self._overlap(stop) for stop in self.stops])
        told = self.held[:ready]
        self.held = self.held[ready:]
        return told

    def end(self) -> str:
        """What was held back and is no stop string."""
        text = self.held
        self.held = ""
        return text

    def _overlap(self, stop: str) -> int:
        """The longest end of the held text with which `stop` begins."""
        for n in range(min(len(stop) - 1, len(self.held)), 0, -1):
            if self.held.endswith(stop[:n]):
                return n
        return 0
