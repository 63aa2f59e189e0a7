"""One step of a plan on a GPU: its programs, what they bind, and their grids."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..schema.plan_format import CONST, SLOT0
from .arrange import Arrangement, Span, arrange, is_scratch
from .pipelines import Pipeline
from .steps import PlanStep, StepOperand
from .wgsl import (
    FIRST_BINDING,
    FLOATS,
    OFFSETS,
    RECORD_BYTES,
    STEP_WORD,
    Program,
    floats_of,
    grid_of,
    program_of,
    stages_of,
)

if TYPE_CHECKING:
    from .loaded import WebGPUPlan

KEPT = ("cache", "state", "computed")  # slots whose contents outlive a run
NO_BUFFER = -1  # number of the constants' GPUBuffer


class Launch:
    """How a step is run.

    Args:
        loaded: the plan.
        index: of the step.
        step: the step.
        largest: highest values of the registers.
        failing: whether a step before it can find an index that is out of range.

    Attributes:
        reason: why it cannot run on this GPU; "" if it can.
        slots: that it binds.
        programs: run one after the other.
        fails: whether one of them can find an index that is out of range.
    """

    def __init__(
        self, loaded: WebGPUPlan, index: int, step: PlanStep, largest: list[int], failing: bool
    ) -> None:
        self.loaded, self.index, self.step = loaded, index, step
        self.stages = stages_of(step, largest)
        self.slots = {
            v.buffer - SLOT0 for v in step.operands if v is not None and v.buffer >= SLOT0
        }
        self.programs: list[Program] = []
        self.fails = self.guarded = False
        self.reason = self._obstacle()
        if self.reason:
            return
        kinds = {
            loaded.plan.slots[v.buffer - SLOT0].kind
            for o, v in zip(step.kernel.operands, step.operands)
            if v is not None and o.output and v.buffer >= SLOT0
        }
        self.guarded = failing and any(kind in KEPT for kind in kinds)
        self.arrangement: Arrangement | None = None
        self._groups: dict[Any, list[Any]] = {}
        self.bind_groups: list[Any] = []
        self.pipelines: list[Pipeline] = []
        self._write(arrange(step, self._spans(False)))
        values = step.values([low for low, _ in loaded.ranges])
        self.grids = None if step.dynamic else [grid_of(v, values) for v in self.stages]

    @property
    def where(self) -> str:
        """The step, for errors."""
        return self.loaded.plan.labels[self.index] or self.step.kernel.name

    def _obstacle(self) -> str:
        """Why the step cannot run on this GPU; "" if it can."""
        gpu = self.loaded.engine.gpu
        if not self.stages:
            return "no shader for these parameters and types"
        count = len({v.buffer for v in self.step.operands if v is not None}) + 1
        if count > gpu.bindings:
            return f"{count} buffers: this GPU binds {gpu.bindings}"
        for i, v in enumerate(self.step.operands):
            if v is None or v.buffer < SLOT0:
                continue
            window = self._window(i, v)
            if window[1] - window[0] > gpu.binding_bytes:
                return f"{window[1] - window[0]} bytes: this GPU binds {gpu.binding_bytes}"
        return ""

    def _window(self, index: int, v: StepOperand) -> tuple[int, int]:
        """The bytes of its slot that an operand binds: all, or, of a slot that is too large, those
        that it touches.
        """
        loaded = self.loaded
        nbytes = loaded.plan.slots[v.buffer - SLOT0].nbytes
        if nbytes <= loaded.engine.gpu.binding_bytes:
            return 0, nbytes
        (resolved,) = loaded.resolve(self.index, 1)
        found = resolved.operands[index]
        if resolved.registers or found is None:
            return 0, nbytes
        return found.begin, found.end

    def _spans(self, placed: bool) -> list[Span | None]:
        """Where the operands lie. placed: in GPUBuffers; otherwise each slot counts as one."""
        loaded = self.loaded
        out: list[Span | None] = []
        for i, v in enumerate(self.step.operands):
            if v is None or is_scratch(self.step, i):
                out.append(None)
            elif v.buffer == CONST:
                out.append(Span(NO_BUFFER, 0, loaded.constants.size, v.offset))
            else:
                begin, end = self._window(i, v)
                number, at = v.buffer, 0
                if placed:
                    place = loaded.engine.device.memory.place(loaded.bound[v.buffer - SLOT0])
                    number, at = place.number, place.offset
                out.append(Span(number, at + begin, at + end, at + v.offset))
        return out

    def _write(self, arrangement: Arrangement) -> None:
        """Makes the programs for an arrangement, and begins to compile them."""
        known = self.arrangement
        self.arrangement = arrangement
        if known is not None and known[:2] == arrangement[:2]:
            return
        self.programs = [
            program_of(self.step, stage, arrangement.roles, arrangement.bindings, self.guarded)
            for stage in self.stages
        ]
        self.fails = any(program.fails for program in self.programs)
        self.pipelines = []
        for program in self.programs:
            self.loaded.engine.pipelines.prepare(program, self.where)

    def connect(self) -> None:
        """Makes the bind groups for the memory that the slots are bound to."""
        arrangement = arrange(self.step, self._spans(True))
        self._write(arrangement)
        engine = self.loaded.engine
        if not self.pipelines:
            self.pipelines = [engine.pipelines.get(p, self.where) for p in self.programs]
        if arrangement not in self._groups:
            if len(self._groups) >= 16:
                self._groups.clear()
            self._groups[arrangement] = [
                self._group(program, pipeline, arrangement)
                for program, pipeline in zip(self.programs, self.pipelines)
            ]
        self.bind_groups = self._groups[arrangement]
        engine.gpu.device.queue.write_buffer(
            self.loaded.records, RECORD_BYTES * self.index, self._record(arrangement)
        )

    def _record(self, arrangement: Arrangement) -> bytes:
        words = [*arrangement.offsets, *[0] * (OFFSETS - len(arrangement.offsets))]
        floats = [self.step.params[name] for name in floats_of(self.step)]
        data = struct.pack(f"<{OFFSETS}I", *words) + struct.pack(f"<{len(floats)}f", *floats)
        data += bytes(4 * (OFFSETS + FLOATS) - len(data))
        assert len(data) == 4 * STEP_WORD
        data += struct.pack("<I", self.index + 1)
        return data + bytes(RECORD_BYTES - len(data))

    def _group(self, program: Program, pipeline: Pipeline, arrangement: Arrangement) -> Any:
        loaded = self.loaded

        def entry(binding: int, buffer: Any, offset: int, size: int) -> dict[str, Any]:
            return {
                "binding": binding,
                "resource": {"buffer": buffer, "offset": offset, "size": size},
            }

        entries = [entry(0, loaded.records, RECORD_BYTES * self.index, RECORD_BYTES)]
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
        """Adds the step to a compute pass."""
        grids = self.grids
        if grids is None:
            values = self.step.values(self.loaded.values)
            if self.step.is_empty(values):
                return
            grids = [grid_of(stage, values) for stage in self.stages]
        for pipeline, group, (across, down) in zip(self.pipelines, self.bind_groups, grids):
            if across and down:
                compute.set_pipeline(pipeline.pipeline)
                compute.set_bind_group(0, group)
                compute.dispatch_workgroups(across, down)
