"""Memory of a GPU by address, so that ranges of it are Buffers as on any device.

A GPUBuffer has a range of addresses. Weights share a few: they are only read. So do states, which
steps update in place, many in one dispatch. Everything else has its own, since WebGPU refuses to
read and write one GPUBuffer in a step. All begins at a multiple of 256 bytes, as bindings must.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from threading import Lock
from typing import Any, NamedTuple

from ...errors import OutOfMemory
from ...logic.gpu.arrange import ALIGNMENT
from ..engine import Buffer
from .gpu import Gpu

MIN, MAX = (1 << 22, 1 << 28)  # bytes of the first GPUBuffer that is shared, and of the largest one


class Place(NamedTuple):
    """A range of a GPUBuffer. number: of the GPUBuffer, which no other one has had."""

    gpu_buffer: Any
    number: int
    offset: int


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


class _Block:
    """A GPUBuffer. live: {offset: bytes} of the allocations in it; used: offset after the last."""

    def __init__(self, gpu_buffer: Any, number: int, base: int, nbytes: int, use: str) -> None:
        self.gpu_buffer, self.number, self.base, self.nbytes = gpu_buffer, number, base, nbytes
        self.use = use  # "weights" or "states", which share it, or ""
        self.live: dict[int, int] = {}
        self.spare: list[tuple[int, int]] = []  # (bytes, offset) of what was released
        self.used = 0

    def take(self, nbytes: int) -> int | None:
        """The offset of a new allocation; None where there is no room."""
        for i, (size, offset) in enumerate(self.spare):
            if size == nbytes:
                del self.spare[i]
                self.live[offset] = nbytes
                return offset
        if self.nbytes - self.used < nbytes:
            return None
        self.live[self.used] = nbytes
        self.used += nbytes
        return self.used - nbytes


class GpuMemory:
    """Allocates ranges of GPUBuffers. Its caller holds the engine's lock, but for `release` and
    `place`.

    Attributes:
        made: GPUBuffers that were made so far.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.made = 0
        self._next = ALIGNMENT
        # Replaced as a whole, so that `place` needs no lock: (first addresses, blocks), sorted.
        self._known: tuple[list[int], list[_Block]] = ([], [])
        self._lock = Lock()
        self._released: deque[Buffer] = deque()

    def allocate(self, nbytes: int) -> Buffer:
        """Zeroed memory in a GPUBuffer of its own. Raises OutOfMemory."""
        with self._lock:
            self._free_released()
            return self._in(self._make(_aligned(nbytes), ""), nbytes)

    def share(self, nbytes: int, use: str) -> Buffer:
        """Memory with undefined contents in a GPUBuffer with others of the same use, "weights" or
        "states". Raises OutOfMemory.
        """
        size = _aligned(nbytes)
        with self._lock:
            self._free_released()
            shared = [block for block in self._known[1] if block.use == use]
            for block in shared:
                if (offset := block.take(size)) is not None:
                    return Buffer(block.base + offset, nbytes)
            # As much again as there is: a small model needs little, a large one few buffers.
            most = min(MAX, self.gpu.buffer_bytes, self.gpu.binding_bytes)
            more = min(max(MIN, sum(b.nbytes for b in shared)), most)
            return self._in(self._make(max(size, more), use), nbytes)

    @staticmethod
    def _in(block: _Block, nbytes: int) -> Buffer:
        offset = block.take(_aligned(nbytes))
        assert offset is not None
        return Buffer(block.base + offset, nbytes)

    def _make(self, nbytes: int, use: str) -> _Block:
        if nbytes > self.gpu.buffer_bytes:
            raise OutOfMemory(
                f"{nbytes} bytes in one buffer: this GPU has at most {self.gpu.buffer_bytes}",
                "webgpu",
                "Use a smaller batch, sequence or model, or the device 'cpu'.",
            )
        try:
            gpu_buffer = self.gpu.buffer(nbytes)
        except Exception as e:  # the libraries' own errors
            raise OutOfMemory(
                f"{nbytes} bytes could not be allocated on the GPU ({e})",
                "webgpu",
                "Use a smaller batch, sequence or model, or close other models.",
            ) from e
        block = _Block(gpu_buffer, self.made, self._next, nbytes, use)
        self.made += 1
        self._next += nbytes + ALIGNMENT
        bases, blocks = self._known
        self._known = [*bases, block.base], [*blocks, block]
        return block

    def release(self, buffer: Buffer) -> None:
        """Frees an allocation with the next `sweep` or allocation. Finalizers may call it."""
        self._released.append(buffer)

    def sweep(self) -> None:
        """Frees what was released, and GPUBuffers that hold nothing else. Does nothing in a
        finalizer that interrupted this object.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._free_released()
            finally:
                self._lock.release()

    def _free_released(self) -> None:
        """Frees what was released. The caller holds the lock."""
        while self._released:
            buffer = self._released.popleft()
            block = self._block(buffer.address)
            offset = buffer.address - block.base
            block.spare.append((block.live.pop(offset), offset))
            if not block.live:
                blocks = [b for b in self._known[1] if b is not block]
                self._known = [b.base for b in blocks], blocks
                block.gpu_buffer.destroy()

    def place(self, buffer: Buffer) -> Place:
        """Where a buffer lies."""
        block = self._block(buffer.address)
        return Place(block.gpu_buffer, block.number, buffer.address - block.base)

    def _block(self, address: int) -> _Block:
        bases, blocks = self._known
        return blocks[bisect_right(bases, address) - 1]

    @property
    def nbytes(self) -> int:
        """Bytes of all GPUBuffers."""
        return sum(block.nbytes for block in self._known[1])

    @property
    def buffers(self) -> int:
        """Number of GPUBuffers."""
        return len(self._known[1])
