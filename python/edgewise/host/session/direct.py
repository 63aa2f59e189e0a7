"""Direct runs: for inputs with known shapes, the inputs are copied to buffers that stay bound, the
plans run one after the other, and the outputs are copied out.

For small models the driver takes longer than the plans. Therefore the second run with the same
shapes creates a `DirectRun`, if no node ran between its plans (loops, strings, ...) and all inputs
and outputs are ordinary arrays. It is used for inputs of the same types and shapes as long as the
numbers that shapes and branches depend on are the same. Otherwise the driver runs the model.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...compiler.arrays import view_of
from ...compiler.bind import RUN_SEED
from ...compiler.declare.dtypes import bytes_for
from ...compiler.declare.symbolic import product
from ...compiler.declare.values import RunTensor
from ...errors import EngineError, OutOfMemory
from ..engine import LONG, Buffer, Device, LoadedPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .compiled import Compiled
    from .inference import InferenceSession
    from .split_graph import Part, SplitGraph

MAX_RUNS = 8  # maximum number of direct runs for one choice of outputs; the last used are kept
MAX_CHOICES = 4  # maximum number of choices of outputs
# Maximum bytes of the buffers of a direct run: copying more takes longer than the driver.
MAX_BYTES = 16 << 20
MAX_NUMBERS = 1 << 10  # maximum bytes of numbers that are compared


class DirectRuns:
    """All direct runs of a session."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        # by the names of the requested outputs
        self.kept: dict[tuple[str, ...] | None, list[DirectRun]] = {}
        # outputs, types and shapes of the last run
        self.seen: tuple[Any, ...] | None = None
        # outputs, types and shapes for which no direct run is possible
        self.hopeless: set[tuple[Any, ...]] = set()

    def run(self, output_names: Sequence[str] | None, input_feed: Any) -> list[Any] | None:
        """Runs the model if there is a direct run for these inputs.

        Returns:
            the outputs; None: the driver must run the model
        """
        if not self.kept or type(input_feed) is not dict:
            return None
        try:
            runs = self.kept.get(None if output_names is None else tuple(output_names))
        except TypeError:
            return None
        if runs is None:
            return None
        with self.session.lock:  # it protects the list, the plans and the buffers
            for i, direct in enumerate(runs):
                if direct.fits(input_feed):
                    if i:
                        runs.insert(0, runs.pop(i))
                    return direct.run(input_feed)
        return None

    def learn(
        self,
        output_names: Sequence[str] | None,
        program: SplitGraph,
        feeds: dict[str, tuple[int, tuple[int, ...]] | None],
        values: list[Any],
    ) -> None:
        """Creates a direct run, if possible, after the driver has run a program.

        Args:
            output_names: names of the requested outputs; None: all.
            program: run by the driver.
            feeds: {name: (dtype, shape)} of the inputs; None instead of the pair if an input is
                not a tensor of numbers.
            values: the outputs.
        """
        key = None if output_names is None else tuple(output_names)
        signature = (key, tuple(feeds.items()))
        # A direct run takes memory, so shapes must occur twice.
        if self.session.budget.compilations or signature != self.seen:
            self.seen = signature
            return
        if signature in self.hopeless:
            return
        try:
            direct = DirectRun.make(self.session, program, feeds, values)
        except OutOfMemory:  # the run itself has succeeded
            direct = None
        if direct is None:
            self.hopeless = {*list(self.hopeless)[-MAX_RUNS:], signature}
            return
        runs = self.kept.pop(key, [])
        while len(self.kept) >= MAX_CHOICES:
            del self.kept[next(iter(self.kept))]
        # The same list object: another thread may be waiting to search it.
        self.kept[key] = runs
        runs.insert(0, direct)
        del runs[MAX_RUNS:]

    def clear(self) -> None:
        """Removes all direct runs. Called when a plan is freed."""
        for runs in self.kept.values():
            runs.clear()
        self.kept, self.seen = {}, None


class _Place(NamedTuple):
    """Memory of a value between plans. `view` may be shorter than the buffer."""

    buffer: Buffer
    view: memoryview


class Kept:
    """Memory of a DirectRun, kept between runs. It does not count as memory of a run."""

    __slots__ = ("device", "buffer")

    def __init__(self, device: Device, nbytes: int) -> None:
        self.buffer = device.allocate(nbytes)
        self.device = device

    def __del__(self) -> None:
        if hasattr(self, "device"):
            self.device.release(self.buffer)


class DirectRun:
    """A run of one program for inputs of fixed types and shapes.

    Attributes:
        inputs: [(name, array over the memory that the input is copied to)].
        feeds_compared: [(memory, bytes that it must contain)] before the first step.
        steps: [(Compiled, handle of its plan, [(slot, buffer)], compared, length)]; `compared` is
            like `feeds_compared`, after the step.
        outputs: arrays over the memory of the outputs.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session, self.engine, self.device = session, session.engine, session.device
        self.memories: list[Kept] = []
        self.nbytes = 0
        self.inputs: list[tuple[str, Any]] = []
        self.feeds_compared: list[tuple[memoryview, bytes]] = []
        self.steps: list[tuple[Any, ...]] = []
        self.outputs: list[Any] = []
        self.array: Any = None  # the type of the input arrays
        self.run_plan = session.engine.function("ew_plan_run")

    @staticmethod
    def make(
        session: InferenceSession,
        program: SplitGraph,
        feeds: dict[str, tuple[int, tuple[int, ...]] | None],
        values: list[Any],
    ) -> DirectRun | None:
        """A DirectRun for the arguments of DirectRuns.learn; None if that is not possible."""
        if (
            not all(hasattr(u, "last") and u.last is not None for u, _ in program.units)
            or None in feeds.values()
            or not all(isinstance(v, RunTensor) for v in values)
        ):
            return None
        direct = DirectRun(session)
        if not direct._connect(program, feeds, values):
            return None
        return direct

    def _place(self, nbytes: int, data: bytes | None = None) -> _Place | None:
        """Allocates memory; None if Python cannot access it, or beyond MAX_BYTES."""
        self.nbytes += nbytes
        if self.nbytes > MAX_BYTES:
            return None
        kept = Kept(self.device, nbytes)
        self.memories.append(kept)
        view = self.device.view(kept.buffer)
        if view is not None and data is not None:
            view[:] = data
        return None if view is None else _Place(kept.buffer, view)

    def _connect(self, program: SplitGraph, feeds: dict[str, Any], values: list[RunTensor]) -> bool:
        """Assigns memory to each value between plans. Returns whether that was possible."""
        places: dict[str, _Place | None] = {}
        if not self._place_feeds(places, feeds, _room(program)):
            return False
        compared = self.feeds_compared
        seen: set[Compiled] = set()
        for part, _ in program.units:
            (known, compiled), key = part.last
            if compiled is None and not known.passed and not known.numbers:
                continue
            if not _compare_numbers(part, key, places, compared):
                return False
            for name, v in known.numbers.items():
                places[name] = self._place(v.nbytes, v.data)
            for name, source in known.passed.items():
                places[name] = places.get(source)
            if compiled is None:
                continue
            # A plan that runs twice would need two bindings; only the driver sets seeds.
            if compiled in seen or RUN_SEED in compiled.inputs:
                return False
            # The limit of iterations is that of all plans of a run together.
            if compiled.loops and any(c.loops for c in seen):
                return False
            seen.add(compiled)
            binds = self._bindings(compiled, places)
            if binds is None:
                return False
            compared = []
            self.steps.append((compiled, compiled.loaded.handle, binds, compared, compiled.length))
        return self._view_outputs(places, program.names, values)

    def _place_feeds(
        self, places: dict[str, _Place | None], feeds: dict[str, Any], room: dict[str, int]
    ) -> bool:
        """Allocates memory for the inputs, at least as large as the slots of the plans (`room`)."""
        for name, (dtype, shape) in feeds.items():
            nbytes = bytes_for(dtype, product(shape))
            place = self._place(max(nbytes, room.get(name, 0)))
            if place is None or not nbytes:
                return False
            places[name] = place = _Place(place.buffer, place.view[:nbytes])
            view = view_of(place.view, dtype, shape)
            if view is None:
                return False
            self.array = type(view)
            self.inputs.append((name, view))
        return True

    def _bindings(
        self, compiled: Compiled, places: dict[str, _Place | None]
    ) -> list[tuple[int, Buffer]] | None:
        """[(slot, buffer)] of a plan's inputs and outputs; None if one has no memory."""
        binds = []
        for name, (slot, nbytes) in compiled.inputs.items():
            place = places.get(name)
            if place is None or place.buffer.nbytes < nbytes:
                return None
            binds.append((slot, place.buffer))
        for name, (slot, nbytes, _, _) in compiled.results.items():
            places[name] = place = self._place(nbytes)
            if place is None:
                return None
            binds.append((slot, place.buffer))
        return binds

    def _view_outputs(
        self, places: dict[str, _Place | None], names: list[str], values: list[RunTensor]
    ) -> bool:
        """Creates arrays over the memory of the outputs. Returns whether that was possible."""
        for name, v in zip(names, values):
            place = places.get(name)
            if place is None or not v.nbytes:
                return False
            view = view_of(place.view[: v.nbytes], v.dtype, v.shape)
            if view is None:
                return False
            self.outputs.append(view)
        return True

    def fits(self, input_feed: dict[str, Any]) -> bool:
        """Whether the inputs are arrays with the names, types and shapes of this run."""
        if len(input_feed) != len(self.inputs):
            return False
        array = self.array
        for name, view in self.inputs:
            x = input_feed.get(name)
            if x is None or type(x) is not array or x.dtype != view.dtype or x.shape != view.shape:
                return False
        return True

    def run(self, input_feed: dict[str, Any]) -> list[Any] | None:
        """Runs the model on inputs that fit.

        Returns:
            the outputs; None if a shape or a branch depends on numbers that differ, so that the
            driver must run the model
        """
        session = self.session
        with session.lock:
            if session.busy:
                raise EngineError(
                    "this thread is already running this session",
                    session.graph.name or "InferenceSession",
                    "Do not run models in a signal handler.",
                )
            if session.watch.profile is not None or any(
                compiled.loaded.handle != handle for compiled, handle, *_ in self.steps
            ):
                return None  # a profile is active, or a plan was freed
            try:
                session.busy = True
                for name, view in self.inputs:
                    view[...] = input_feed[name]
                for buffer, expected in self.feeds_compared:
                    if buffer != expected:
                        return None
                for compiled, _, binds, compared, length in self.steps:
                    if compiled.bound_by is not self:
                        self._bind(compiled, binds, length)
                    loaded = compiled.loaded
                    if not loaded.quick:
                        return None
                    if loaded.trips:
                        loaded.run()
                    else:
                        self._run_quick(loaded)
                    for buffer, expected in compared:
                        if buffer != expected:
                            return None
                session.runs += 1
                return [view.copy() for view in self.outputs]
            finally:
                session.busy = False

    def _run_quick(self, loaded: LoadedPlan) -> None:
        engine = self.engine
        with engine.lock:
            loaded.check_idle()
            start = perf_counter()
            code = self.run_plan(loaded.handle)
            if perf_counter() - start > LONG:
                loaded.quick = False
            if code:
                raise engine.error(loaded.plan)

    def _bind(
        self, compiled: Compiled, binds: list[tuple[int, Buffer]], length: int | None
    ) -> None:
        if length is not None:
            compiled.set_length(length)
        if compiled.loops:
            compiled.loaded.limit_trips(self.session.budget.max_loop_trips)
        for slot, buffer in binds:
            compiled.loaded.bind(slot, buffer)
            compiled.bound[slot] = buffer
        compiled.bound_by = self


def _compare_numbers(
    part: Part,
    key: tuple[Any, ...],
    places: dict[str, _Place | None],
    compared: list[tuple[memoryview, bytes]],
) -> bool:
    """Adds the inputs whose numbers a part depends on to `compared`. Returns False if one of them
    has no memory of this size or is too large.
    """
    if part.beyond:
        return False  # another number of the same growth runs the same plan
    for i, numbers in zip(part.needs, key[1] if part.needs else ()):
        place, dtype = places.get(part.inputs[i]), key[0][i][0]
        expected = RunTensor.of(dtype, [len(numbers)], list(numbers)).data
        if place is None or len(place.view) != len(expected) or len(expected) > MAX_NUMBERS:
            return False
        compared.append((place.view, bytes(expected)))
    return True


def _room(program: SplitGraph) -> dict[str, int]:
    """Bytes of the slot of each input in the plans of the last run. In plans for a range of lengths
    it is larger than the input.
    """
    room: dict[str, int] = {}
    for part, _ in program.units:
        compiled = part.last[0][1]
        for name, (_, nbytes) in compiled.inputs.items() if compiled is not None else ():
            room[name] = max(nbytes, room.get(name, 0))
    return room
