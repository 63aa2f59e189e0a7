"""A plan whose steps run on a GPU. Steps without a shader run on the processor, between copies of
what they read and write.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...compiler.gpu.batches import Group
from ...compiler.gpu.grouped import Facts
from ...compiler.gpu.program import read_program
from ...compiler.gpu.steps import constants_of, register_rules
from ...compiler.schema.errors import ERRORS
from ...errors import EdgewiseError, EngineError, InputError
from ...logic.gpu.link import RECORD_BYTES
from ...logic.gpu.wgsl import REGISTERS
from ..engine import Buffer, LoadedPlan
from ..engine.base import Failure, error_of
from .gpu import in_words
from .launch import Launch
from .mirror import Mirrors

if TYPE_CHECKING:
    from ...compiler.plan import Plan
    from .engine import WebGPUEngine

CHUNK = 64  # dispatches that are submitted together
INDEX = next(error.code for error in ERRORS if error.name == "INDEX")


class Run:
    """Launches first to end - 1 of a plan, all on the GPU or all on the processor."""

    __slots__ = ("first", "end", "on_gpu")

    def __init__(self, first: int, end: int, on_gpu: bool) -> None:
        self.first, self.end, self.on_gpu = first, end, on_gpu


class WebGPUPlan(LoadedPlan):
    """A plan that the engine in C has checked, on a GPU.

    `run` returns when the commands are submitted, or, if a step can find an index that is out of
    range, when they are done.

    Attributes:
        launches: how steps are run on the GPU, one or several together; None for a step on the
            processor.
        firsts: number of the first step of each.
        work: operations of each.
        reasons: {step: why it runs on the processor}.
        tuned: values of tunables of its shaders.
        facts: by which it is decided how steps run; `operations` are those of each.
        mirrors: memory on the processor of the slots, for the steps there.
    """

    engine: WebGPUEngine
    tuned: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self, engine: WebGPUEngine, plan: Plan, tuned: Mapping[str, int] | None = None
    ) -> None:
        self.tuned = dict(tuned or {})
        self.bound: dict[int, Buffer] = {}
        self.steps: list[Any] = []
        self.launches: list[Launch | None] = []
        self.firsts: list[int] = []
        self.work: list[int] = []
        self.closed: list[Any] = []  # GPUBuffers of the plan's own
        self.mirrors: Mirrors | None = None
        self.fails = self.stale = False
        super().__init__(engine, plan)
        try:
            with engine.lock:
                self._prepare()
        except BaseException:
            self.free()
            raise

    def _prepare(self) -> None:
        """Makes the plan's own buffers, and decides how its steps run."""
        plan, engine, device = self.plan, self.engine, self.engine.gpu.device
        self._read()
        self.values, self.rules = [low for low, _ in self.ranges], register_rules(plan.data)
        for i, (low, high) in enumerate(self.ranges):
            if low < -(1 << 31) or high >= 1 << 31 or len(self.ranges) > REGISTERS:
                raise error_of(Failure(10, -1, i, -1, high), plan, "register")
        constants = constants_of(plan.data)
        self.constants = self._buffer(len(constants))
        self.records = self._buffer(RECORD_BYTES * max(len(self.steps), 1), uniform=True)
        self.registers_buffer = self._buffer(4 * REGISTERS, uniform=True)
        self.errors = self._buffer(16)
        if constants:
            data = constants + bytes(-len(constants) % 4)
            device.queue.write_buffer(self.constants, 0, data)
        self.reasons: dict[int, str] = {}
        self._choose()
        self.fails = any(launch is not None and launch.fails for launch in self.launches)
        self.fresh = True  # whether registers are to be written
        self.dirty: set[int] = {i for i, launch in enumerate(self.launches) if launch is not None}
        self.parts = [self._runs(0, plan.init_count), self._runs(plan.init_count, len(self.steps))]
        if self.reasons:
            self.mirrors = Mirrors(self)
        engine.plans.add(self)
        self.bind_temps()

    def _buffer(self, nbytes: int, uniform: bool = False) -> Any:
        """A GPUBuffer of the plan's own."""
        self.closed.append(self.engine.gpu.buffer(nbytes, uniform))
        return self.closed[-1]

    def _read(self) -> None:
        """Finds out what it takes to run the plan on this GPU."""
        gpu, kinds = self.engine.gpu, [slot.kind for slot in self.plan.slots]
        self.facts = Facts(
            self.plan.data, kinds, self.engine.serial, gpu.bindings, gpu.binding_bytes, self.tuned
        )
        self.steps, self.operations = self.facts.steps, self.facts.operations
        self.ranges = self.facts.ranges

    def _choose(self) -> None:
        """Decides where each step runs, and begins to compile programs. Which ones run together is
        written in the plan (program.py).
        """
        failing, first = False, 0
        groups = {g.first: g for g in read_program(self.plan.data, self.facts, self.plan.name)}
        while first < len(self.steps):
            launch = Launch(self, groups.get(first, Group(first, first + 1)), failing)
            if self._obstacle(launch) and len(launch.steps) > 1:  # this GPU binds less than others
                launch = Launch(self, Group(first, first + 1), failing)
            reason = self._obstacle(launch)
            if reason:
                self.reasons[first] = reason
            else:
                launch.prepare()
                failing = failing or launch.fails
            self.firsts.append(first)
            self.launches.append(None if reason else launch)
            self.work.append(sum(self.operations[first : first + len(launch.steps)]))
            first += len(launch.steps)

    def _obstacle(self, launch: Launch) -> str:
        """Why it cannot run on this GPU; "" if it can."""
        refused = self.engine.refused
        if launch.reason or not refused:
            return launch.reason
        names = [*(step.kernel.name for step in launch.steps), *launch.forms]
        return next((refused[name] for name in names if name in refused), "")

    @property
    def forms(self) -> set[str]:
        """Names of what it runs (logic.gpu.self_test.forms_of)."""
        return {form for launch in self.launches if launch is not None for form in launch.forms}

    def _runs(self, first: int, end: int) -> list[Run]:
        """Runs of the launches with steps first to end - 1."""
        out: list[Run] = []
        for i, step in enumerate(self.firsts):
            if not first <= step < end:
                continue
            on_gpu = self.launches[i] is not None
            if out and out[-1].on_gpu == on_gpu:
                out[-1].end = i + 1
            else:
                out.append(Run(i, i + 1, on_gpu))
        return out

    def steps_in(self, run: Run) -> tuple[int, int]:
        """(its first step, the step after it)"""
        after = self.firsts[run.end] if run.end < len(self.firsts) else len(self.steps)
        return self.firsts[run.first], after

    # ---- slots
    def bind_temps(self) -> None:
        """Binds the arenas, which all plans of the engine share."""
        if self.steps:
            temps = [i for i, slot in enumerate(self.plan.slots) if slot.kind == "temp"]
            for index, slot in enumerate(temps):
                self.bind(slot, self.engine.temp(index, self.plan.slots[slot].nbytes))

    def bind_temp(self, index: int) -> None:
        """Binds an arena again, which has moved."""
        temps = [i for i, slot in enumerate(self.plan.slots) if slot.kind == "temp"]
        if index < len(temps) and temps[index] in self.bound:
            self.bind(temps[index], self.engine.temps[index])

    def bind(self, slot: int, buffer: Buffer) -> None:
        s = self.plan.slots[slot]
        if buffer.nbytes < s.nbytes and not s.grows:
            super().bind(slot, buffer)  # raises
        with self.engine.lock:
            self.bound[slot] = buffer
            if self.mirrors is not None:
                self.mirrors.moved(slot)
            for i, launch in enumerate(self.launches):
                if launch is not None and slot in launch.slots:
                    self.dirty.add(i)

    def unbind(self, slot: int) -> None:
        self.bound.pop(slot, None)

    def register(self, index: int, value: int) -> None:
        super().register(index, value)
        self.values[index] = value
        for i, rule in self.rules.items():
            self.values[i] = rule.at(self.values)
        self.fresh = True

    # ---- runs
    def init(self) -> None:
        for plan in list(self.engine.plans):
            if plan.mirrors is not None:
                plan.mirrors.computed()
        self._go(self.parts[0])

    def run(self) -> None:
        if self.watch is not None and self.watch.profile is not None:
            self.watch.profile.record(self)
        else:
            self._go(self.parts[1])

    def run_timed(self) -> list[float]:
        """As LoadedPlan.run_timed. Steps that run together count as the first of them."""
        out: list[float] = []
        queue = self.engine.gpu.device.queue
        for run in self.parts[1]:
            for i in range(run.first, run.end):
                start = perf_counter()
                self._go([Run(i, i + 1, run.on_gpu)])
                queue.on_submitted_work_done_sync()
                out.append(perf_counter() - start)
                begin, end = self.steps_in(Run(i, i + 1, run.on_gpu))
                out += [0.0] * (end - begin - 1)
        return out

    def seconds(self, runs: int) -> float:
        """How long so many runs take on the GPU, which begins when all are encoded. All steps run
        there, and the plan has run before.
        """
        device = self.engine.gpu.device
        with self.engine.lock, in_words("a measurement"):
            encoder = device.create_command_encoder()
            compute = encoder.begin_compute_pass()
            for launch in self.launches * runs:
                assert launch is not None
                launch.dispatch(compute)
            compute.end()
            commands = encoder.finish()
            self.engine.fetch(self.errors, 0, 4)
            start = perf_counter()
            device.queue.submit([commands])
            self.engine.fetch(self.errors, 0, 4)  # which waits for it
            return perf_counter() - start

    def _go(self, runs: list[Run]) -> None:
        with self.engine.lock:
            self.check_idle()
            self.torn = self.done = started = False
            try:
                self._refresh(runs)
                for run in runs:
                    self.ends.check()
                    if run.on_gpu:
                        started = True
                        self._on_gpu(run)
                    else:
                        self._check()
                        assert self.mirrors is not None
                        started = True
                        self.mirrors.run(*self.steps_in(run))
                self._check()
                self.done, self.stale = True, False
            except InputError:  # later steps have not written states
                raise
            except EdgewiseError:
                self.torn = started
                raise
            except Exception as e:  # the library's own errors
                self.torn = started
                raise EngineError(
                    f"the GPU ended the run ({e})",
                    self.plan.name or "plan",
                    "The GPU may be lost or out of memory: open a new engine.",
                ) from e
            except BaseException:  # Ctrl-C: some steps may not have been submitted
                self.torn = started
                raise

    def _refresh(self, runs: list[Run]) -> None:
        """Writes registers and what has changed since the last run."""
        queue = self.engine.gpu.device.queue
        if self.stale:  # a run ended before its errors were read
            queue.write_buffer(self.errors, 0, bytes(16))
        self.stale = self.fails
        if self.fresh and self.values:
            data = struct.pack(f"<{len(self.values)}i", *self.values)
            queue.write_buffer(self.registers_buffer, 0, data)
        self.fresh = False
        if self.dirty:
            for i in sorted(i for i in self.dirty if any(r.first <= i < r.end for r in runs)):
                launch = self.launches[i]
                assert launch is not None
                launch.connect()
                self.dirty.discard(i)

    def _on_gpu(self, run: Run) -> None:
        pace, work, first = self.engine.pace, self.work, run.first
        while first < run.end:
            launch = self.launches[first]
            assert launch is not None
            if work[first] > pace.bound:
                for one in launch.members or [launch]:
                    self._in_pieces(one, sum(self.operations[one.index :][: len(one.steps)]))
                first += 1
                continue
            self._wait(work[first])
            end = min(pace.together(work, first, run.end), first + CHUNK)
            self._submit(partial(self._encode, first, end), sum(work[first:end]))
            first = end

    def _in_pieces(self, launch: Launch, work: int) -> None:
        """Runs the workgroups of a launch in several dispatches."""
        pace = self.engine.pace
        try:
            for number, count in enumerate(launch.counted()):
                start = 0
                while start < count:
                    self._wait(pace.bound)
                    size = pace.piece(count, start, work)
                    launch.start(start)
                    self._submit(
                        partial(launch.add, number=number, count=size), work * size // count
                    )
                    start += size
        finally:
            launch.start(0)

    def _wait(self, work: int) -> None:
        """Waits until the GPU may be given more operations. Raises what ends the run."""
        pace = self.engine.pace
        if pace.waits(work):
            begin = perf_counter()
            self.engine.gpu.device.queue.on_submitted_work_done_sync()
            now = perf_counter()
            pace.done(1000 * now, 1000 * (now - begin))
            self.ends.check()

    def _encode(self, first: int, end: int, compute: Any) -> None:
        for launch in self.launches[first:end]:
            assert launch is not None
            launch.dispatch(compute)

    def _submit(self, encode: Callable[[Any], None], work: int) -> None:
        device = self.engine.gpu.device
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        encode(compute)
        compute.end()
        device.queue.submit([encoder.finish()])
        self.engine.pace.give(work, 1000 * perf_counter())

    def _check(self) -> None:
        """Raises InputError where a step found an index that is out of range."""
        if not self.fails:
            return
        step, index = struct.unpack("<Ii", self.engine.fetch(self.errors, 0, 8))
        if step:
            raise error_of(Failure(INDEX, step - 1, -1, -1, index), self.plan, "")

    @property
    def info(self) -> dict[str, Any]:
        """What runs where; see WebGPUEngine.info."""
        first = self.plan.init_count
        launches = [
            launch
            for step, launch in zip(self.firsts, self.launches)
            if step >= first and launch is not None
        ]
        here = {i: r for i, r in self.reasons.items() if i >= first}
        mirrors = self.mirrors
        return {
            "plan": self.title or self.plan.name,
            "steps": len(self.steps) - first,
            "dispatches": sum(launch.dispatches for launch in launches),
            "pipelines": len({p.text for launch in launches for p in launch.programs}),
            "onCpu": dict(Counter(self.plan.kernels[i] for i in here)),
            "why": {self.plan.kernels[i]: reason for i, reason in here.items()},
            "downloads": mirrors.downloads if mirrors is not None else 0,
            "uploads": mirrors.uploads if mirrors is not None else 0,
        }

    def free(self) -> None:
        super().free()
        self.engine.plans.discard(self)
        if self.mirrors is not None:
            self.mirrors.free()
        while self.closed:
            self.closed.pop().destroy()
        self.launches, self.firsts, self.bound = [], [], {}
