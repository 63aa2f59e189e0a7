"""What one run may take: rounds of loops, compilations, bytes."""

from __future__ import annotations

import os

from ..declare.values import check_copied
from ..errors import ModelError, OutOfMemory
from ..session_limits import (
    INPUTS_PER_COMPILATION,
    MAX_COMPILATIONS,
    MAX_HOST_BYTES,
    MAX_LOOP_TRIPS,
    MEMORY_SHARE,
)

WORDS = 8  # bytes of a reference
TEXT = 49  # bytes of an empty str


class Budget:
    """Limits of the runs of a session, and what the present one has used of them (memory apart:
    session.memory.Pool counts it).
    """

    def __init__(
        self,
        max_memory_bytes=None,
        max_loop_trips=MAX_LOOP_TRIPS,
        max_compilations=MAX_COMPILATIONS,
    ):
        machine = _machine_memory()
        self.max_memory_bytes, self.max_arena_bytes = (
            max_memory_bytes or int(machine * MEMORY_SHARE),
            max_memory_bytes or machine,
        )
        self.max_host_bytes = max_memory_bytes or min(self.max_memory_bytes, MAX_HOST_BYTES)
        self.max_loop_trips, self.max_compilations = max_loop_trips, max_compilations
        self.trips = self.compilations = self.copied = 0

    def limit(self, max_memory_bytes: int, max_loop_trips: int, max_compilations: int):
        """Other limits, of the runs from now on: what a page's run has left where Python runs one
        of its nodes.
        """
        self.max_memory_bytes = self.max_host_bytes = self.max_arena_bytes = max_memory_bytes
        self.max_loop_trips, self.max_compilations = max_loop_trips, max_compilations

    def start(self):
        """A run begins."""
        self.trips = self.compilations = self.copied = 0

    def trip(self, where):
        """A loop goes round once more. Raises ModelError."""
        self.trips += 1
        if self.trips > self.max_loop_trips:
            raise ModelError(
                f"its loops went round {self.max_loop_trips} times",
                where,
                "If they are right, set SessionOptions.max_loop_trips; else check what ends them.",
            )

    def copy(self, items, where):
        """An operator copies so many items of a sequence. Raises ModelError."""
        self.copied += items
        check_copied(self.copied, where)

    def compilation(self, inputs, where):
        """A plan of so many inputs is compiled. Raises ModelError."""
        self.compilations += 1 + inputs // INPUTS_PER_COMPILATION
        if self.compilations > self.max_compilations:
            raise ModelError(
                f"{self.max_compilations} plans were compiled in one run",
                where,
                "Shapes change in each round of a loop: if that is right, set"
                " SessionOptions.max_compilations; else check what ends it.",
            )

    def arena(self, nbytes, where):
        """A plan needs so many bytes for its activations. Raises OutOfMemory."""
        if nbytes > self.max_arena_bytes:
            raise OutOfMemory(
                f"{nbytes} bytes for activations, {self.max_arena_bytes} are allowed",
                where,
                "Use a smaller batch, sequence or model, or raise SessionOptions.max_memory_bytes.",
            )


def strings_bytes(strings):
    """Bytes that a list of strings takes."""
    width = 1 if all(map(str.isascii, strings)) else 4  # bytes of a character, at most
    return (WORDS + TEXT) * len(strings) + width * sum(map(len, strings))


def _machine_memory():
    """Bytes of this machine's memory, or of the container's where that is limited."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        whole = 1 << 33
    try:
        with open("/sys/fs/cgroup/memory.max") as f:
            return min(whole, int(f.read()))
    except (OSError, ValueError):
        return whole
