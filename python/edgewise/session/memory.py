"""Engine memory of what flows between plans: handed out, and taken back when the last value in it
is gone.
"""

from __future__ import annotations

from collections import deque

from ..errors import OutOfMemory

ALIGN = 64


class Memory:
    """A block of engine memory; given back when nobody refers to it."""

    __slots__ = ("address", "nbytes", "pool")

    def __init__(self, address, nbytes, pool):
        self.address, self.nbytes, self.pool = address, nbytes, pool

    def __del__(self):
        self.pool.give(self.address, self.nbytes)


class Elsewhere:
    """Memory that somebody else owns (a weight)."""

    __slots__ = ("address", "nbytes", "pool")

    def __init__(self, place, pool):
        (self.address, self.nbytes), self.pool = place, pool


class Borrowed:
    """Memory of an array that the caller feeds: read where it lies for the length of a run, as
    onnxruntime does.
    """

    __slots__ = ("address", "nbytes", "pool", "held")

    def __init__(self, address: int, nbytes: int, pool: Pool, held: object) -> None:
        self.address, self.nbytes, self.pool, self.held = address, nbytes, pool, held


class HostBytes:
    """So many bytes that a value of the host takes, as long as this is alive."""

    __slots__ = ("nbytes", "pool")

    def __init__(self, nbytes, pool):
        self.nbytes, self.pool = nbytes, pool

    def __del__(self):
        self.pool.give(0, self.nbytes)


class Pool:
    """Blocks that are free again are kept for the next of their size: never more than a run had in
    use, and after a run only those that it used.

    A pool belongs to one session, whose lock is held by whoever calls it. Blocks come back from any
    thread and at any moment (`Memory.__del__`): they wait in `returned` for the next call.

    budget: has max_memory_bytes, which may be in use, those that the host's values take (`hold`)
    among them: what grows without end is to fail before the machine does; and max_host_bytes of the
    host's values alone.
    """

    def __init__(self, engine, budget):
        self.budget = budget
        (
            self.engine,
            self.idle,
            self.idle_bytes,
            self.in_use,
            self.peak,
            self.generation,
            self.closed,
        ) = (engine, {}, 0, 0, 0, 0, False)
        self.returned = deque()  # (address, size)
        self.held = 0  # of them by the host's values

    @property
    def used(self):
        """Bytes in use."""
        self.collect()
        return self.in_use

    def take(self, nbytes):
        """Memory of at least nbytes."""
        size = -(-max(nbytes, 1) // ALIGN) * ALIGN
        if self.returned:
            self.collect()
        blocks = self.idle.get(size)
        if blocks:
            address = blocks.pop()[0]
            self.idle_bytes -= size
        else:
            self.check_room(size)
            try:
                address = self.engine.alloc(size)
            except OutOfMemory:
                self.trim(-1)
                try:
                    address = self.engine.alloc(size)
                except OutOfMemory as e:
                    e.where = ""  # whoever takes it knows for which value or node
                    raise
        self.in_use += size
        if self.in_use > self.peak:
            self.peak = self.in_use
        return Memory(address, size, self)

    def check_room(self, nbytes):
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

    def check_host_room(self, nbytes):
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

    def hold(self, nbytes):
        """Counts bytes of the host as in use while what this returns is alive. Raises
        OutOfMemory.
        """
        self.check_host_room(nbytes)
        self.in_use += nbytes
        self.held += nbytes
        return HostBytes(nbytes, self)

    def give(self, address, size):
        """Takes a block back; Memory calls it when its last value is gone."""
        self.returned.append((address, size))
        if self.closed:
            self.collect()

    def collect(self):
        """Deals with the blocks that came back."""
        returned = self.returned
        while returned:
            try:
                address, size = returned.popleft()
            except IndexError:  # the pool is closed, and another thread was quicker
                return
            self.in_use -= size
            if not address:
                self.held -= size
                continue
            if self.closed or self.idle_bytes + self.in_use + size > self.peak:
                self.engine.free(address)
                continue
            self.idle.setdefault(size, []).append((address, self.generation))
            self.idle_bytes += size

    def trim(self, before=None):
        """Frees what was not used since the last call; with before = -1 everything that is idle."""
        self.collect()
        for size, blocks in list(self.idle.items()):
            kept = [b for b in blocks if before is None and b[1] >= self.generation]
            for address, generation in blocks:
                if before is not None or generation < self.generation:
                    self.engine.free(address)
                    self.idle_bytes -= size
            if kept:
                self.idle[size] = kept
            else:
                del self.idle[size]
        self.generation += 1
        self.peak = self.in_use + self.idle_bytes

    def close(self):
        """Frees what is idle now, and what is in use as soon as it is not."""
        self.trim(-1)
        self.closed = True
        self.collect()
