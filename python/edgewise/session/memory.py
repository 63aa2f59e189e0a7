"""Engine memory of what flows between plans: handed out, and taken back when the last value in it
is gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ..errors import OutOfMemory

if TYPE_CHECKING:
    from ..engine import Buffer, Device
    from .budget import Budget

ALIGN = 64


class Block:
    """Memory of a device that holds a value."""

    __slots__ = ("buffer", "pool")

    def __init__(self, buffer: Buffer, pool: Pool) -> None:
        self.buffer, self.pool = buffer, pool

    def read(self, offset: int, nbytes: int) -> bytes:
        """A copy of bytes, from `offset` on."""
        return self.pool.device.read(self.buffer, offset, nbytes)


class Memory(Block):
    """A block of a pool, returned when no value refers to it any more."""

    __slots__ = ()

    def __del__(self) -> None:
        self.pool.give(self.buffer, self.buffer.nbytes)


class Elsewhere(Block):
    """Memory that has another owner, such as a weight's."""

    __slots__ = ()


class Borrowed(Block):
    """An array that the caller feeds, read where it lies during a run, as onnxruntime does.

    `held` keeps the array alive.
    """

    __slots__ = ("held",)

    def __init__(self, buffer: Buffer, pool: Pool, held: object) -> None:
        super().__init__(buffer, pool)
        self.held = held


class HostBytes:
    """So many bytes that a value of the host takes, as long as this is alive."""

    __slots__ = ("nbytes", "pool")

    def __init__(self, nbytes: int, pool: Pool) -> None:
        self.nbytes, self.pool = nbytes, pool

    def __del__(self) -> None:
        self.pool.give(None, self.nbytes)


class Pool:
    """Blocks that are free again are kept for the next of their size: never more than a run had in
    use, and after a run only those that it used.

    A pool belongs to one session, whose lock is held by whoever calls it. Blocks come back from any
    thread and at any moment (`Memory.__del__`): they wait in `returned` for the next call.

    budget: has max_memory_bytes, which may be in use, those that the host's values take (`hold`)
    among them: what grows without end is to fail before the machine does; and max_host_bytes of the
    host's values alone.
    """

    def __init__(self, device: Device, budget: Budget) -> None:
        self.device, self.budget = device, budget
        self.idle: dict[int, list[tuple[Buffer, int]]] = {}  # by size; generation of the last use
        self.idle_bytes = self.in_use = self.peak = self.generation = 0
        self.closed = False
        self.returned: deque[tuple[Buffer | None, int]] = deque()  # None: bytes of the host
        self.held = 0  # bytes in use by the host's values

    @property
    def used(self) -> int:
        """Bytes in use."""
        self.collect()
        return self.in_use

    def take(self, nbytes: int) -> Memory:
        """Memory of at least nbytes. Raises OutOfMemory."""
        size = -(-max(nbytes, 1) // ALIGN) * ALIGN
        if self.returned:
            self.collect()
        blocks = self.idle.get(size)
        if blocks:
            buffer = blocks.pop()[0]
            self.idle_bytes -= size
        else:
            self.check_room(size)
            try:
                buffer = self.device.allocate(size)
            except OutOfMemory:
                self.trim(-1)
                try:
                    buffer = self.device.allocate(size)
                except OutOfMemory as e:
                    e.where = ""  # whoever takes it knows for which value or node
                    raise
        self.in_use += size
        if self.in_use > self.peak:
            self.peak = self.in_use
        return Memory(buffer, self)

    def check_room(self, nbytes: int) -> None:
        """Raises OutOfMemory where so many bytes more are not allowed."""
        if self.in_use + nbytes > self.budget.max_memory_bytes:
            self.collect()
            if self.in_use + nbytes > self.budget.max_memory_bytes:
                raise OutOfMemory(
                    f"{nbytes} more bytes, where {self.in_use} of {self.budget.max_memory_bytes}"
                    " are in use",
                    "",
                    "Use a smaller batch, sequence or model, or raise"
                    " SessionOptions.max_memory_bytes; if a loop of the model grows, check what"
                    " ends it.",
                )

    def check_host_room(self, nbytes: int) -> None:
        """Raises OutOfMemory where so many bytes more of the host's own values are not allowed."""
        self.check_room(nbytes)
        if self.held + nbytes > self.budget.max_host_bytes:
            self.collect()
            if self.held + nbytes > self.budget.max_host_bytes:
                raise OutOfMemory(
                    f"{nbytes} more bytes of strings, lists and maps, where {self.held} of"
                    f" {self.budget.max_host_bytes} are in use",
                    "",
                    "Feed fewer or shorter strings, or raise SessionOptions.max_memory_bytes; if a"
                    " loop of the model grows, check what ends it.",
                )

    def hold(self, nbytes: int) -> HostBytes:
        """Counts bytes of the host as in use while what this returns is alive. Raises
        OutOfMemory.
        """
        self.check_host_room(nbytes)
        self.in_use += nbytes
        self.held += nbytes
        return HostBytes(nbytes, self)

    def give(self, buffer: Buffer | None, size: int) -> None:
        """Takes a block back, or bytes of the host. Called when the last value in it is gone."""
        self.returned.append((buffer, size))
        if self.closed:
            self.collect()

    def collect(self) -> None:
        """Makes returned blocks idle, or frees them."""
        returned = self.returned
        while returned:
            try:
                buffer, size = returned.popleft()
            except IndexError:  # the pool is closed, and another thread was quicker
                return
            self.in_use -= size
            if buffer is None:
                self.held -= size
                continue
            if self.closed or self.idle_bytes + self.in_use + size > self.peak:
                self.device.release(buffer)
                continue
            self.idle.setdefault(size, []).append((buffer, self.generation))
            self.idle_bytes += size

    def trim(self, before: int | None = None) -> None:
        """Frees what was not used since the last call; with before = -1 everything that is idle."""
        self.collect()
        for size, blocks in list(self.idle.items()):
            kept = [b for b in blocks if before is None and b[1] >= self.generation]
            for buffer, generation in blocks:
                if before is not None or generation < self.generation:
                    self.device.release(buffer)
                    self.idle_bytes -= size
            if kept:
                self.idle[size] = kept
            else:
                del self.idle[size]
        self.generation += 1
        self.peak = self.in_use + self.idle_bytes

    def close(self) -> None:
        """Frees what is idle now, and what is in use as soon as it is not."""
        self.trim(-1)
        self.closed = True
        self.collect()
