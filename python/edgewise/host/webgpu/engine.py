"""An engine whose plans run on a GPU, and steps without a shader on the processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ...compiler.gpu.packing import COLUMNS, ROWS, SIZES, packing_plan
from ...errors import EngineError
from ...logic.gpu.link import declarations
from ...logic.gpu.pace import Pace
from ..engine import Buffer, LoadedPlan
from ..engine.device import EngineDevice
from ..engine.native import NativeEngine
from .device import WebGPUDevice
from .gpu import Gpu
from .pipelines import Pipelines
from .self_test import check_gpu

if TYPE_CHECKING:
    from .loaded import WebGPUPlan


class _Forked:
    """Lock of an engine in a child process, where its GPU cannot be used."""

    def __enter__(self) -> None:
        raise EngineError(
            "a GPU cannot be used in a child process after a fork",
            "fork",
            "Open the engine in the child, or start processes by 'spawn' or 'forkserver'.",
        )

    def __exit__(self, *_: object) -> None:
        pass

    @staticmethod
    def acquire(blocking: bool = True) -> bool:
        """Finalizers in the child free nothing."""
        return False


class WebGPUEngine(NativeEngine):
    """A GPU behind WebGPU, beside an engine in C that checks every plan.

    Args:
        threads: of the engine in C; by default one per core.
        library, subgroups: see Gpu.
        serial: whether to prefer shaders without barriers; None: if the GPU is one in software.

    Attributes:
        machine: what shaders refer to that differs between machines (link.declarations).
        pace: how much the GPU is given before it is waited for.

    Raises:
        EngineError: there is no implementation of WebGPU, no GPU, or one that computes wrongly.
    """

    def __init__(
        self,
        threads: int | None = None,
        library: str | None = None,
        subgroups: bool = True,
        serial: bool | None = None,
    ) -> None:
        self.gpu = Gpu(library, subgroups)
        self.serial = self.gpu.software if serial is None else serial
        super().__init__(threads)
        self.host_device = EngineDevice(self)
        self.pipelines = Pipelines(self.gpu)
        self.pace = Pace(self.serial)
        self.plans: WeakSet[WebGPUPlan] = WeakSet()
        self.temps: list[Buffer] = []  # arenas, which all plans share
        self.tested: set[str] = set()  # names of tests, and forms (compiler/gpu/self_test.py)
        self.tuned: dict[str, int] = {}  # {tunable of shaders: its value}
        self.refused: dict[str, str] = {}  # kernels and forms that the GPU computes wrongly: why
        self._device = WebGPUDevice(self)
        self.machine = declarations(*packing_of(self), self.gpu.dots)
        check_gpu(self)

    def in_child(self) -> None:
        self.lock = _Forked()

    def temp(self, index: int, nbytes: int) -> Buffer:
        """Arena `index` with at least as many bytes. Raises OutOfMemory."""
        with self.lock:  # no plan is running
            while len(self.temps) <= index:
                self.temps.append(Buffer(0, 0))
            if self.temps[index].nbytes < nbytes:
                old, self.temps[index] = self.temps[index], self._device.allocate(nbytes)
                for plan in list(self.plans):
                    plan.bind_temp(index)
                if old.nbytes:
                    self._device.release(old)
            return self.temps[index]

    def fetch(self, buffer: Any, begin: int, nbytes: int) -> bytes:
        """Whole words of a GPUBuffer, when all that was submitted is done. The caller holds the
        lock.
        """
        words = bytes(self.gpu.device.queue.read_buffer(buffer, begin, nbytes))
        self.pace.read(self.pace.submitted)
        return words

    @property
    def device(self) -> WebGPUDevice:  # type: ignore[override]
        """The GPU's memory and its plans, as sessions use them."""
        return self._device

    @property
    def info(self) -> dict[str, Any]:
        """What runs where.

        Returns:
            {adapter, tuned ({tunable of shaders: its value, as measured}), pipelines, buffers,
            bytes (of all buffers), plans: [{plan, steps, dispatches, pipelines, onCpu: {kernel:
            steps}, why: {kernel: reason}, downloads, uploads}]} where
            downloads and uploads are bytes that crossed between GPU and processor within plans.
        """
        memory = self._device.memory
        memory.sweep()
        return {
            "adapter": self.gpu.name,
            "tuned": dict(self.tuned),
            "pipelines": len(self.pipelines),
            "buffers": memory.buffers,
            "bytes": memory.nbytes,
            "plans": [plan.info for plan in self.plans],
        }


def packing_of(engine: NativeEngine) -> tuple[int, int]:
    """(columns of a panel, elements of a column that lie side by side), from packing a matrix."""
    addresses = [engine.alloc(size) for size in SIZES]
    loaded = LoadedPlan(engine, packing_plan())
    try:
        for slot, (address, size) in enumerate(zip(addresses, SIZES)):
            loaded.bind(slot, Buffer(address, size))
        engine.write(addresses[0], bytes(range(256)))
        loaded.run()
        packed = engine.read(addresses[1], SIZES[1])[4 * COLUMNS :]
    finally:
        loaded.free()
        for address in addresses:
            engine.free(address)
    return packed.index(4) // 4, packed.index(ROWS)
