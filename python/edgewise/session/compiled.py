"""A plan in the engine, with what it takes and gives as RunTensors."""

from __future__ import annotations

from ..bind import RUN_SEED
from ..declare.dtypes import INT64, NAME, pack
from ..declare.symbolic import NotStatic, Sym, dims_at
from ..declare.values import RunTensor
from ..errors import OutOfMemory, PlanError, UnsupportedOp
from ..manifest_limits import LIMITS
from ..plan import compile_graph
from .memory import Borrowed

MAX_LENGTH = LIMITS["MAX_LENGTH"]
LARGE = (
    1 << 16
    # bytes from which on a fed array is read where it lies: below, a copy costs less than asking
    # for its address
)
# operations and bytes of a plan, most of which the notes know: far below what takes a second
# anywhere
QUICK = 1e5


def _work(plan):
    """Operations and bytes of a run, as far as they are known."""
    notes = plan.notes
    return sum(x[1] for field in (notes.operations, notes.bytes) for x in field if x)


class Compiled:
    """A loaded plan. session: has engine, store, pool, watch, ends, direct, budget and the `seeds`
    of the run. results: {output name: (slot, bytes, dtype, shape)}. length: of a plan for a range
    of lengths, what its register holds; shapes then have Syms, and `shapes` is what they are now.
    """

    def __init__(self, session, plan, bound):
        self.session, self.device, self.pool = session, session.device, session.pool
        self.plan, self.direct = plan, session.direct
        self.bound_by = None  # the direct.DirectRun whose buffers the slots are bound to
        session.budget.arena(
            plan.arena_bytes, next((label for label in plan.labels if label), "graph")
        )
        try:
            self.loaded = self.device.load_plan(plan)
        except (
            PlanError
        ) as e:  # made a moment ago, not damaged: some step is not what its kernel takes
            raise UnsupportedOp(
                f"the engine does not take what it becomes ({e.what})",
                e.where or "graph",
                "Check the shapes and types that were fed; if they are right, report this model.",
            ) from e
        fresh = []
        try:
            self.loaded.watch, self.loaded.ends = session.watch, session.ends
            self.loaded.quick = plan.notes is not None and _work(plan) < QUICK
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
            self.bound = {}  # slot: Buffer
            session.store.init(self.loaded, fresh)
        except BaseException:
            session.store.forget(fresh)
            self.free()
            raise

    def set_length(self, length):
        """Sets the register of a plan for a range of lengths."""
        if length != self.length:
            self.loaded.register(0, length)
            self.length = length
            self.shapes = {n: dims_at(r[3], length) for n, r in self.results.items()}

    def run(self, feeds):
        """feeds: {name: RunTensor} of at least its inputs. Returns {output name: RunTensor}."""
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
            if buffer.nbytes < nbytes and self.length is not None:  # too small for the longest
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
        self.loaded.run()
        return out

    def _take(self, nbytes, name):
        try:
            return self.pool.take(nbytes)
        except OutOfMemory as e:
            e.where = e.where or f"value '{name}'"
            raise

    def _borrowed(self, data, nbytes: int) -> Borrowed | None:
        """A large buffer of the caller's where it lies; None where it is to be copied."""
        if nbytes < LARGE or len(data) < nbytes:
            return None
        found = self.device.borrow(data)
        return None if found is None else Borrowed(found[0], self.pool, found[1])

    def free(self):
        """Frees the plan in the engine; what runs gave stays."""
        self.direct.clear()
        self.loaded.free()


class Known:
    """A part of a graph of which nothing is left to compute: its outputs are its inputs and what
    binding computed.
    """

    def __init__(self):
        self.passed, self.numbers = {}, {}

    def take(self, bound):
        """Takes such outputs away from a bound graph. Raises NotStatic where a dimension of an
        output is none that a manifest can say.
        """
        for d in (d for v in bound.outputs.values() for d in v.shape if isinstance(d, Sym)):
            if not 1 <= d.scale <= MAX_LENGTH or abs(d.add) > MAX_LENGTH or d.min < 0:
                raise NotStatic(f"an output with a dimension {d}")
        self.passed = bound.take_passed()
        for name, v in list(bound.outputs.items()):
            if v.numbers is not None and v.tensor is None and not _changing(v):
                self.numbers[name] = RunTensor(
                    v.dtype, v.shape, pack(v.dtype, v.numbers), numbers=list(v.numbers)
                )
                del bound.outputs[name]


def _changing(v):
    """Whether a bound Value depends on a register."""
    return any(isinstance(x, Sym) for x in (*v.shape, *v.numbers))


def compile_part(session, graph, tensors, known, names, registers=()):
    """Compiles a graph for RunTensors.

    Args:
        tensors: {input name: RunTensor}; shapes may have Syms. known: {input name: numbers} that
        shapes depend on. names: outputs. registers: as compile_graph's.
    Returns:
        (Known, Compiled or None where nothing is left to run)
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
    )
    return passed, Compiled(session, plan, bound) if bound.outputs else None
