"""The base class of engines, loaded plans, and the exceptions for errors of the C side."""

from __future__ import annotations

import struct
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...compiler.schema.errors import ALIAS_ARENA, ALIAS_PLAN, ERRORS, TEXTS
from ...compiler.schema.plan_format import ERROR, HEADER
from ...errors import (
    Aborted,
    EdgewiseError,
    EngineError,
    InputError,
    ModelError,
    OutOfMemory,
    PlanError,
)
from .device import Buffer, Bytes, Device, EngineDevice
from .locks import Owner
from .resolved import ResolvedStep, resolve
from .stopping import LONG, Ends, call_directly, call_interruptibly

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...compiler.ir import Tensor
    from ...compiler.plan import Plan


PAUSED = -1  # EW_PAUSED
AWAY = -2  # EW_AWAY


class Failure(NamedTuple):
    """The members of the C struct ew_error (schema.plan_format.ERROR)."""

    code: int
    step: int
    operand: int
    kernel: int
    detail: int


_CODE = {error.name: error.code for error in ERRORS}
_SMALLER = "Use a smaller batch, sequence or model, or close other models."
_DAMAGED = "The plan is damaged or was made by another version; compile the model again."
# codes of the loader's checks
_REFUSED = [_CODE[name] for name in "FORMAT TABLE KERNEL PARAM BOUNDS ALIAS READONLY".split()]


def error_of(failure: Failure, plan: Plan | None, call: str) -> EdgewiseError:
    """The exception for an error of the C side."""
    code, step, operand, kernel, detail = failure
    kernels = plan.kernels if plan is not None else []
    label = plan.label(step) if plan is not None else ""
    name = kernels[step] if 0 <= step < len(kernels) else ""
    where = label or call or getattr(plan, "name", "") or "engine"
    what = TEXTS.get(code, f"error {code}")
    if code == _CODE["MEMORY"]:
        return OutOfMemory(f"{detail} bytes could not be allocated", where, _SMALLER)
    if code == _CODE["INDEX"]:
        return InputError(
            f"an index is out of range ({detail})",
            where,
            "Check token ids and index inputs against the model's sizes.",
        )
    if code == _CODE["TRIPS"]:
        return ModelError(
            f"its loops ran {detail} iterations",
            where,
            "If that is intended, raise SessionOptions.max_loop_trips; otherwise check their"
            " conditions.",
        )
    if code == _CODE["ABSENT"]:
        value = f" with the value {detail} of a parameter" if detail >= 0 else ""
        return EngineError(
            f"it needs the kernel {name or kernel}{value}, which this engine was built without",
            where,
            "Use the full engine (edgewise-simd128-full.wasm or"
            " edgewise-relaxed-threads-full.wasm), or make one for this model: edgewise build"
            " MODEL --engine OUT.",
        )
    if code == _CODE["ALIAS"] and step < 0:
        return _overlap(operand, detail, plan, where)
    if code == _CODE["STOPPED"]:
        return Aborted(
            what, where, "Its outputs are undefined; sessions and plans can be used again."
        )
    what += f" (step {step}, kernel {name or kernel}, operand {operand}, detail {detail})"
    if code in _REFUSED:
        return PlanError(what, where, _DAMAGED)
    return EngineError(what, where, "Report this.")


def _overlap(slot: int, other: int, plan: Plan | None, where: str) -> PlanError:
    """The error for two slots that overlap in memory. other: a slot, ALIAS_ARENA or ALIAS_PLAN."""
    slots = plan.slots if plan is not None else []
    special = {ALIAS_ARENA: "the engine's arena", ALIAS_PLAN: "the plan"}
    first, second = (
        f"'{slots[i].name}'" if 0 <= i < len(slots) else special.get(i, f"slot {i}")
        for i in (slot, other)
    )
    return PlanError(
        f"{first} lies in the same memory as {second}, and one of them is written",
        where,
        "The package is damaged; compile the model again.",
    )


class Engine(Owner):
    """An engine of the C core.

    `lock` is held while a plan is loaded or run. Memory may be allocated, read, written and freed
    without it.
    """

    POINTER = "<q"  # struct format of a pointer on the C side
    rank = 1  # sessions are locked before their engine
    # result of the C function that a signal handler interrupted by raising
    interrupted: int | None = None
    # True while the Runner's thread runs a plan for the main thread, which may handle signals
    running = False

    def start(self, threads: int) -> None:
        """Opens the C side. A subclass calls this once `call` works. Raises OutOfMemory."""
        self.handle = self.call("ew_open", threads)
        if not self.handle:
            raise OutOfMemory("the engine could not be opened", "", "Free memory and try again.")
        self.cell = self.alloc(8)  # where C functions put a pointer they return
        self.start_lock()

    # What a subclass implements: memory by address, and calls of C functions.

    def call(self, name: str, *args: int) -> int:
        """Calls an exported C function: integers in, an integer out."""
        raise NotImplementedError

    def alloc(self, nbytes: int) -> int:
        """Address of zeroed memory, 64-byte aligned. Raises OutOfMemory."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Frees what `alloc` returned."""
        raise NotImplementedError

    def write(self, address: int, data: Bytes) -> None:
        """Copies bytes-like data to an address."""
        raise NotImplementedError

    def read(self, address: int, nbytes: int) -> bytes:
        """A copy of engine memory."""
        raise NotImplementedError

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Copies from address to address; the ranges may overlap."""
        raise NotImplementedError

    def load_tensor(self, tensor: Tensor) -> tuple[int, bool]:
        """Address of a weight's bytes, and whether they are a copy that the caller must free."""
        raise NotImplementedError

    @property
    def device(self) -> EngineDevice:
        """Its memory and its plans, as sessions use them."""
        return EngineDevice(self)

    def function(self, name: str) -> Callable[..., int]:
        """An exported C function that can be called repeatedly."""
        return partial(self.call, name)

    def view(self, address: int, nbytes: int) -> memoryview | None:
        """A writable memoryview of bytes, valid until the memory is freed; None where Python cannot
        access engine memory.
        """
        return None

    def address_of(self, data: Bytes) -> tuple[int, object] | None:
        """The address of a Python buffer that the engine can read, and the object that keeps it
        valid; None: it must be copied.
        """
        return None

    def load(self, plan: Plan) -> LoadedPlan:
        """Loads and checks a plan. Raises PlanError."""
        return LoadedPlan(self, plan)

    def error(self, plan: Plan | None = None, call: str = "") -> EdgewiseError:
        """The last error of the C side as an exception.

        Args:
            plan: the plan that was loaded or run.
            call: the failed call, for errors that belong to no step.
        """
        return error_of(self.failure(), plan, call)

    def failure(self) -> Failure:
        """The last error of the C side."""
        return Failure(
            *ERROR.unpack(self.read(self.call("ew_last_error", self.handle), ERROR.size))
        )

    def check_alloc(self, address: int, nbytes: int) -> int:
        """Returns the address of an allocation of nbytes. Raises OutOfMemory if it is 0."""
        if not address:
            raise OutOfMemory(
                f"{nbytes} bytes could not be allocated",
                "engine memory",
                "Use a smaller batch, sequence or model, or close other models.",
            )
        return address


class Pages:
    """Equal parts of memory, each of which is prepared when a step first needs it.

    Attributes:
        table: `count` entries (ew_page_entry of core/engine.h); its owner frees it.
    """

    ENTRY = struct.Struct("<QQ")

    def __init__(
        self, device: Device, memory: Buffer, count: int, prepare: Callable[[int, int], None]
    ) -> None:
        """prepare: (first byte, end) of a part."""
        self.device, self.memory, self.count, self.prepare = device, memory, count, prepare
        self.table = device.allocate(self.ENTRY.size * count)

    def bring(self, page: int) -> None:
        """Prepares a part, and puts its address into the table."""
        size = self.memory.nbytes // self.count
        self.prepare(page * size, (page + 1) * size)
        entry = self.ENTRY.pack(self.memory.address + page * size, 0)
        self.device.write(self.table, entry, page * self.ENTRY.size)


class LoadedPlan:
    """A plan that the engine has loaded and checked.

    Attributes:
        watch: the profile.Watch of its session, or None.
        ends: the stopping.Ends of its session.
        title: its name in profiles.
        patience: seconds for which a run may continue after Ctrl-C.
        torn: whether the last run was stopped before its end.
        done: whether the last run was completed, even if Ctrl-C interrupted the wait for it.
        quick: whether the last run was so short that the next one need not handle signals.
        registers: {register: value} of those that were set.
        trips: iterations of loops that a run makes before it handles signals, of a plan whose data
            decide how many there are; 0: of all other plans.
    """

    watch: Any = None
    title = ""
    patience = 0.0
    torn = done = False
    trips = 0

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine, self.plan = engine, plan
        self.registers: dict[int, int] = {}
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
        self.temps: list[int] = []  # addresses of the arenas that are slots
        self.pages: dict[int, Pages] = {}  # by slot
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
        try:
            self.bind_temps()
        except BaseException:
            self.free()
            raise

    def bind_temps(self) -> None:
        """Binds the slots of kind "temp", in which a plan for another target has its arenas."""
        for i, slot in enumerate(self.plan.slots):
            if slot.kind == "temp":
                self.temps.append(self.engine.alloc(slot.nbytes))
                self.bind(i, Buffer(self.temps[-1], slot.nbytes))

    def check_idle(self) -> None:
        """Raises EngineError in a signal handler that interrupted a run. The caller holds the
        engine's lock.
        """
        if self.engine.running:
            raise EngineError(
                "this thread is already running the engine",
                self.plan.name or "plan",
                "Do not run models in a signal handler.",
            )

    def _run(self, name: str, *args: int) -> None:
        """Calls a C function that runs steps. It can be ended by signals, if it may take long, and
        by `ends`.
        """
        engine, ends = self.engine, self.ends
        with engine.lock:
            self.check_idle()
            quick = self.quick and not self.trips
            start, call = perf_counter(), call_directly if quick else call_interruptibly
            if ends.reason is not None:
                call = partial(ends.run, call)
            engine.interrupted = None
            code: int | None = _CODE["STOPPED"]
            try:
                code = self._begin(name)
                while code in (PAUSED, AWAY, None):
                    if code == PAUSED:
                        name, args = "ew_plan_run_some", (0xFFFFFFFF,)
                    elif code == AWAY:
                        failure = engine.failure()
                        self.pages[failure.operand].bring(failure.detail)
                        name, args = "ew_plan_go_on", ()
                    function = engine.function(name)
                    code = call(engine, function, (self.handle, *args), self.patience)
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

    def _begin(self, name: str) -> int | None:
        """The first iterations of a run whose data decide how many there are. Returns None where
        this is no such run.
        """
        if not self.trips or name != "ew_plan_run":
            return None
        return self.engine.call("ew_plan_run_some", self.handle, self.trips)

    def _do(self, code: int) -> None:
        if code:
            raise self.engine.error(self.plan)

    def bind(self, slot: int, buffer: Buffer) -> None:
        """Sets the memory of a slot, which stays the caller's and must outlive the binding.

        Raises PlanError where the buffer is smaller than the slot.
        """
        if self.engine.call("ew_plan_bind", self.handle, slot, *buffer):
            s = self.plan.slots[slot]
            raise PlanError(
                f"its slot {slot} ('{s.name}', {s.nbytes} bytes) does not fit into the"
                f" {buffer.nbytes}"
                " bytes that are bound to it",
                self.plan.name or "plan",
                "The plan is damaged or was made by another version; compile the model again.",
            )

    def bind_pages(self, slot: int, pages: Pages) -> bool:
        """Binds a slot whose parts are brought when steps need them. Returns whether that is
        possible: products of experts alone must read it.
        """
        found = not self.engine.call(
            "ew_plan_pages", self.handle, slot, pages.table.address, pages.count
        )
        if found:
            self.pages[slot] = pages
        return found

    def unbind(self, slot: int) -> None:
        """Unbinds a slot. Runs that use it fail until it is bound again."""
        self._do(self.engine.call("ew_plan_bind", self.handle, slot, 0, 0))

    def in_init(self, slot: int) -> bool:
        """Whether init steps use a slot."""
        return bool(self.engine.call("ew_plan_slot_use", self.handle, slot) & 1)

    def in_runs(self, slot: int) -> bool:
        """Whether steps other than init steps use a slot."""
        return bool(self.engine.call("ew_plan_slot_use", self.handle, slot) & 2)

    def register(self, index: int, value: int) -> None:
        """Sets a register, on which dimensions and offsets depend.

        Raises PlanError if the value is outside the register's range.
        """
        self.registers[index] = value
        if self.engine.call("ew_plan_register", self.handle, index, value):
            raise PlanError(
                f"{value} is out of range for its register {index}",
                self.plan.name or "plan",
                "The plan is damaged or was made by another version; compile the model again.",
            )

    def limit_trips(self, limit: int) -> int:
        """Sets the maximum number of iterations of all loops of a run.

        Returns:
            the iterations of the latest run
        """
        return self.engine.call("ew_plan_trips", self.handle, min(max(limit, 0), 0xFFFFFFFF))

    def init(self) -> None:
        """Runs the init steps, which compute the `computed` slots from weights. Called after the
        weights are bound, and again after they change. Raises as `run`.
        """
        self._run("ew_plan_init")

    def run(self) -> None:
        """Runs all steps but the init steps.

        Raises:
            InputError: an index in the inputs is out of range.
            EngineError: a slot is not bound, or a kernel failed.
            Aborted: the run was stopped.
        """
        if self.watch is not None and self.watch.profile is not None:
            self.watch.profile.record(self)
        else:
            self._run("ew_plan_run")

    def run_timed(self) -> list[float]:
        """Runs once. Returns the duration of each step but the init steps, in seconds."""
        count = len(self.plan.kernels) - self.plan.init_count
        seconds = self.engine.alloc(8 * max(count, 1))
        try:
            self._run("ew_plan_run_steps", 0, count, seconds)
            return list(struct.unpack(f"<{count}d", self.engine.read(seconds, 8 * count)))
        finally:
            self.engine.free(seconds)

    def resolve(self, first: int = 0, count: int | None = None) -> list[ResolvedStep]:
        """Steps as they would run with the registers' present values, for another device.

        The engine has checked them: operands lie inside buffers of the plan's sizes (arena,
        constants, slots), which must not overlap.

        Args:
            first: number of the first step; init steps come first and are counted.
            count: number of steps, by default all from `first` on.
        Raises:
            PlanError: a step cannot run with these values. EngineError: there are no such steps.
        """
        return resolve(self, first, len(self.plan.kernels) - first if count is None else count)

    def free(self) -> None:
        """Frees the plan, but not the memory that its slots are bound to. Later calls do
        nothing.
        """
        handle, self.handle = self.handle, 0
        if handle:
            self.engine.call("ew_plan_free", handle)
        while self.temps:
            self.engine.free(self.temps.pop())
