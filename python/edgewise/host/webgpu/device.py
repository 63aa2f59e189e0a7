"""The memory of a GPU as a Device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine import Buffer, Device
from ..engine.device import Bytes
from .choice import Choice
from .gpu import in_words
from .memory import GpuMemory
from .self_test import check_forms, check_kernels

if TYPE_CHECKING:
    from ...compiler.ir import Tensor
    from ...compiler.plan import Plan
    from ..engine import LoadedPlan
    from .engine import WebGPUEngine
    from .loaded import WebGPUPlan


class WebGPUDevice(Device):
    """Memory and plans on a GPU. Reads wait for the GPU to finish. Calls of several threads take
    turns, as their runs do: libraries of WebGPU expect calls of one thread at a time.

    WebGPU copies whole words: a range that does not consist of words is read first.
    """

    __slots__ = ("engine", "memory", "hosts", "choice")
    target = "webgpu"
    chooses = True

    def __init__(self, engine: WebGPUEngine) -> None:
        self.engine = engine
        self.memory = GpuMemory(engine.gpu)
        self.hosts: dict[int, tuple[int, int]] = {}  # {address: (address, bytes) on the host}
        self.choice: Choice | None = None

    def allocate(self, nbytes: int) -> Buffer:
        with self.engine.lock:
            return self.memory.allocate(nbytes)

    def allocate_state(self, nbytes: int) -> Buffer:
        with self.engine.lock:
            buffer = self.memory.share(nbytes, "states")
            self.fill(buffer)
            return buffer

    def release(self, buffer: Buffer) -> None:
        address, _ = self.hosts.pop(buffer.address, (0, 0))
        if address:
            self.engine.free(address)
        self.memory.release(buffer)
        if self.engine.lock.acquire(blocking=False):  # a finalizer must not wait
            try:
                self.memory.sweep()
            finally:
                self.engine.lock.release()

    def write(self, buffer: Buffer, data: Bytes, at: int = 0) -> None:
        with self.engine.lock, in_words("a write"):
            self._write(buffer, data, at)

    def _write(self, buffer: Buffer, data: Bytes, at: int) -> None:
        view = memoryview(data).cast("B")
        place = self.memory.place(buffer)
        begin, end = place.offset + at, place.offset + at + len(view)
        queue = self.engine.gpu.device.queue
        if begin % 4 or end % 4:
            first, last = begin // 4 * 4, -(-end // 4) * 4
            words = bytearray(self.engine.fetch(place.gpu_buffer, first, last - first))
            words[begin - first : end - first] = view
            begin, view = first, memoryview(words)
        if len(view):
            queue.write_buffer(place.gpu_buffer, begin, view)

    def fill(self, buffer: Buffer, value: int = 0, at: int = 0, nbytes: int | None = None) -> None:
        count = buffer.nbytes - at if nbytes is None else nbytes
        self.write(buffer, bytes([value]) * count, at)

    def read(self, buffer: Buffer, at: int = 0, nbytes: int | None = None) -> bytes:
        count = buffer.nbytes - at if nbytes is None else nbytes
        if not count:
            return b""
        place = self.memory.place(buffer)
        begin, end = place.offset + at, place.offset + at + count
        first = begin // 4 * 4
        with self.engine.lock, in_words("a read"):
            words = self.engine.fetch(place.gpu_buffer, first, -(-end // 4) * 4 - first)
        return words[begin - first : end - first]

    def copy(self, source: Buffer, target: Buffer, nbytes: int | None = None) -> None:
        count = source.nbytes if nbytes is None else nbytes
        a, b = self.memory.place(source), self.memory.place(target)
        if a.number == b.number or count % 4 or a.offset % 4 or b.offset % 4:
            self.write(target, self.read(source, 0, count))
            return
        with self.engine.lock, in_words("a copy"):
            device = self.engine.gpu.device
            encoder = device.create_command_encoder()
            encoder.copy_buffer_to_buffer(a.gpu_buffer, a.offset, b.gpu_buffer, b.offset, count)
            device.queue.submit([encoder.finish()])

    def checksum(self, buffer: Buffer, at: int, nbytes: int) -> str:
        host = self.engine.host_device
        own = host.allocate(nbytes)
        try:
            host.write(own, self.read(buffer, at, nbytes))
            return host.checksum(own, 0, nbytes)
        finally:
            host.release(own)

    def view(self, buffer: Buffer) -> memoryview | None:
        return None

    def borrow(self, data: Bytes) -> tuple[Buffer, object] | None:
        return None

    def load_tensor(self, tensor: Tensor) -> tuple[Buffer, bool]:
        with self.engine.lock:
            buffer = self.memory.share(tensor.nbytes, "weights")
        self.write(buffer, tensor.bytes())
        return buffer, True

    def hosted(self, buffer: Buffer) -> int:
        address, nbytes = self.hosts.get(buffer.address, (0, 0))
        if nbytes < buffer.nbytes:
            if address:
                self.engine.free(address)
            address = self.engine.alloc(buffer.nbytes)
            self.hosts[buffer.address] = (address, buffer.nbytes)
        self.engine.write(address, self.read(buffer))
        return address

    def highest(self, logits: Buffer) -> int | None:
        with self.engine.lock, in_words("a choice of tokens"):
            self.choice = self.choice or Choice(self.engine)
            return self.choice.highest(logits)

    def top(self, logits: Buffer) -> list[tuple[int, float]] | None:
        with self.engine.lock, in_words("a choice of tokens"):
            self.choice = self.choice or Choice(self.engine)
            return self.choice.top(logits)

    def load_plan(self, plan: Plan) -> LoadedPlan:
        from .tuning import tune

        check_kernels(self.engine, set(plan.kernels))
        tune(self.engine, set(plan.kernels))
        loaded = self.load_untested(plan)
        while check_forms(self.engine, loaded.forms):
            loaded.free()
            loaded = self.load_untested(plan)
        return loaded

    def load_untested(self, plan: Plan) -> WebGPUPlan:
        """As load_plan, whatever kernels it has."""
        from .loaded import WebGPUPlan

        return WebGPUPlan(self.engine, plan, self.engine.tuned)
