"""Engine memory of what flows between plans: handed out, and taken back when the last value in it is gone."""
from __future__ import annotations

import os

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


class Pool:
    """Blocks that are free again are kept for the next of their size: never more than a run had in use, and after a run only those that it used.

    most: bytes that may be in use, by default this machine's memory: what grows without end is to fail before the machine does."""

    def __init__(self, engine, most=None):
        self.engine, self.idle, self.idle_bytes, self.used, self.peak, self.generation, self.closed = engine, {}, 0, 0, 0, 0, False
        self.most = most or _machine_memory()

    def take(self, nbytes):
        """Memory of at least nbytes."""
        size = -(-max(nbytes, 1) // ALIGN) * ALIGN
        blocks = self.idle.get(size)
        if blocks:
            address = blocks.pop()[0]
            self.idle_bytes -= size
        else:
            if self.used + size > self.most:
                raise OutOfMemory(f"{nbytes} more bytes, where {self.used} are in use", "engine memory", "Use a smaller batch, sequence or model; if a loop of the model grows, check what ends it.")
            try:
                address = self.engine.alloc(size)
            except OutOfMemory:
                self.trim(-1)
                address = self.engine.alloc(size)
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        return Memory(address, size, self)

    def give(self, address, size):
        """Takes a block back; Memory calls it when its last value is gone."""
        self.used -= size
        if self.closed or self.idle_bytes + self.used + size > self.peak:
            self.engine.free(address)
            return
        self.idle.setdefault(size, []).append((address, self.generation))
        self.idle_bytes += size

    def trim(self, before=None):
        """Frees what was not used since the last call; with before = -1 everything that is idle."""
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
        self.peak = self.used + self.idle_bytes

    def close(self):
        """Frees what is idle now, and what is in use as soon as it is not."""
        self.trim(-1)
        self.closed = True


def _machine_memory():
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 32
