"""One step of a plan on a GPU, or several in one dispatch: their programs, what these bind, and
their grids.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...compiler.gpu.batches import Group
from ...compiler.gpu.grouped import NO_BUFFER, Grouped
from ...compiler.gpu.variants import count_of, shader_of
from ...compiler.schema.plan_format import SLOT0
from ...logic.gpu.arrange import Arrangement
from ...logic.gpu.link import FLOATS, OFFSETS, RECORD_BYTES, STEP_WORD, floats_of
from ...logic.gpu.variants import folded
from ...logic.gpu.wgsl import FIRST_BINDING, Program, program_of
from .pipelines import Pipeline

if TYPE_CHECKING:
    from .loaded import WebGPUPlan

KEPT = ("cache", "state", "computed")  # slots whose contents outlive a run


class Launch(Grouped):
    """Steps on a GPU.

    Args:
        loaded: the plan.
        group: of its steps.
        failing: whether a step before it can find an index that is out of range.

    Attributes:
        slots: that it binds.
        programs: run one after the other.
        fails: whether one of them can find an index that is out of range.
        members: instead, one for each step, where the batch needs more bindings than there are.
    """

    def __init__(self, loaded: WebGPUPlan, group: Group, failing: bool) -> None:
        self.loaded, self.failing = loaded, failing
        super().__init__(loaded.facts, group)
        self.slots = {
            v.buffer - SLOT0
            for step in self.steps
            for v in step.operands
            if v is not None and v.buffer >= SLOT0
        }
        self.programs: list[Program] = []
        self.members: list[Launch] = []
        self.fails = False
        kinds = {
            self.facts.kinds[v.buffer - SLOT0]
            for step in self.steps
            for o, v in zip(step.kernel.operands, step.operands)
            if v is not None and o.output and v.buffer >= SLOT0
        }
        self.guarded = failing and any(kind in KEPT for kind in kinds)
        self.arrangement: Arrangement | None = None
        self._groups: dict[str, list[Any]] = {}
        self.bind_groups: list[Any] = []
        self.pipelines: list[Pipeline] = []
        self.grids: list[int] | None = None  # workgroups, unless they follow registers
        if len(self.steps) > 1:
            self.grids = [self.total]
        elif not self.reason and not self.step.dynamic:
            self.grids = [count_of(stage, self.step.values([])) for stage in self.stages]

    def prepare(self) -> None:
        """Begins to compile the programs, as far as it is known what they will bind."""
        self._write(self.expected())

    @property
    def where(self) -> str:
        """The first step, for errors."""
        return self.loaded.plan.label(self.index) or self.step.kernel.name

    @property
    def dispatches(self) -> int:
        """Dispatches of a run."""
        return sum(m.dispatches for m in self.members) or len(self.programs)

    def _place(self, slot: int) -> tuple[int, int]:
        """(number of its GPUBuffer, offset in it) of the memory that a slot is bound to."""
        place = self.loaded.engine.device.memory.place(self.loaded.bound[slot])
        return place.number, place.offset

    def _write(self, arrangement: Arrangement) -> None:
        """Makes the programs for an arrangement, and begins to compile them."""
        known = self.arrangement
        self.arrangement = arrangement
        if known is not None and known[:2] == arrangement[:2]:
            return
        roles, bindings = arrangement.roles[self.head], arrangement.bindings
        machine, batch = self.loaded.engine.machine, self.batch(arrangement)
        step, guarded = self.step, self.guarded
        self.programs = [
            program_of(
                step.linked, shader_of(stage, step), roles, bindings, guarded, batch, machine
            )
            for stage in self.stages
        ]
        self.fails = any(program.fails for program in self.programs)
        self.pipelines = []
        for program in self.programs:
            self.loaded.engine.pipelines.prepare(program, self.where)

    def connect(self) -> None:
        """Makes the bind groups for the memory that the slots are bound to."""
        arrangement = self.arranged(self._place)
        if len(self.steps) > 1:
            self._divide(not self.fits(arrangement))
            if self.members:
                return
        self._write(arrangement)
        engine = self.loaded.engine
        if not self.pipelines:
            self.pipelines = [engine.pipelines.get(p, self.where) for p in self.programs]
        key = repr(arrangement)
        if key not in self._groups:
            if len(self._groups) >= 16:
                self._groups.clear()
            self._groups[key] = [
                self._group(program, pipeline, arrangement)
                for program, pipeline in zip(self.programs, self.pipelines)
            ]
        self.bind_groups = self._groups[key]
        self.start(0)

    def start(self, first: int) -> None:
        """Has the next dispatches run workgroups from `first` on."""
        assert self.arrangement is not None
        self.loaded.engine.gpu.device.queue.write_buffer(
            self.loaded.records, RECORD_BYTES * self.index, self._records(self.arrangement, first)
        )

    def _divide(self, apart: bool) -> None:
        """Runs the steps one by one, or again in one dispatch."""
        if not apart:
            self.members = []
            return
        if not self.members:
            self.members = [
                Launch(self.loaded, Group(i, i + 1), self.failing)
                for i in range(self.group.first, self.group.end)
            ]
        for member in self.members:
            member.connect()

    def _records(self, arrangement: Arrangement, start: int) -> bytes:
        """The records of the steps. start: workgroups that earlier dispatches have run."""
        out, first = b"", -start
        varied_of = [v for kind, v in zip(self.kinds, self.varied) for _ in kind]
        for m, step in enumerate(self.steps):
            words = [*arrangement.offsets[m], *[0] * (OFFSETS - len(arrangement.offsets[m]))]
            floats = [step.params[name] for name in floats_of(step.linked)]
            data = struct.pack(f"<{OFFSETS}I", *words) + struct.pack(f"<{len(floats)}f", *floats)
            data += bytes(4 * (OFFSETS + FLOATS) - len(data))
            assert len(data) == 4 * STEP_WORD
            choices = sum(way << 2 * k for k, way in enumerate(arrangement.choices[m]))
            part = m - self.head
            runs = 0 <= part < len(self.counts)
            total = max(self.total - start, 0)
            data += struct.pack("<IiII", self.index + m + 1, first, total, choices)
            for name in varied_of[part] if runs else ():
                number = step.params[name]
                assert isinstance(number, int)
                data += struct.pack("<I", number & 0xFFFFFFFF)
            first += self.counts[part] if runs else 0
            out += data + bytes(RECORD_BYTES - len(data))
        return out

    def _group(self, program: Program, pipeline: Pipeline, arrangement: Arrangement) -> Any:
        loaded = self.loaded

        def entry(binding: int, buffer: Any, offset: int, size: int) -> dict[str, Any]:
            return {
                "binding": binding,
                "resource": {"buffer": buffer, "offset": offset, "size": size},
            }

        records = RECORD_BYTES * len(self.steps)
        entries = [entry(0, loaded.records, RECORD_BYTES * self.index, records)]
        if program.registers:
            entries.append(entry(1, loaded.registers_buffer, 0, loaded.registers_buffer.size))
        if program.fails or program.guarded:
            entries.append(entry(2, loaded.errors, 0, loaded.errors.size))
        places = {NO_BUFFER: loaded.constants}
        for slot in self.slots:
            place = loaded.engine.device.memory.place(loaded.bound[slot])
            places[place.number] = place.gpu_buffer
        for i, (number, begin, end) in enumerate(arrangement.ranges):
            buffer = places[number]
            end = min(max(end, begin + 4), buffer.size)
            entries.append(entry(FIRST_BINDING + i, buffer, begin, end - begin))
        return loaded.engine.gpu.device.create_bind_group(layout=pipeline.layout, entries=entries)

    def dispatch(self, compute: Any) -> None:
        """Adds the steps to a compute pass."""
        for member in self.members:
            member.dispatch(compute)
        if self.members:
            return
        for number, count in enumerate(self.counted()):
            self.add(compute, number, count)

    def counted(self) -> list[int]:
        """Workgroups of each program."""
        if self.grids is not None:
            return self.grids
        values = self.step.values(self.loaded.values)
        if self.step.is_empty(values):
            return [0] * len(self.stages)
        return [count_of(stage, values) for stage in self.stages]

    def add(self, compute: Any, number: int, count: int) -> None:
        """Adds workgroups of a program to a compute pass."""
        if count:
            compute.set_pipeline(self.pipelines[number].pipeline)
            compute.set_bind_group(0, self.bind_groups[number])
            compute.dispatch_workgroups(*folded(count))
