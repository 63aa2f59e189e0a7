"""What all engines share: plans, their slots, and errors in words."""

from __future__ import annotations

import struct
from functools import partial
from time import perf_counter
from typing import NamedTuple

from ..errors import Aborted, EngineError, InputError, OutOfMemory, PlanError
from ..schema.errors import TEXTS
from ..schema.plan_format import ERROR, HEADER
from .locks import Owner
from .stopping import LONG, Ends, call_directly, call_interruptibly


class Place(NamedTuple):
    """A stretch of engine memory.

    An address never travels without its size: what is bound to a slot is checked against it.
    """

    address: int
    nbytes: int


class Engine(Owner):
    """One engine of the C core.

    Subclasses say how memory is reached and functions are called (see the package's docstring).

    `lock` is held while a plan is loaded or run; memory may be allocated, read, written and freed
    without it.
    """

    POINTER = "<q"  # how the C side stores a pointer
    rank = 1  # sessions are locked before their engine
    interrupted = None  # what the C function returned within which a signal handler raised
    # a plan runs in the Runner's thread while the main thread, which holds the lock, may handle
    # signals
    running = False

    def start(self, threads):
        """Opens the C side with so many threads; to be called once a subclass can `call`.

        Raises OutOfMemory.
        """
        self.handle = self.call("ew_open", threads)
        if not self.handle:
            raise OutOfMemory("the engine could not be opened", "", "Free memory and try again.")
        self.cell = self.alloc(8)  # where C functions put a pointer they return
        self.start_lock()

    def function(self, name):
        """An exported C function, as `call` calls it."""
        return partial(self.call, name)

    def view(self, address, nbytes):
        """A writable memoryview (bytes) of engine memory, valid until it is freed; None where
        Python cannot see it.
        """
        return None

    def address_of(self, data) -> tuple[int, object] | None:
        """Where the engine can read a buffer of Python's, and what keeps it there; None: it must be
        copied.
        """
        return None

    def load(self, plan):
        """Loads a plan (plan.Plan); PlanError when the engine refuses it."""
        return LoadedPlan(self, plan)

    def error(self, plan=None, call=""):
        """The last error of the C side as an exception."""
        code, step, operand, kernel, detail = ERROR.unpack(
            self.read(self.call("ew_last_error", self.handle), ERROR.size)
        )
        where = (
            plan.labels[step]
            if plan is not None and 0 <= step < len(plan.labels)
            else call or getattr(plan, "name", "") or "engine"
        )
        name = plan.kernels[step] if plan is not None and 0 <= step < len(plan.kernels) else ""
        what = TEXTS.get(code, f"error {code}")
        if code == 1:
            return OutOfMemory(
                f"{detail} bytes could not be had",
                where,
                "Use a smaller batch, sequence or model, or close other models.",
            )
        if code == 11:
            return InputError(
                f"an index is out of range ({detail})",
                where,
                "Check token ids and index inputs against the model's sizes.",
            )
        if code == 13:
            value = f" with the value {detail} of a parameter" if detail >= 0 else ""
            return EngineError(
                f"it needs the kernel {name or kernel}{value}, which this engine was made without",
                where,
                "Use the full engine (edgewise-simd128-full.wasm or"
                " edgewise-relaxed-threads-full.wasm), or make one for this model: edgewise build"
                " MODEL --engine OUT.",
            )
        if code == 7 and step < 0:
            slots = getattr(plan, "slots", [])
            name, other = (
                (
                    f"'{slots[i].name}'"
                    if 0 <= i < len(slots)
                    else {-1: "the engine's arena", -2: "the plan"}.get(i, f"slot {i}")
                )
                for i in (operand, detail)
            )
            return PlanError(
                f"{name} lies in the same memory as {other}, and one of them is written",
                where,
                "The package is damaged; compile the model again.",
            )
        if code == 14:
            return Aborted(
                what,
                where,
                "What the run was to write has no defined contents; sessions and plans can be used"
                " again.",
            )
        if code in (2, 3, 4, 5, 6, 7, 8):
            return PlanError(
                f"{what} (step {step}, kernel {name or kernel}, operand {operand}, detail"
                f" {detail})",
                where,
                "The plan is damaged or was made by another version; compile the model again.",
            )
        return EngineError(
            f"{what} (step {step}, kernel {name or kernel}, operand {operand}, detail {detail})",
            where,
            "Report this.",
        )

    def check_alloc(self, address, nbytes):
        """The address, or OutOfMemory where it is 0. nbytes: what was asked for."""
        if not address:
            raise OutOfMemory(
                f"{nbytes} bytes could not be had",
                "engine memory",
                "Use a smaller batch, sequence or model, or close other models.",
            )
        return address


class LoadedPlan:
    """A plan in the engine. Slots are bound by number to addresses."""

    watch = None  # profile.Watch of the session that it belongs to
    title = ""  # what profiles call it
    patience = 0.0  # seconds that Ctrl-C leaves a run to end by itself
    torn = done = (
        # the last run was stopped in its middle; it was completed (also where Ctrl-C came within)
        False
    )
    # quick: its last run took so little that no signal needs to be heard within one. ends:
    # stopping.Ends of the session that it belongs to

    def __init__(self, engine, plan):
        self.engine, self.plan, self.registers = engine, plan, {}
        at = HEADER.at["n_slots"]
        if len(plan.data) >= at + 4 and (
            slots := struct.unpack_from("<I", plan.data, at)[0]
        ) != len(plan.slots):
            raise PlanError(
                f"{len(plan.slots)} slots are described, it has {slots}",
                plan.name or "plan",
                "The plan is damaged or was made by another version; compile the model again.",
            )
        self.handle, self.ends, self.quick = 0, Ends(), False
        data = engine.alloc(len(plan.data))
        try:
            engine.write(data, plan.data)
            with engine.lock:
                self.check_idle()
                if engine.call("ew_plan_load", engine.handle, data, len(plan.data), engine.cell):
                    raise engine.error(plan, plan.name or "plan")
                self.handle = struct.unpack(
                    engine.POINTER, engine.read(engine.cell, struct.calcsize(engine.POINTER))
                )[0]
        finally:
            engine.free(data)

    def check_idle(self):
        """Raises EngineError where the main thread, which has the engine's lock, waits for a run
        and handles a signal. To be called with the lock held.
        """
        if self.engine.running:
            raise EngineError(
                "this thread is amid a run in the engine",
                self.plan.name or "plan",
                "Do not run models in a signal handler.",
            )

    def _run(self, name, *args):
        """A C function that runs steps.

        Signals are heard meanwhile where it may take long; what `ends` watches for, too.
        """
        engine, ends = self.engine, self.ends
        with engine.lock:
            self.check_idle()
            start, call = perf_counter(), call_directly if self.quick else call_interruptibly
            if ends.reason is not None:
                call = partial(ends.run, call)
            engine.interrupted, code = None, 14
            try:
                code = call(engine, engine.function(name), (self.handle, *args), self.patience)
            except BaseException:
                code = engine.interrupted
                raise
            finally:
                self.torn, self.done = code == 14, code == 0
            self.quick = perf_counter() - start < LONG
            if code:
                raise (
                    ends.error if code == 14 and ends.error is not None else engine.error(self.plan)
                )

    def _do(self, code):
        if code:
            raise self.engine.error(self.plan)

    def bind(self, slot: int, address: int, nbytes: int) -> None:
        """Lets a slot (its number) lie at an address; the memory stays the caller's.

        nbytes: of the memory there (not of the slot): the engine refuses a slot that is larger.
        Raises PlanError.
        """
        if self.engine.call("ew_plan_bind", self.handle, slot, address, nbytes):
            s = self.plan.slots[slot]
            raise PlanError(
                f"its slot {slot} ('{s.name}', {s.nbytes} bytes) does not fit into the {nbytes}"
                " bytes that are there for it",
                self.plan.name or "plan",
                "The plan is damaged or was made by another version; compile the model again.",
            )

    def unbind(self, slot):
        """A run that needs the slot fails until it is bound again."""
        self._do(self.engine.call("ew_plan_bind", self.handle, slot, 0, 0))

    def in_init(self, slot):
        """Whether init steps use a slot."""
        return bool(self.engine.call("ew_plan_slot_use", self.handle, slot) & 1)

    def in_runs(self, slot):
        """Whether other than init steps use a slot."""
        return bool(self.engine.call("ew_plan_slot_use", self.handle, slot) & 2)

    def register(self, index, value):
        """Sets register `index` (an int64; Syms of the plan follow it).

        PlanError where the value is outside the register's range.
        """
        self.registers[index] = value
        if self.engine.call("ew_plan_register", self.handle, index, value):
            raise PlanError(
                f"its register {index} does not take {value}",
                self.plan.name or "plan",
                "The plan is damaged or was made by another version; compile the model again.",
            )

    def init(self):
        """Runs the init steps, which fill the `computed` slots from weights: once after weights are
        bound, and again when they change. Raises as `run`.
        """
        self._run("ew_plan_init")

    def run(self):
        """Runs all other steps.

        InputError: an index among the inputs is out of range. EngineError: a slot is not bound, or
        a kernel failed.
        """
        if self.watch is not None and self.watch.profile is not None:
            self.watch.profile.record(self)
        else:
            self._run("ew_plan_run")

    def run_timed(self):
        """Runs once; seconds of each step after the init steps."""
        count = len(self.plan.kernels) - self.plan.init_count
        seconds = self.engine.alloc(8 * max(count, 1))
        try:
            self._run("ew_plan_run_steps", 0, count, seconds)
            return list(struct.unpack(f"<{count}d", self.engine.read(seconds, 8 * count)))
        finally:
            self.engine.free(seconds)

    def free(self):
        """Gives back what the engine holds of the plan (not what its slots are bound to); a second
        call does nothing.
        """
        handle, self.handle = self.handle, 0
        if handle:
            self.engine.call("ew_plan_free", handle)
