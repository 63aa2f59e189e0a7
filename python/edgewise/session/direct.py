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

from ..arrays import view_of
from ..bind import RUN_SEED
from ..declare.dtypes import bytes_for
from ..declare.symbolic import product
from ..declare.values import RunTensor
from ..engine import LONG
from ..errors import EngineError, OutOfMemory

MOST_RUNS = 8  # kept for one choice of outputs, the last ones used
MOST_CHOICES = 4  # of outputs
MOST_BYTES = (
    16 << 20
)  # of the buffers of one: the copies of larger ones take longer than the detours
MOST_NUMBERS = 1 << 10  # bytes of numbers that are compared


class DirectRuns:
    """The DirectRuns of a session."""

    def __init__(self, session):
        self.session, self.kept = (
            session,
            {},
        )  # {names of the outputs that were asked for: [DirectRun]}
        self.seen, self.hopeless = (
            None,
            set(),
        )  # the last run's outputs, types and shapes; those for which there is no direct run

    def run(self, output_names, input_feed):
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

    def learn(self, output_names, program, feeds, values):
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

    def clear(self):
        """Forgets all: a plan is freed."""
        for runs in self.kept.values():
            runs.clear()
        self.kept, self.seen = {}, None


class Buffer:
    """Engine memory of a DirectRun, which keeps it for later runs: it is no part of what one run
    may take (`Pool.most`).
    """

    __slots__ = ("engine", "address")

    def __init__(self, engine, nbytes: int):
        self.engine, self.address = engine, 0
        self.address = engine.alloc(nbytes)

    def __del__(self):
        if self.address:
            self.engine.free(self.address)


class DirectRun:
    """inputs: [(name, view)]; feeds_compared, and in `steps` compared: [(memoryview, bytes it must
    hold)]; steps: [(Compiled, address of the plan, [(slot, address, bytes)], compared, length)];
    outputs: [view].
    """

    def __init__(self, session):
        self.session, self.engine, self.memories = session, session.engine, []
        self.inputs, self.feeds_compared, self.steps, self.outputs, self.nbytes = [], [], [], [], 0
        self.array, self.run_plan = None, session.engine.function("ew_plan_run")

    @staticmethod
    def make(session, program, feeds, values):
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

    def _buffer(self, nbytes, data=None):
        """(address, memoryview, bytes) of memory of its own; None where there is none to be seen
        from Python, or too much.
        """
        self.nbytes += nbytes
        if self.nbytes > MOST_BYTES:
            return None
        memory = Buffer(self.engine, nbytes)
        self.memories.append(memory)
        buffer = self.engine.view(memory.address, nbytes)
        if buffer is not None and data is not None:
            buffer[:] = data
        return None if buffer is None else (memory.address, buffer, nbytes)

    def _connect(self, program, feeds, values):
        """Gives each value between plans a place. Whether that was possible."""
        places, compiled_ones = {}, set()
        room = _room(program)
        for name, (dtype, shape) in feeds.items():
            nbytes = bytes_for(dtype, product(shape))
            place = self._buffer(max(nbytes, room.get(name, 0)))
            if place is None or not nbytes:
                return False
            places[name] = place = place[0], place[1][:nbytes], place[2]
            view = view_of(place[1], dtype, shape)
            if view is None:
                return False
            self.array = type(view)
            self.inputs.append((name, view))
        compared = self.feeds_compared
        for part, _ in program.units:
            (passed, compiled), key = part.last
            if compiled is None and not passed.passed and not passed.numbers:
                continue
            for i, numbers in zip(part.needs, key[1] if part.needs else ()):
                place, dtype = places.get(part.inputs[i]), key[0][i][0]
                expected = RunTensor.of(dtype, [len(numbers)], list(numbers)).data
                if place is None or len(place[1]) != len(expected) or len(expected) > MOST_NUMBERS:
                    return False
                compared.append((place[1], bytes(expected)))
            for name, v in passed.numbers.items():
                places[name] = self._buffer(v.nbytes, v.data)
            for name, source in passed.passed.items():
                places[name] = places.get(source)
            if compiled is None:
                continue
            if compiled in compiled_ones:
                return False
            compiled_ones.add(compiled)
            if RUN_SEED in compiled.inputs:  # the driver counts the seeds of a run
                return False
            binds = []
            for name, (slot, nbytes) in compiled.inputs.items():
                place = places.get(name)
                if place is None or place[2] < nbytes:
                    return False
                binds.append((slot, place[0], place[2]))
            for name, (slot, nbytes, _, _) in compiled.results.items():
                places[name] = place = self._buffer(nbytes)
                if place is None:
                    return False
                binds.append((slot, place[0], place[2]))
            compared = []
            self.steps.append((compiled, compiled.loaded.handle, binds, compared, compiled.length))
        for name, v in zip(program.names, values):
            place = places.get(name)
            view = (
                view_of(place[1][: v.nbytes], v.dtype, v.shape)
                if place is not None and v.nbytes
                else None
            )
            if view is None:
                return False
            self.outputs.append(view)
        return True

    def fits(self, input_feed):
        """Whether feeds are arrays of the names, types and shapes of this run."""
        if len(input_feed) != len(self.inputs):
            return False
        array = self.array
        for name, view in self.inputs:
            x = input_feed.get(name)
            if type(x) is not array or x.dtype != view.dtype or x.shape != view.shape:
                return False
        return True

    def run(self, input_feed):
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

    def _bind(self, compiled, binds, length):
        if length is not None:
            compiled.set_length(length)
        for slot, address, nbytes in binds:
            compiled.loaded.bind(slot, address, nbytes)
            compiled.bound[slot] = address, nbytes
        compiled.bound_by = self


def _room(program):
    """{input: bytes that the plans of the last run bind}: of a range of lengths, more than there
    are.
    """
    room = {}
    for part, _ in program.units:
        compiled = part.last[0][1]
        for name, (_, nbytes) in compiled.inputs.items() if compiled is not None else ():
            room[name] = max(nbytes, room.get(name, 0))
    return room
