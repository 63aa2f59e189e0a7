"""A plan in the engine, with its inputs and outputs as RunTensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...compiler.bind import RUN_SEED
from ...compiler.declare.dtypes import INT64, NAME, bytes_for, pack
from ...compiler.declare.symbolic import NotStatic, Sym, dims_at, most, product
from ...compiler.declare.values import RunTensor
from ...compiler.plan import compile_graph
from ...errors import OutOfMemory, PlanError, UnsupportedOp
from ...logic.manifest.limits import MAX_LENGTH
from .lengths import contiguous
from .memory import Borrowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...compiler.bind import BoundGraph
    from ...compiler.ir import Graph, Value
    from ...compiler.plan import Plan
    from ...compiler.plan.builder import Register
    from ...compiler.targets import Target
    from ..engine import Buffer, Device, Ends
    from ..profile import Watch
    from .budget import Budget
    from .direct import DirectRun, DirectRuns
    from .driver import Driver
    from .memory import Pool, PoolBlock
    from .weights import WeightStore

    class Session(Protocol):
        """What a Driver needs: an InferenceSession, or the session of a compiler's worker.

        Attributes:
            MAX_PLANS: number of plans that are kept for each part of a model.
            store, pool: memory of weights, and of the values between plans.
            watch, ends: for profiles, and for ending runs early.
            direct: the direct runs.
            target: of the plans.
        """

        MAX_PLANS: int
        store: WeightStore
        pool: Pool
        watch: Watch
        ends: Ends
        direct: DirectRuns
        target: Target

        @property
        def device(self) -> Device:
            """Runs the plans."""

    class Compiler(Protocol):
        """What compiles parts: a Driver, or its replacement in a compiler's worker.

        Attributes:
            session: an object with MAX_PLANS.
            budget: counts compilations.
            runs: number of the current run.
        """

        session: Any
        budget: Budget
        runs: int

        def compile_part(
            self,
            graph: Graph,
            tensors: Mapping[str, RunTensor],
            known: Mapping[str, Sequence[Any]],
            names: Sequence[str],
            registers: Sequence[Register] = (),
        ) -> tuple[Known, Compiled | None]:
            """See `compile_part`."""


MAX_LENGTH = MAX_LENGTH
# An output of a plan for a range of lengths takes at most this at the maximum length.
MAX_OUTPUT_BYTES = 1 << 30
# Input arrays of at least this many bytes are read in place. Copying smaller ones takes less time
# than finding out their address.
LARGE = 1 << 16
# Operations and bytes of plans that take far less than a second on any machine.
QUICK = 1e5
# As QUICK, of the first iterations of a loop.
SOON = 1e6


def _work(plan: Plan) -> int:
    """Operations and bytes of a run, as far as they are known."""
    notes = plan.notes
    return 1 + sum(x[1] for field in (notes.operations, notes.bytes) for x in field if x)


class Compiled:
    """A loaded plan.

    Args:
        session: the driver that runs the plan.
        plan: the plan.
        bound: the graph that it was compiled from.

    Attributes:
        inputs: {name: (slot, bytes)}.
        results: {name of an output: (slot, bytes, dtype, shape)}. In a plan for a range of lengths
            shapes may contain Syms.
        length: value of the register of a plan for a range of lengths, otherwise None.
        shapes: {name of an output: its current shape}.
        bound: {slot: the buffer that it is bound to}.
        loops: whether the plan has loops.
        bound_by: the DirectRun whose buffers the slots are bound to, or None.

    Raises:
        OutOfMemory: its arena or its weights do not fit.
        UnsupportedOp: the engine rejects the plan.
    """

    bound_by: DirectRun | None
    length: int | None
    inputs: dict[str, tuple[int, int]]
    results: dict[str, tuple[int, int, int, list[Any]]]
    shapes: dict[str, list[Any]]

    def __init__(self, session: Driver, plan: Plan, bound: BoundGraph) -> None:
        self.session, self.device, self.pool = session, session.device, session.pool
        self.plan, self.direct = plan, session.direct
        self.bound_by = None
        session.budget.arena(
            plan.arena_bytes, next((label for label in plan.labels if label), "graph")
        )
        try:
            self.loaded = self.device.load_plan(plan)
        except PlanError as e:  # the plan is new and not damaged: a kernel does not support a step
            raise UnsupportedOp(
                f"the engine rejected its plan ({e.what})",
                e.where or "graph",
                "Check the shapes and types that were fed; if they are right, report this model.",
            ) from e
        fresh: list[str] = []
        try:
            self.loaded.watch, self.loaded.ends = session.watch, session.ends
            self.loops, work = plan.loops, _work(plan)
            self.loaded.trips = int(SOON / work) + 1 if plan.notes.endless else 0
            self.loaded.quick = work < QUICK
            fresh = session.store.connect(self.loaded)
            kinds = {
                kind: {s.name: (i, s.nbytes) for i, s in enumerate(plan.slots) if s.kind == kind}
                for kind in ("input", "output")
            }
            self.inputs, outputs = kinds["input"], kinds["output"]
            self.results = {
                name: (
                    *outputs[name if name in outputs else name + "~output"],
                    v.dtype,
                    list(v.shape),
                )
                for name, v in bound.outputs.items()
            }
            self.length, self.shapes = None, {n: r[3] for n, r in self.results.items()}
            self.loaded.title = "; ".join(
                f"{name} {NAME[v.dtype]}[{', '.join(map(str, v.shape))}]"
                for name, v in bound.inputs.items()
                if name in self.inputs
            )
            self.bound: dict[int, Buffer] = {}
            session.store.init(self.loaded, fresh)
        except BaseException:
            session.store.forget(fresh)
            self.free()
            raise

    def set_length(self, length: int) -> None:
        """Sets the register of a plan for a range of lengths."""
        if length != self.length:
            self.bound_by = None  # a direct run must set its own length again
            self.loaded.register(0, length)
            self.length = length
            self.shapes = {n: dims_at(r[3], length) for n, r in self.results.items()}

    def run(self, feeds: Mapping[str, RunTensor]) -> dict[str, RunTensor]:
        """Runs the plan.

        Args:
            feeds: {name: tensor} of at least its inputs.

        Returns:
            {name: tensor} of its outputs

        Raises:
            OutOfMemory: there is no memory for an input or output.
            InputError, EngineError, Aborted: see LoadedPlan.run.
        """
        bound, bind = self.bound, self.loaded.bind
        self.bound_by = None
        if RUN_SEED in self.inputs:
            feeds = {**feeds, RUN_SEED: RunTensor.of(INT64, [1], [self.session.seeds.next()])}
        moved = []  # keeps copies alive until the plan has run
        for name, (slot, nbytes) in self.inputs.items():
            v = feeds[name]
            if v.memory is None:
                v.memory, v.offset = self._borrowed(v.data, nbytes), 0
            if v.memory is None:
                v.memory = self._take(nbytes, name)
                if nbytes:
                    self.device.write(v.memory.buffer, v.data)
            buffer = v.memory.buffer.part(v.offset) if v.offset else v.memory.buffer
            # The slot of a plan for a range of lengths has the size of the maximum length.
            if buffer.nbytes < nbytes and self.length is not None:
                moved.append(self._take(nbytes, name))
                self.device.copy(buffer, moved[-1].buffer, v.nbytes)
                buffer = moved[-1].buffer
            if bound.get(slot) != buffer:
                bind(slot, buffer)
                bound[slot] = buffer
        out = {}
        for name, (slot, nbytes, dtype, _) in self.results.items():
            memory = self._take(nbytes, name)
            if bound.get(slot) != memory.buffer:
                bind(slot, memory.buffer)
                bound[slot] = memory.buffer
            out[name] = RunTensor(dtype, self.shapes[name], memory=memory)
        if self.loops:
            self._run_loops()
        else:
            self.loaded.run()
        return out

    def _run_loops(self) -> None:
        budget = self.session.budget
        self.loaded.limit_trips(budget.max_loop_trips - budget.trips)
        self.loaded.run()
        budget.trips += self.loaded.limit_trips(budget.max_loop_trips)

    def _take(self, nbytes: int, name: str) -> PoolBlock:
        """Memory for a value. Raises OutOfMemory with its name."""
        try:
            return self.pool.take(nbytes)
        except OutOfMemory as e:
            e.where = e.where or f"value '{name}'"
            raise

    def _borrowed(self, data: Any, nbytes: int) -> Borrowed | None:
        """The memory of a large array of the caller; None if it must be copied."""
        if nbytes < LARGE or len(data) < nbytes:
            return None
        found = self.device.borrow(data)
        return None if found is None else Borrowed(found[0], self.pool, found[1])

    def free(self) -> None:
        """Frees the plan in the engine. Results of runs stay valid."""
        self.direct.clear()
        self.loaded.free()
        self.session.store.disconnect(self.loaded)


class Known:
    """Outputs of a part that need no plan: inputs, and values computed at compile time.

    Attributes:
        passed: {name of an output: name of the input that it is}.
        numbers: {name of an output: its value}.
    """

    passed: dict[str, str]
    numbers: dict[str, RunTensor]

    def __init__(self) -> None:
        self.passed, self.numbers = {}, {}

    def take(self, bound: BoundGraph) -> None:
        """Removes these outputs from a bound graph.

        Raises:
            NotStatic: a manifest cannot represent a dimension of an output.
            OutOfMemory: the outputs take too much memory at the maximum length of a range.
        """
        check_outputs(bound)
        for d in (d for v in bound.outputs.values() for d in v.shape if isinstance(d, Sym)):
            if not 1 <= d.scale <= MAX_LENGTH or abs(d.add) > MAX_LENGTH or d.min < 0:
                raise NotStatic(f"an output with a dimension {d}")
        for name, v in bound.outputs.items():
            if any(isinstance(d, Sym) and not d.packed for d in v.shape) and not contiguous(
                v.shape
            ):
                raise NotStatic(f"the output '{name}', which is not contiguous at each length")
        self.passed = bound.take_passed()
        for name, v in list(bound.outputs.items()):
            if v.numbers is not None and v.tensor is None and not _changing(v):
                self.numbers[name] = RunTensor(
                    v.dtype, v.shape, pack(v.dtype, v.numbers), numbers=list(v.numbers)
                )
                del bound.outputs[name]


def check_outputs(bound: BoundGraph) -> None:
    """Raises OutOfMemory if outputs whose shapes a register decides exceed MAX_OUTPUT_BYTES at its
    maximum: plans have memory for it, and an output may grow with a power of the length.
    """
    for name, v in bound.outputs.items():
        if not any(isinstance(d, Sym) for d in v.shape):
            continue
        nbytes = bytes_for(v.dtype, product([most(d) for d in v.shape]))
        if nbytes > MAX_OUTPUT_BYTES:
            raise OutOfMemory(
                f"{nbytes} bytes at the maximum length exceed {MAX_OUTPUT_BYTES}",
                f"value '{name}'",
                "Compile a plan for fewer lengths.",
            )


def _changing(v: Value) -> bool:
    """Whether a value with known numbers depends on a register."""
    return any(isinstance(x, Sym) for x in (*v.shape, *v.numbers))  # type: ignore[misc]


def compile_part(
    session: Driver,
    graph: Graph,
    tensors: Mapping[str, RunTensor],
    known: Mapping[str, Sequence[Any]],
    names: Sequence[str],
    registers: Sequence[Register] = (),
) -> tuple[Known, Compiled | None]:
    """Compiles a part of a graph.

    Args:
        session: the driver that will run the plan.
        graph: the part.
        tensors: {name of an input: tensor with its type and shape}. Shapes may contain Syms.
        known: {name of an input: numbers that shapes depend on}.
        names: outputs to compute.
        registers: see compile_graph.

    Returns:
        (outputs that need no plan, the loaded plan or None if there is nothing left to compute)

    Raises:
        As compile_graph and Compiled.
    """
    passed = Known()
    plan, bound = compile_graph(
        graph,
        {n: list(v.shape) for n, v in tensors.items()},
        {n: v.dtype for n, v in tensors.items()},
        known,
        outputs=names,
        transform=passed.take,
        run_seed=True,
        registers=registers,
        max_bytes=session.budget.max_arena_bytes,
        jumps=session.session.target.jumps,
        target=session.session.target,
    )
    return passed, Compiled(session, plan, bound) if bound.outputs else None
