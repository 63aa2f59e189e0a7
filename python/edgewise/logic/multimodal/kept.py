"""Features of pictures that are kept for the next turns of a conversation."""

from __future__ import annotations

from typing import Any

MAX_BYTES = 64 << 20
"""Bytes of all features that a pipeline keeps."""


class Kept:
    """Features by the picture that they are of; those that were not used longest are dropped.

    Args:
        most: bytes of all.
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self.most = most
        self.bytes = 0
        self.found: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}

    def take(self, key: str) -> Any:
        """What is kept of a picture, which counts as used; None: nothing."""
        value: Any = self.found.get(key)
        if value is not None:
            del self.found[key]
            self.found[key] = value  # the last one
        return value

    def put(self, key: str, value: Any, nbytes: int) -> None:
        """Keeps features of so many bytes, unless they alone are too large."""
        if nbytes > self.most or key in self.found:
            return
        self.bytes += nbytes
        self.found[key] = value
        self.sizes[key] = nbytes
        for old in list(self.found):
            if self.bytes <= self.most:
                break
            self.bytes -= self.sizes[old]
            del self.found[old]
            del self.sizes[old]

    def clear(self) -> None:
        """Drops all."""
        self.found = {}
        self.sizes = {}
        self.bytes = 0
