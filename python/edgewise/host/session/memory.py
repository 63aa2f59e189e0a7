"""Engine memory of the values between plans, which returns to a pool when no value uses it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...errors import OutOfMemory

if TYPE_CHECKING:
    from ..engine import Buffer, Device
    from .budget import Budget

ALIGN = 64


class ValueMemory:
    """Memory of a device that holds a value."""

    __slots__ = ("buffer", "pool")

    def __init__(self, buffer: Buffer, pool: Pool) -> None:
        self.buffer, self.pool = buffer, pool

    def read(self, offset: int, nbytes: int) -> bytes:
        """A copy of `nbytes` bytes from `offset` on."""
        return self.pool.device.read(self.buffer, offset, nbytes)


class PoolBlock(ValueMemory):
    """A block of a pool, to which it returns when no value refers to it."""

    __slots__ = ()

    def __del__(self) -> None:
        self.pool.give(self.buffer, self.buffer.nbytes)


class Elsewhere(ValueMemory):
    """Memory with another owner, such as that of a weight."""

    __slots__ = ()


class Borrowed(ValueMemory):
    """The memory of an array that the caller passed, which a run reads without a copy, as in
    onnxruntime.

    Attributes:
        held: keeps the array alive.
    """

    __slots__ = ("held",)

    def __init__(self, buffer: Buffer, pool: Pool, held: object) -> None:
        super().__init__(buffer, pool)
        self.held = held


class HostBytes:
    """Counts the bytes of a value on the host as in use, as long as this object is alive."""

    __slots__ = ("nbytes", "pool")

    def __init__(self, nbytes: int, pool: Pool) -> None:
        self.nbytes, self.pool = nbytes, pool

    def __del__(self) -> None:
        self.pool.give(None, self.nbytes)


class Pool:
    """Allocates blocks for values, and reuses free blocks of the same size.

    It keeps no more free memory than the peak of a run, and after a run only blocks that the run
    used. A pool belongs to one session; the caller holds the session's lock. Blocks may return from
    any thread at any time (`Memory.__del__`): they wait in `returned` until the next call.

    Args:
        device: where blocks are allocated.
        budget: `max_memory_bytes` limits the memory in use, including values on the host, so that
            a value that grows without end fails before the machine does. `max_host_bytes` limits
            the values on the host.
    """

    def __init__(self, device: Device, budget: Budget) -> None:
        self.device, self.budget = device, budget
        # {size: [(free block, generation of its last use)]}
        self.idle: dict[int, list[tuple[Buffer, int]]] = {}
        self.idle_bytes = self.in_use = self.peak = self.generation = 0
        self.closed = False
        self.returned: deque[tuple[Buffer | None, int]] = deque()  # None: bytes on the host
        self.held = 0  # bytes in use by values on the host

    @property
    def used(self) -> int:
        """Bytes in use."""
        self.collect()
        return self.in_use

    def take(self, nbytes: int) -> PoolBlock:
        """Memory of at least `nbytes` bytes, with undefined contents. Raises OutOfMemory."""
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
                    e.where = ""  # the caller sets the value or node
                    raise
        self.in_use += size
        if self.in_use > self.peak:
            self.peak = self.in_use
        return PoolBlock(buffer, self)

    def check_room(self, nbytes: int) -> None:
        """Raises OutOfMemory if `nbytes` more bytes would exceed the limit."""
        if self.in_use + nbytes > self.budget.max_memory_bytes:
            self.collect()
            if self.in_use + nbytes > self.budget.max_memory_bytes:
                raise OutOfMemory(
                    f"{nbytes} more bytes exceed the limit: {self.in_use} of"
                    f" {self.budget.max_memory_bytes}"
                    " are in use",
                    "",
                    "Use a smaller batch, sequence or model, or raise"
                    " SessionOptions.max_memory_bytes; if a loop of the model grows, check what"
                    " ends it.",
                )

    def check_host_room(self, nbytes: int) -> None:
        """Raises OutOfMemory if `nbytes` more bytes on the host would exceed a limit."""
        self.check_room(nbytes)
        if self.held + nbytes > self.budget.max_host_bytes:
            self.collect()
            if self.held + nbytes > self.budget.max_host_bytes:
                raise OutOfMemory(
                    f"{nbytes} more bytes of strings, lists and maps exceed the limit: {self.held}"
                    f" of {self.budget.max_host_bytes} are in use",
                    "",
                    "Feed fewer or shorter strings, or raise SessionOptions.max_memory_bytes; if a"
                    " loop of the model grows, check its condition.",
                )

    def hold(self, nbytes: int) -> HostBytes:
        """Counts bytes on the host as in use while the returned object is alive. Raises
        OutOfMemory.
        """
        self.check_host_room(nbytes)
        self.in_use += nbytes
        self.held += nbytes
        return HostBytes(nbytes, self)

    def give(self, buffer: Buffer | None, size: int) -> None:
        """Returns a block, or bytes on the host. Called by finalizers."""
        self.returned.append((buffer, size))
        if self.closed:
            self.collect()

    def collect(self) -> None:
        """Keeps returned blocks for reuse, or frees them."""
        returned = self.returned
        while returned:
            try:
                buffer, size = returned.popleft()
            except IndexError:  # the pool is closed, and another thread took the last item
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
        """Frees the free blocks that were not used since the last call. before: -1: all of them."""
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
        """Frees all free blocks now, and the others when they return."""
        self.trim(-1)
        self.closed = True
        self.collect()
