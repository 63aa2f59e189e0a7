"""Runs without detours: feeds of shapes that were seen before are copied into buffers that stay
bound, plans run one after the other, and outputs are copied out.

For small models what happens around the plans takes longer than the plans. So the second run for
the same shapes leaves a `DirectRun` behind, if nothing stood between its plans (loops, strings and
so on) and everything it takes and gives is an ordinary array. It holds for feeds of those types and
shapes as long as the numbers that shapes and branches depend on are the same; otherwise the driver
runs the model, as it did before.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..arrays import view_of
from ..bind import RUN_SEED
from ..declare.dtypes import bytes_for
from ..declare.symbolic import product
from ..declare.values import RunTensor
from ..engine import LONG, Buffer, Device
from ..errors import EngineError, OutOfMemory

if TYPE_CHECKING:
    from .compiled import Compiled
    from .inference import InferenceSession
    from .split_graph import Part, SplitGraph

MOST_RUNS = 8  # kept for one choice of outputs, the last ones used
MOST_CHOICES = 4  # of outputs
MOST_BYTES = (
    16 << 20
)  # of the buffers of one: the copies of larger ones take longer than the detours
MOST_NUMBERS = 1 << 10  # bytes of numbers that are compared


class DirectRuns:
    """The DirectRuns of a session."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        # by the names of the requested outputs
        self.kept: dict[tuple[str, ...] | None, list[DirectRun]] = {}
        self.seen: tuple | None = None  # outputs, types and shapes of the last run
        self.hopeless: set[tuple] = set()  # those for which no direct run is possible

    def run(self, output_names: list[str] | None, input_feed: Any) -> list | None:
        """The outputs; None where there is no run for such feeds, or another one for their
        numbers.
        """
        if not self.kept or type(input_feed) is not dict:
            return None
        try:
            runs = self.kept.get(None if output_names is None else tuple(output_names))
        except TypeError:
            return None
        if runs is None:
            return None
        with self.session.lock:  # the list, the plans and the buffers change under it only
            for i, direct in enumerate(runs):
                if direct.fits(input_feed):
                    if i:
                        runs.insert(0, runs.pop(i))
                    return direct.run(input_feed)
        return None

    def learn(
        self,
        output_names: list[str] | None,
        program: SplitGraph,
        feeds: dict[str, tuple[int, list[int]] | None],
        values: list,
    ) -> None:
        """After the driver's run of a program with these outputs: keeps a DirectRun where that is
        possible. feeds: {name: (dtype, shape), or None for what is no tensor of numbers}.
        """
        key = None if output_names is None else tuple(output_names)
        signature = (key, tuple(feeds.items()))
        if (
            self.session.budget.compilations or signature != self.seen
        ):  # shapes that come once are not worth it
            self.seen = signature
            return
        if signature in self.hopeless:
            return
        try:
            direct = DirectRun.make(self.session, program, feeds, values)
        except OutOfMemory:  # the run itself has succeeded
            direct = None
        if direct is None:
            self.hopeless = {*list(self.hopeless)[-MOST_RUNS:], signature}
            return
        runs = self.kept.pop(key, [])
        while len(self.kept) >= MOST_CHOICES:
            del self.kept[next(iter(self.kept))]
        self.kept[key] = (
            runs  # the list stays the same object: another thread may be waiting to search it
        )
        runs.insert(0, direct)
        del runs[MOST_RUNS:]

    def clear(self) -> None:
        """Forgets all: a plan is freed."""
        for runs in self.kept.values():
            runs.clear()
        self.kept, self.seen = {}, None


class _Place(NamedTuple):
    """Where a value lies between plans. `view` may be shorter than the buffer."""

    buffer: Buffer
    view: memoryview


class Kept:
    """Memory of a DirectRun, kept for later runs. It does not count as memory of one run."""

    __slots__ = ("device", "buffer")

    def __init__(self, device: Device, nbytes: int) -> None:
        self.buffer = device.allocate(nbytes)
        self.device = device

    def __del__(self) -> None:
        if hasattr(self, "device"):
            self.device.release(self.buffer)


class DirectRun:
    """A run of one program for feeds of certain types and shapes.

    Attributes:
        inputs: [(name, array over the memory that the feed is copied to)].
        feeds_compared, and in `steps` compared: [(memory, bytes that it must hold)].
        steps: [(Compiled, handle of its plan, [(slot, buffer)], compared, length)].
        outputs: arrays over the memory of the outputs.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session, self.engine, self.device = session, session.engine, session.device
        self.memories: list[Kept] = []
        self.nbytes = 0
        self.inputs: list[tuple[str, Any]] = []
        self.feeds_compared: list[tuple[memoryview, bytes]] = []
        self.steps: list[tuple] = []
        self.outputs: list[Any] = []
        self.array: Any = None  # the type of arrays that were fed
        self.run_plan = session.engine.function("ew_plan_run")

    @staticmethod
    def make(
        session: InferenceSession,
        program: SplitGraph,
        feeds: dict[str, tuple[int, list[int]] | None],
        values: list,
    ) -> DirectRun | None:
        """A DirectRun, or None."""
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
        """Memory of its own; None if Python cannot see it, or if there is too much of it."""
        self.nbytes += nbytes
        if self.nbytes > MOST_BYTES:
            return None
        kept = Kept(self.device, nbytes)
        self.memories.append(kept)
        view = self.device.view(kept.buffer)
        if view is not None and data is not None:
            view[:] = data
        return None if view is None else _Place(kept.buffer, view)

    def _connect(self, program: SplitGraph, feeds: dict[str, Any], values: list[RunTensor]) -> bool:
        """Gives each value between plans a place. Returns whether that was possible."""
        places: dict[str, _Place | None] = {}
        if not self._place_feeds(places, feeds, _room(program)):
            return False
        compared, seen = self.feeds_compared, set()
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
            # the driver counts the seeds of a run
            if compiled in seen or RUN_SEED in compiled.inputs:
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
        """Memory for what is fed, at least as large as the plans bind (`room`)."""
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
        """Arrays over the memory of the program's outputs."""
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
        """Whether feeds are arrays of the names, types and shapes of this run."""
        if len(input_feed) != len(self.inputs):
            return False
        array = self.array
        for name, view in self.inputs:
            x = input_feed.get(name)
            if x is None or type(x) is not array or x.dtype != view.dtype or x.shape != view.shape:
                return False
        return True

    def run(self, input_feed: dict[str, Any]) -> list | None:
        """The outputs for feeds that fit; None where their numbers, or those that a plan computed,
        lead elsewhere.
        """
        session, engine, run_plan = self.session, self.engine, self.run_plan
        with session.lock:
            if session.busy:
                raise EngineError(
                    "this thread is amid a run of this session",
                    session.graph.name or "InferenceSession",
                    "Do not run models in a signal handler.",
                )
            if session.watch.profile is not None or any(
                compiled.loaded.handle != handle for compiled, handle, *_ in self.steps
            ):
                return None  # somebody watches, or a plan was freed meanwhile
            try:
                session.busy = True
                for name, view in self.inputs:
                    view[...] = input_feed[name]
                for buffer, expected in self.feeds_compared:
                    if buffer != expected:
                        return None
                for compiled, handle, binds, compared, length in self.steps:
                    if compiled.bound_by is not self:
                        self._bind(compiled, binds, length)
                    loaded = compiled.loaded
                    if not loaded.quick:
                        return None
                    with engine.lock:
                        loaded.check_idle()
                        start = perf_counter()
                        code = run_plan(handle)
                        if perf_counter() - start > LONG:
                            loaded.quick = False
                        if code:
                            raise engine.error(loaded.plan)
                    for buffer, expected in compared:
                        if buffer != expected:
                            return None
                session.runs += 1
                return [view.copy() for view in self.outputs]
            finally:
                session.busy = False

    def _bind(
        self, compiled: Compiled, binds: list[tuple[int, Buffer]], length: int | None
    ) -> None:
        if length is not None:
            compiled.set_length(length)
        for slot, buffer in binds:
            compiled.loaded.bind(slot, buffer)
            compiled.bound[slot] = buffer
        compiled.bound_by = self


def _compare_numbers(
    part: Part,
    key: tuple,
    places: dict[str, _Place | None],
    compared: list[tuple[memoryview, bytes]],
) -> bool:
    """Adds to `compared` the inputs whose numbers a part was compiled for. False if one of them is
    not in memory as these numbers, or is too large.
    """
    for i, numbers in zip(part.needs, key[1] if part.needs else ()):
        place, dtype = places.get(part.inputs[i]), key[0][i][0]
        expected = RunTensor.of(dtype, [len(numbers)], list(numbers)).data
        if place is None or len(place.view) != len(expected) or len(expected) > MOST_NUMBERS:
            return False
        compared.append((place.view, bytes(expected)))
    return True


def _room(program: SplitGraph) -> dict[str, int]:
    """Bytes that the plans of the last run bind for each input: in plans for a range of lengths,
    more than the input has.
    """
    room: dict[str, int] = {}
    for part, _ in program.units:
        compiled = part.last[0][1]
        for name, (_, nbytes) in compiled.inputs.items() if compiled is not None else ():
            room[name] = max(nbytes, room.get(name, 0))
    return room
