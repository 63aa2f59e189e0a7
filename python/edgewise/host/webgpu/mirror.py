"""Steps of a GPU's plan that run on the processor, on copies of what they read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...compiler.schema.plan_format import SLOT0
from ..engine import Buffer, LoadedPlan

if TYPE_CHECKING:
    from .loaded import WebGPUPlan

Ranges = dict[int, tuple[int, int]]  # {slot: (first byte, end)}
ROOM = 64  # bytes of a slot that grows, before it is bound


class Mirrors:
    """Memory on the processor for each slot of a plan.

    Memory of slots that no step there uses is never touched, so it is only a range of addresses.

    Attributes:
        downloads, uploads: bytes copied from the GPU and to it, in all runs.
    """

    def __init__(self, loaded: WebGPUPlan) -> None:
        self.loaded, engine = loaded, loaded.engine
        self.downloads = self.uploads = 0
        self.current: set[int] = set()  # weights whose mirror is up to date
        self.addresses: list[int] = []
        for i, slot in enumerate(loaded.plan.slots):
            nbytes = ROOM if slot.grows else slot.nbytes
            self.addresses.append(engine.alloc(nbytes))
            LoadedPlan.bind(loaded, i, Buffer(self.addresses[i], nbytes))

    def moved(self, slot: int) -> None:
        """The slot was bound to other memory, or its weight has changed."""
        self.current.discard(slot)
        if self.loaded.plan.slots[slot].grows:
            engine, nbytes = self.loaded.engine, self.loaded.bound[slot].nbytes
            before, self.addresses[slot] = self.addresses[slot], engine.alloc(nbytes)
            LoadedPlan.bind(self.loaded, slot, Buffer(self.addresses[slot], nbytes))
            engine.free(before)

    def computed(self) -> None:
        """Init steps have run, of this plan or of one that shares its computed slots."""
        slots = self.loaded.plan.slots
        self.current = {slot for slot in self.current if slots[slot].kind != "computed"}

    def run(self, first: int, end: int) -> None:
        """Runs steps first to end - 1 on the processor. Raises as LoadedPlan.run."""
        loaded = self.loaded
        read, written = self.ranges(first, end)
        device, engine = loaded.engine.device, loaded.engine
        count = loaded.plan.init_count
        for slot, (begin, stop) in read.items():
            # while init steps run, weights arrive and computed slots are written
            fixed = first >= count and loaded.plan.slots[slot].kind in ("weight", "computed")
            if fixed and slot in self.current:
                continue
            if fixed:
                begin, stop = 0, loaded.plan.slots[slot].nbytes
                self.current.add(slot)
            data = device.read(loaded.bound[slot], begin, stop - begin)
            engine.write(self.addresses[slot] + begin, data)
            self.downloads += len(data)
        if first < count:
            loaded._run("ew_plan_init_steps", first, end - first)
        else:
            loaded._run("ew_plan_run_steps", first - count, end - first, 0)
        for slot, (begin, stop) in written.items():
            data = engine.read(self.addresses[slot] + begin, stop - begin)
            device.write(loaded.bound[slot], data, begin)
            self.uploads += len(data)

    def ranges(self, first: int, end: int) -> tuple[Ranges, Ranges]:
        """(bytes of slots that these steps access, bytes that they write). What they write is read
        as well, since strides may leave gaps.
        """
        read: Ranges = {}
        written: Ranges = {}
        for step, resolved in zip(
            self.loaded.steps[first:end], self.loaded.resolve(first, end - first)
        ):
            for o, v in zip(step.kernel.operands, resolved.operands):
                if v is None or v.buffer < SLOT0 or v.begin >= v.end:
                    continue
                for ranges in (read, written) if o.output else (read,):
                    low, high = ranges.get(v.buffer - SLOT0, (v.begin, v.end))
                    ranges[v.buffer - SLOT0] = min(low, v.begin), max(high, v.end)
        return read, written

    def free(self) -> None:
        """Frees the memory. The plan must have been freed."""
        while self.addresses:
            self.loaded.engine.free(self.addresses.pop())
