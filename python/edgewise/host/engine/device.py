"""The interface of a device: its memory, and the plans that it runs. web/src/device has the same.

Python compiles plans, C loads and checks them, and a device runs them. With `EngineDevice` an
engine runs the plans that it has checked, in its own memory; webgpu/device.py runs them on a GPU.
Sessions access memory only through a device. Addresses are for C functions that always run on the
processor (core/sampling/sampling.h); `hosted` returns them.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...compiler.ir import Tensor
    from ...compiler.plan import Plan
    from .base import Engine, LoadedPlan


Bytes = bytes | bytearray | memoryview


class Buffer(NamedTuple):
    """A range of a device's memory. Its contents are accessed through the device.

    Attributes:
        address: a number that only the device understands.
        nbytes: size in bytes.
    """

    address: int
    nbytes: int

    def part(self, offset: int, nbytes: int | None = None) -> Buffer:
        """A range inside this one, which shares its memory.

        Args:
            offset: in bytes, from the beginning of this range.
            nbytes: by default up to the end.
        """
        return Buffer(self.address + offset, self.nbytes - offset if nbytes is None else nbytes)


class Device(ABC):
    """Memory and plans of models. Sizes and offsets are in bytes.

    Attributes:
        target: name of the Target (edgewise.compiler.targets) that plans for this device are
        compiled for. chooses: whether it finds the highest logits itself, so that not all have to
        be read.
    """

    __slots__ = ()
    target = "cpu"
    chooses = False

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Allocates zeroed memory. Raises OutOfMemory."""

    def allocate_state(self, nbytes: int) -> Buffer:
        """As `allocate`, for what steps update in place: parameters, and what belongs to them."""
        return self.allocate(nbytes)

    @abstractmethod
    def release(self, buffer: Buffer) -> None:
        """Frees what `allocate` or `load_tensor` returned."""

    @abstractmethod
    def write(self, buffer: Buffer, data: Bytes, at: int = 0) -> None:
        """Copies bytes-like data into a buffer, from byte `at` on."""

    @abstractmethod
    def fill(self, buffer: Buffer, value: int = 0, at: int = 0, nbytes: int | None = None) -> None:
        """Sets bytes to a value: `nbytes` of them (by default up to the end) from byte `at` on."""

    @abstractmethod
    def read(self, buffer: Buffer, at: int = 0, nbytes: int | None = None) -> bytes:
        """A copy of `nbytes` (by default up to the end) from byte `at` on."""

    @abstractmethod
    def copy(self, source: Buffer, target: Buffer, nbytes: int | None = None) -> None:
        """Copies the first bytes (by default all) of a buffer to the beginning of another."""

    @abstractmethod
    def checksum(self, buffer: Buffer, at: int, nbytes: int) -> str:
        """XXH64 of a range, as 16 hexadecimal digits."""

    @abstractmethod
    def view(self, buffer: Buffer) -> memoryview | None:
        """Its memory as a writable memoryview of bytes; None where Python cannot see it."""

    @abstractmethod
    def borrow(self, data: Bytes) -> tuple[Buffer, object] | None:
        """A caller's data as a buffer that is not copied, and the object that keeps it alive; None
        where the data must be copied.
        """

    @abstractmethod
    def load_tensor(self, tensor: Tensor) -> tuple[Buffer, bool]:
        """The bytes of a weight, and whether they are a copy that the caller must release."""

    @abstractmethod
    def hosted(self, buffer: Buffer) -> int:
        """Address of a buffer's contents for C functions on the processor, valid until the next
        run.
        """

    def highest(self, logits: Buffer) -> int | None:
        """The number of the highest float32, the lowest of several; None where the processor is
        asked instead: `chooses` is false, or there is no finite maximum.
        """
        return None

    def top(self, logits: Buffer) -> list[tuple[int, float]] | None:
        """The highest 256 float32, or all of fewer, as (number, value) in descending order, equal
        ones by number; None where the processor is asked instead, as for `highest`.
        """
        return None

    @abstractmethod
    def load_plan(self, plan: Plan) -> LoadedPlan:
        """Loads and checks a plan. Raises PlanError, OutOfMemory."""


class EngineDevice(Device):
    """The memory of an engine, which runs its plans itself."""

    __slots__ = ("engine",)

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(self.engine.alloc(nbytes), nbytes)

    def release(self, buffer: Buffer) -> None:
        self.engine.free(buffer.address)

    def write(self, buffer: Buffer, data: Bytes, at: int = 0) -> None:
        self.engine.write(buffer.address + at, data)

    def fill(self, buffer: Buffer, value: int = 0, at: int = 0, nbytes: int | None = None) -> None:
        count = buffer.nbytes - at if nbytes is None else nbytes
        self.engine.write(buffer.address + at, bytes([value]) * count)

    def read(self, buffer: Buffer, at: int = 0, nbytes: int | None = None) -> bytes:
        count = buffer.nbytes - at if nbytes is None else nbytes
        return self.engine.read(buffer.address + at, count)

    def copy(self, source: Buffer, target: Buffer, nbytes: int | None = None) -> None:
        count = source.nbytes if nbytes is None else nbytes
        self.engine.copy(source.address, target.address, count)

    def checksum(self, buffer: Buffer, at: int, nbytes: int) -> str:
        engine = self.engine
        out = engine.alloc(8)
        try:
            engine.call("ew_xxh64", buffer.address + at, nbytes, out)
            return f"{struct.unpack('<Q', engine.read(out, 8))[0]:016x}"
        finally:
            engine.free(out)

    def view(self, buffer: Buffer) -> memoryview | None:
        return self.engine.view(buffer.address, buffer.nbytes)

    def borrow(self, data: Bytes) -> tuple[Buffer, object] | None:
        found = self.engine.address_of(data)
        return None if found is None else (Buffer(found[0], memoryview(data).nbytes), found[1])

    def load_tensor(self, tensor: Tensor) -> tuple[Buffer, bool]:
        address, owned = self.engine.load_tensor(tensor)
        return Buffer(address, tensor.nbytes), owned

    def hosted(self, buffer: Buffer) -> int:
        return buffer.address

    def load_plan(self, plan: Plan) -> LoadedPlan:
        return self.engine.load(plan)
