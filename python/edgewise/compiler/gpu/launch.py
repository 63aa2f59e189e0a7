"""One step of a plan on a GPU, or a batch: its programs, what they bind, and their grids."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...host.webgpu.pipelines import Pipeline
from ..schema.plan_format import ARENA, CONST, SLOT0
from .arrange import Arrangement, Span, arrange, families_of, is_scratch
from .batches import swapped, varied_in
from .link import FLOATS, MOST_CHOICES, OFFSETS, RECORD_BYTES, STEP_WORD, floats_of
from .steps import PlanStep, StepOperand
from .variants import apart_of, columns_of, count_of, folded, grid_of, stages_of
from .wgsl import FIRST_BINDING, Batch, Kind, Program, Taker, program_of
from .work import excess

if TYPE_CHECKING:
    from ...host.webgpu.loaded import WebGPUPlan

KEPT = ("cache", "state", "computed")  # slots whose contents outlive a run
NO_BUFFER = -1  # number of the constants' GPUBuffer
SHARED = {"weight": -2, "state": -3}  # slots that are expected to share GPUBuffers


class Launch:
    """How neighbouring steps are run: one alone, or a batch in one dispatch.

    Args:
        loaded: the plan.
        index: of the first step.
        steps: one; or a group (batches.py): steps that are alike, and before and behind them a
            head and a tail.
        largest: highest values of the registers.
        failing: whether a step before it can find an index that is out of range.
        ends: behind the steps of each kind (Group.ends), from the first step on.
        takers: steps at the end that take results (Group.takers).
        chain: as of Group.

    Attributes:
        reason: why it cannot run on this GPU; "" if it can.
        slots: that it binds.
        programs: run one after the other.
        fails: whether one of them can find an index that is out of range.
        members: instead, one for each step, where the batch needs more bindings than there are.
    """

    def __init__(
        self,
        loaded: WebGPUPlan,
        index: int,
        steps: Sequence[PlanStep],
        largest: list[int],
        failing: bool,
        head: bool = False,
        tail: bool = False,
        ends: Sequence[int] = (),
        takers: int = 0,
        chain: bool = False,
    ) -> None:
        self.loaded, self.index, self.steps, self.step = loaded, index, steps, steps[head]
        self.head, self.tail, self.takers, self.chain = head, tail, takers, chain
        self.parts = steps[head : len(steps) - tail - takers]  # that the body runs
        self.ends = list(ends) or [len(self.parts)]
        self.largest, self.failing = largest, failing
        self.stages = stages_of(self.step, largest)
        self.slots = {
            v.buffer - SLOT0
            for step in steps
            for v in step.operands
            if v is not None and v.buffer >= SLOT0
        }
        self.programs: list[Program] = []
        self.members: list[Launch] = []
        self.fails = self.guarded = False
        self.reason = self._obstacle()
        if self.reason:
            return
        kinds = {
            loaded.plan.slots[v.buffer - SLOT0].kind
            for step in steps
            for o, v in zip(step.kernel.operands, step.operands)
            if v is not None and o.output and v.buffer >= SLOT0
        }
        self.guarded = failing and any(kind in KEPT for kind in kinds)
        self.kinds = [self.parts[a:b] for a, b in zip([0, *self.ends], self.ends)]
        self.varied = [() if tail else varied_in(kind) for kind in self.kinds]
        self.arrangement: Arrangement | None = None
        self._groups: dict[Any, list[Any]] = {}
        self.bind_groups: list[Any] = []
        self.pipelines: list[Pipeline] = []
        if len(steps) > 1 and not self.fits(self._arranged(False)):
            self.reason = "more buffers than this GPU binds"
            return
        self._count()

    def _count(self) -> None:
        """Finds the workgroups of the steps, and the grids unless they follow registers."""
        values = self.step.values([low for low, _ in self.loaded.ranges])
        self.counts = [
            count_of(stages_of(kind[0], self.largest)[-1], part.values(self.largest))
            // (2 if self.takers else 1)
            for kind in self.kinds
            for part in kind
        ]
        self.total = 1 if self.chain else self.counts[0] if self.tail else sum(self.counts)
        self.grids = (
            [folded(self.total)]
            if len(self.steps) > 1
            else None
            if self.step.dynamic
            else [grid_of(v, values) for v in self.stages]
        )

    def prepare(self) -> None:
        """Begins to compile the programs, as far as it is known what they will bind."""
        self._write(self._arranged(False))

    @property
    def where(self) -> str:
        """The first step, for errors."""
        return self.loaded.plan.label(self.index) or self.step.kernel.name

    @property
    def dispatches(self) -> int:
        """Dispatches of a run."""
        return sum(m.dispatches for m in self.members) or len(self.programs)

    def fits(self, arrangement: Arrangement) -> bool:
        """Whether a batch with this arrangement can run."""
        gpu = self.loaded.engine.gpu
        most = 1 if self.step.serial else MOST_CHOICES
        return (
            len(arrangement.bindings) < gpu.bindings
            and all(len(r.bindings) <= most for roles in arrangement.roles for r in roles)
            and all(end - begin <= gpu.binding_bytes for _, begin, end in arrangement.ranges)
        )

    def _obstacle(self) -> str:
        """Why the steps cannot run on this GPU; "" if they can."""
        gpu = self.loaded.engine.gpu
        if not self.stages:
            return "no shader for these parameters and types"
        behind = self.index + len(self.steps)
        work = self.loaded.operations[self.index : behind]
        if reason := excess(self.steps, work, self.largest):
            return reason
        if len(self.steps) > 1:
            return ""  # each alone can run
        count = len({v.buffer for v in self.step.operands if v is not None}) + 1
        if count > gpu.bindings:
            return f"{count} buffers: this GPU binds {gpu.bindings}"
        for i, v in enumerate(self.step.operands):
            if v is None or v.buffer < SLOT0:
                if v is not None and v.buffer == ARENA and not is_scratch(self.step, i):
                    return "its values lie in the engine's arena"
                continue
            window = self._window(0, i, v)
            if window[1] - window[0] > gpu.binding_bytes:
                return f"{window[1] - window[0]} bytes: this GPU binds {gpu.binding_bytes}"
        return ""

    def _window(self, member: int, index: int, v: StepOperand) -> tuple[int, int]:
        """The bytes of its slot that an operand binds: all, or, of a slot that is too large, those
        that it touches.
        """
        loaded = self.loaded
        nbytes = loaded.plan.slots[v.buffer - SLOT0].nbytes
        if nbytes <= loaded.engine.gpu.binding_bytes:
            return 0, nbytes
        (resolved,) = loaded.resolve(self.index + member, 1)
        found = resolved.operands[index]
        if resolved.registers or found is None:
            return 0, nbytes
        return found.begin, found.end

    def _spans(self, placed: bool) -> list[list[Span | None]]:
        """Where the operands lie. placed: in GPUBuffers; otherwise those that share one are
        guessed: weights, and states.
        """
        loaded = self.loaded
        out: list[list[Span | None]] = []
        for member, step in enumerate(self.steps):
            spans: list[Span | None] = []
            for i, v in enumerate(step.operands):
                if v is None or is_scratch(step, i) or self.is_virtual(member, i):
                    spans.append(None)
                    continue
                if v.buffer == CONST:
                    spans.append(Span(NO_BUFFER, 0, loaded.constants.size, v.offset))
                    continue
                begin, end = self._window(member, i, v)
                number, at = v.buffer, 0
                if placed:
                    place = loaded.engine.device.memory.place(loaded.bound[v.buffer - SLOT0])
                    number, at = place.number, place.offset
                elif len(self.steps) > 1:
                    number = SHARED.get(loaded.plan.slots[v.buffer - SLOT0].kind, number)
                spans.append(Span(number, at + begin, at + end, at + v.offset))
            out.append(spans)
        return out

    def _arranged(self, placed: bool) -> Arrangement:
        """What it binds. placed: as of _spans."""
        return arrange(
            self.steps,
            self._spans(placed),
            [] if self.head or self.tail or self.takers else self.ends,
        )

    def _write(self, arrangement: Arrangement) -> None:
        """Makes the programs for an arrangement, and begins to compile them."""
        known = self.arrangement
        self.arrangement = arrangement
        if known is not None and known[:2] == arrangement[:2]:
            return
        batch = self._batch(arrangement) if len(self.steps) > 1 else None
        roles, bindings = arrangement.roles[self.head], arrangement.bindings
        machine = self.loaded.engine.machine
        self.programs = [
            program_of(self.step, stage, roles, bindings, self.guarded, batch, machine)
            for stage in self.stages
        ]
        self.fails = any(program.fails for program in self.programs)
        self.pipelines = []
        for program in self.programs:
            self.loaded.engine.pipelines.prepare(program, self.where)

    def _batch(self, arrangement: Arrangement) -> Batch:
        """What its dispatch runs."""
        families = families_of(self.steps, self.ends)
        others = [
            Kind(
                self.steps[begin],
                stages_of(self.steps[begin], self.largest)[0],
                arrangement.roles[families[begin]],
                varied,
                begin,
            )
            for begin, varied in zip(self.ends, self.varied[1:])
        ]
        return Batch(
            len(self.steps),
            self.varied[0],
            self.steps[0] if self.head else None,
            self.steps[-1] if self.tail else None,
            arrangement.roles[0],
            arrangement.roles[-1],
            self.tail and swapped(self.steps),
            others,
            *self._taken(arrangement),
            self.chain,
        )

    def _taken(self, arrangement: Arrangement) -> tuple[list[Taker], int, int]:
        """The takers, how far elements that they take are apart, and so many of each."""
        if not self.takers:
            return [], 0, 0
        families = families_of(self.steps)
        takers = [
            Taker(step, stages_of(step, self.largest)[0], arrangement.roles[family])
            for step, family in list(zip(self.steps, families))[-self.takers :]
        ]
        apart = max(apart_of(taker.step, self.largest) for taker in takers)
        return takers, apart, columns_of(self.step, self.largest)

    def is_virtual(self, member: int, index: int) -> bool:
        """Whether an operand of step `member` is computed where it is used, so that the launch
        neither reads nor writes its memory.
        """
        step, declared = self.steps[member], self.stages[0].declared
        o = step.kernel.operands[index]
        if self.head and member == 0:
            return o.output
        if self.tail and member == len(self.steps) - 1:
            return not o.output
        if member >= len(self.steps) - self.takers:
            rule = stages_of(step, self.largest)[0].declared["takes"]
            return o.name == rule.partition(" if ")[0]
        before = declared.get("before", "").partition(" if ")[0] if self.head else ""
        after = declared.get("after", "").partition(" if ")[0] if self.tail or self.takers else ""
        return o.name in (before, after)

    def connect(self) -> None:
        """Makes the bind groups for the memory that the slots are bound to."""
        arrangement = self._arranged(True)
        if len(self.steps) > 1:
            self._divide(not self.fits(arrangement))
            if self.members:
                return
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
            self.loaded.records, RECORD_BYTES * self.index, self._records(arrangement)
        )

    def _divide(self, apart: bool) -> None:
        """Runs the steps one by one, or again in one dispatch."""
        if not apart:
            self.members = []
            return
        if not self.members:
            self.members = [
                Launch(self.loaded, self.index + i, [step], self.largest, self.failing)
                for i, step in enumerate(self.steps)
            ]
        for member in self.members:
            member.connect()

    def _records(self, arrangement: Arrangement) -> bytes:
        """The records of the steps."""
        out, first = b"", 0
        varied_of = [v for kind, v in zip(self.kinds, self.varied) for _ in kind]
        for m, step in enumerate(self.steps):
            words = [*arrangement.offsets[m], *[0] * (OFFSETS - len(arrangement.offsets[m]))]
            floats = [step.params[name] for name in floats_of(step)]
            data = struct.pack(f"<{OFFSETS}I", *words) + struct.pack(f"<{len(floats)}f", *floats)
            data += bytes(4 * (OFFSETS + FLOATS) - len(data))
            assert len(data) == 4 * STEP_WORD
            choices = sum(way << 2 * k for k, way in enumerate(arrangement.choices[m]))
            part = m - self.head
            runs = 0 <= part < len(self.parts)
            data += struct.pack("<4I", self.index + m + 1, first, self.total, choices)
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
