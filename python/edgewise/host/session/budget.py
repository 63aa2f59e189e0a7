"""Limits of one run of a session: iterations of loops, compilations, bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...compiler.declare.values import check_copied
from ...compiler.session_limits import (
    INPUTS_PER_COMPILATION,
    MAX_COMPILATIONS,
    MAX_HOST_BYTES,
    MAX_LOOP_TRIPS,
    MEMORY_SHARE,
)
from ...errors import ModelError, OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS = 8  # bytes of a reference
TEXT = 49  # bytes of an empty str


class Budget:
    """Limits of the runs of a session, and what the current run has used of them.

    Memory in use is counted by session.memory.Pool.

    Args:
        max_memory_bytes: limit of the values between plans, of those on the host, and of the
            activations of a plan. By default MEMORY_SHARE of the machine's memory, at most
            MAX_HOST_BYTES, and all of the machine's memory, respectively.
        max_loop_trips: maximum number of iterations of all loops of a run together.
        max_compilations: maximum number of plans that a run may compile.
    """

    def __init__(
        self,
        max_memory_bytes: int | None = None,
        max_loop_trips: int = MAX_LOOP_TRIPS,
        max_compilations: int = MAX_COMPILATIONS,
    ) -> None:
        machine = _machine_memory()
        self.max_memory_bytes, self.max_arena_bytes = (
            max_memory_bytes or int(machine * MEMORY_SHARE),
            max_memory_bytes or machine,
        )
        self.max_host_bytes = max_memory_bytes or min(self.max_memory_bytes, MAX_HOST_BYTES)
        self.max_loop_trips, self.max_compilations = max_loop_trips, max_compilations
        self.trips = self.compilations = self.copied = 0

    def limit(self, max_memory_bytes: int, max_loop_trips: int, max_compilations: int) -> None:
        """Sets the limits of later runs. When Python runs one node of a page's run, these are what
        that run has left.
        """
        self.max_memory_bytes = self.max_host_bytes = self.max_arena_bytes = max_memory_bytes
        self.max_loop_trips, self.max_compilations = max_loop_trips, max_compilations

    def start(self) -> None:
        """Resets the counters at the beginning of a run."""
        self.trips = self.compilations = self.copied = 0

    def trip(self, where: str) -> None:
        """Counts one iteration of a loop. Raises ModelError above the limit."""
        self.trips += 1
        if self.trips > self.max_loop_trips:
            raise ModelError(
                f"its loops ran {self.max_loop_trips} iterations",
                where,
                "If that is intended, raise SessionOptions.max_loop_trips; otherwise check their"
                " conditions.",
            )

    def copy(self, items: int, where: str) -> None:
        """Counts items of a sequence that an operator copies. Raises ModelError above the limit."""
        self.copied += items
        check_copied(self.copied, where)

    def compilation(self, inputs: int, where: str) -> None:
        """Counts the compilation of a plan with `inputs` inputs. Raises ModelError above the
        limit.
        """
        self.compilations += 1 + inputs // INPUTS_PER_COMPILATION
        if self.compilations > self.max_compilations:
            raise ModelError(
                f"{self.max_compilations} plans were compiled in one run",
                where,
                "Shapes change in each round of a loop: if that is right, set"
                " SessionOptions.max_compilations; otherwise check its condition.",
            )

    def arena(self, nbytes: int, where: str) -> None:
        """Checks the bytes of a plan's activations. Raises OutOfMemory above the limit."""
        if nbytes > self.max_arena_bytes:
            raise OutOfMemory(
                f"{nbytes} bytes for activations, {self.max_arena_bytes} are allowed",
                where,
                "Use a smaller batch, sequence or model, or raise SessionOptions.max_memory_bytes.",
            )


def strings_bytes(strings: Sequence[str]) -> int:
    """An estimate of the memory that a list of strings takes, in bytes."""
    width = 1 if all(map(str.isascii, strings)) else 4  # maximum bytes of a character
    return (WORDS + TEXT) * len(strings) + width * sum(map(len, strings))


def _machine_memory() -> int:
    """Bytes of memory of the machine, or of the container if it has a limit."""
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        whole = 1 << 33
    try:
        with open("/sys/fs/cgroup/memory.max") as f:
            return min(whole, int(f.read()))
    except (OSError, ValueError):
        return whole
