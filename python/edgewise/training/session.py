"""`TrainingSession`: a program's plans and states in an engine."""

from __future__ import annotations

import struct
from math import isnan

from ..arrays import as_input, as_output
from ..declare.dtypes import FLOAT, NAME
from ..engine import Ends, Owner, Place, default_engine, locked
from ..errors import EngineError, InputError
from ..profile import Profile, Watch
from ..seeds import MASK64, seed_of_run
from ..session.weights import WeightStore
from .program import GRADIENT_SCALE, LEARNING_RATE, SEED, STEP

PIECE = 1 << 24


PATIENCE = (
    0.7  # seconds: Ctrl-C within a step waits for its end, so that states stay whole, but no longer
)


class TrainingSession(Owner):
    """Runs training steps.

    It may be used from several threads at once: calls queue, those of sessions that share states
    among them.

    Args:
        program: program.Program. engine: default the process's. seed: int that adapters' first
        values and dropout follow from. share: a TrainingSession of the same model with other
        shapes, the states of which are used; it must outlive this one.
    Attributes: seed, runs (forward passes with dropout so far: with the seed and the states all
    that a run's result depends on), engine, store. A failed call leaves states as they were, but
    for `train` and `update` when the engine itself fails midway (`OutOfMemory` comes before
    anything is written). Ctrl-C lets a step end if that takes less than a second. Else states are
    partly updated: then every call raises EngineError until `initialize`, or until states were
    written again (`mended`).
    """

    def __init__(self, program, engine=None, seed=0, share=None):
        self.program, self.engine, self.seed, self.runs, self.share = (
            program,
            share.engine if share else engine or default_engine(),
            int(seed) & MASK64 >> 1,
            0,
            share,
        )
        self.ends, self.busy, self.torn = (
            Ends(),
            False,
            None,
        )  # torn: what a stopped step left partly written: "parameters", "gradients"
        if share is None:
            self.start_lock()
        self.store = WeightStore(self.engine) if share is None else share.store
        self.watch = Watch() if share is None else share.watch
        self.loaded, self.addresses, self.buffers = {}, {} if share is None else share.addresses, {}
        self._initialized = False

    @property
    def root(self):
        """The session whose states these are, and whose lock is held in all that share them."""
        return self if self.share is None else self.share.root

    @property
    def initialized(self):
        """Whether the states have their first values."""
        return self._initialized if self.share is None else self.share.initialized

    # ---- memory ----
    def place(self, name: str) -> Place:
        """The engine memory of a state."""
        return Place(self.address(name), self.program.states[name].nbytes)

    @locked
    def address(self, name):
        """Engine address of a state."""
        if name not in self.addresses:
            s = self.program.states.get(name)
            if s is None:
                raise InputError(
                    f"there is no state '{name}'",
                    "states",
                    f"Some of them: {', '.join(list(self.program.states)[:8])}.",
                )
            self.addresses[name] = self.engine.alloc(s.nbytes)
        return self.addresses[name]

    def _load(self, kind, store=None):
        if kind not in self.loaded:
            plan = self.program.plan(kind)
            loaded, fresh = self.engine.load(plan), []
            loaded.watch, loaded.ends, loaded.title = self.watch, self.ends, kind
            loaded.patience = PATIENCE if kind in ("train", "accumulate", "update") else 0.0
            try:
                fresh = (store or self.store).connect(loaded)
                for i, slot in enumerate(plan.slots):
                    if slot.kind == "state":
                        loaded.bind(i, *self.place(slot.name))
                    elif slot.kind in ("input", "output"):
                        loaded.bind(i, *self._buffer(kind, slot))
                (store or self.store).init(loaded, fresh)
            except BaseException:
                (store or self.store).forget(fresh)
                loaded.free()
                raise
            if store is not None:
                return loaded
            self.loaded[kind] = loaded
        return self.loaded[kind]

    def _buffer(self, kind, slot):
        key = (kind, slot.name)
        if key not in self.buffers:
            self.buffers[key] = (self.engine.alloc(slot.nbytes), slot)
        address, of = self.buffers[key]
        return Place(address, of.nbytes)

    @locked
    def initialize(self, kind="train"):
        """Gives all states their first values; parameters those of the model's file.

        Called by the first run. kind: the plan that tells which states there are.
        """
        if self.share is not None:
            return self.share.initialize(kind)
        self.torn = None
        self.program.plan(kind)
        weights = WeightStore(
            self.engine
        )  # float16 originals of parameters are read once and let go
        loaded = self._load("begin", weights)
        try:
            for name, s in self.program.states.items():
                if self.program.copied(s):
                    self._copy(self.program.graph.constants[s.initial[1]], self.address(name))
                elif s.kind == "gradient" or s.initial == ("fill", 0):
                    if name in self.addresses:
                        self.engine.write(self.addresses[name], bytes(s.nbytes))
            if ("begin", SEED) in self.buffers:
                self.engine.write(
                    self.buffers["begin", SEED][0], struct.pack("<q", seed_of_run(self.seed, -1))
                )
            loaded.run()
        finally:
            loaded.free()
            weights.free()
        self.runs, self._initialized = 0, True

    def _copy(self, tensor, address):
        """Writes a tensor's bytes, a piece at a time: files need not fit into memory beside the
        engine's.
        """
        if tensor.data is not None:
            self.engine.write(address, tensor.data)
            return
        for at in range(0, tensor.nbytes, PIECE):
            self.engine.write(
                address + at, tensor.source.read(tensor.offset + at, min(PIECE, tensor.nbytes - at))
            )

    # ---- runs ----
    @locked
    def train(self, feeds, learning_rate):
        """Forward, backward, update. feeds: {input or target name: array}.

        Returns {"loss": array, ...} of the program's outputs.
        """
        return self._run("train", feeds, {LEARNING_RATE: struct.pack("<f", learning_rate)})

    @locked
    def accumulate(self, feeds):
        """Forward and backward; adds to the gradients."""
        return self._run("accumulate", feeds, {})

    @locked
    def update(self, learning_rate, scale=1.0):
        """The optimizer's step on the accumulated gradients times `scale`.

        They stay as they are: see `reset`.
        """
        self._run(
            "update",
            {},
            {
                LEARNING_RATE: struct.pack("<f", learning_rate),
                GRADIENT_SCALE: struct.pack("<f", scale),
            },
        )

    @locked
    def reset(self):
        """Sets the accumulated gradients to zero."""
        if self.root.torn == "gradients":
            self.root.torn = None
        for name, s in self.program.states.items():
            if s.kind == "gradient" and name in self.addresses:
                self.engine.write(self.addresses[name], bytes(s.nbytes))

    @locked
    def evaluate(self, feeds):
        """Forward without dropout. Returns {"loss": array, ...}."""
        return self._run("evaluate", feeds, {})

    def mended(self):
        """States that a stopped step left partly updated have been written again."""
        self.root.torn = None

    def _check_whole(self):
        if self.root.torn is not None:
            raise EngineError(
                f"the last step was stopped in its middle, and {self.root.torn} are partly updated",
                "TrainingSession",
                (
                    "Go back to a checkpoint (Trainer.resume)."
                    if self.root.torn == "parameters"
                    else "Set the gradients to zero (reset) and repeat the batches."
                ),
            )

    def _run(self, kind, feeds, numbers):
        self._check_whole()
        if not self.initialized:
            self.initialize("accumulate" if kind in ("accumulate", "update") else "train")
        loaded = self._load(kind)
        feeds, mine = dict(feeds), []
        for (k, name), (address, slot) in self.buffers.items():
            if k != kind or slot.kind != "input":
                continue
            if name in numbers:
                mine.append((address, numbers[name]))
            elif name == SEED:
                mine.append((address, struct.pack("<q", seed_of_run(self.seed, self.runs))))
            else:
                if name not in feeds:
                    raise InputError(
                        "it is missing",
                        f"input '{name}'",
                        f"Feed {', '.join(f.name for f in self.program.feeds.values())}.",
                    )
                mine.append(
                    (
                        address,
                        self._data(
                            feeds.pop(name),
                            name,
                            slot,
                            self.program.feeds[name].kind if name in self.program.feeds else None,
                        ),
                    )
                )
        unknown = [n for n in feeds if n not in self.program.feeds and n not in self.program.shapes]
        if unknown:
            raise InputError(
                f"there is no input '{unknown[0]}'",
                "feeds",
                f"There are {', '.join(self.program.feeds)}.",
            )
        if self.root.busy:
            raise EngineError(
                "this thread is amid a run of this session",
                "TrainingSession",
                "Do not train in a signal handler.",
            )
        try:
            self.root.busy, loaded.torn, loaded.done = True, False, False
            for address, data in mine:
                self.engine.write(address, data)
            loaded.run()
        except BaseException:
            if loaded.torn and kind != "evaluate":
                self.root.torn = "gradients" if kind == "accumulate" else "parameters"
            elif loaded.done:  # Ctrl-C came within the step, which was completed
                self.runs += kind in ("train", "accumulate")
            raise
        finally:
            self.root.busy = False
        if kind in ("train", "accumulate"):
            self.runs += 1
        out = {}
        for (k, name), (address, slot) in self.buffers.items():
            if k == kind and slot.kind == "output":
                out[name] = as_output(
                    slot.dtype, slot.shape, self.engine.read(address, slot.nbytes)
                )
        return out

    @staticmethod
    def _data(x, name, slot, kind=None):
        dtype, shape, data = as_input(x, name, slot.dtype)
        if dtype != slot.dtype or list(shape) != list(slot.shape):
            raise InputError(
                f"it is {NAME[dtype]}{list(shape)}, {NAME[slot.dtype]}{list(slot.shape)} is wanted",
                f"input '{name}'",
                "Give batches of the shape that the program was made for.",
            )
        if (
            slot.dtype == FLOAT
            and kind == "target"
            and any(map(isnan, memoryview(data).cast("B").cast("f")))
        ):
            raise InputError(
                "it holds numbers that are none (NaN)",
                f"input '{name}'",
                "Take those rows out: they would spoil every parameter.",
            )
        return data

    def profile(self):
        """A profile.Profile of the steps that run in a `with` block: `with session.profile() as p:
        session.train(feeds, 1e-3)`; then `print(p)`, `p.save("trace.json")`.
        """
        return Profile(self.engine, [self.watch])

    # ---- states ----
    @locked
    def read(self, name):
        """The bytes of a state."""
        self._check_whole()
        if not self.initialized:
            self.initialize()
        return self.engine.read(self.address(name), self.program.states[name].nbytes)

    @locked
    def write(self, name, data):
        """Sets a state from its bytes (or a buffer of them)."""
        if not self.initialized:
            self.initialize()
        view = memoryview(data).cast("B")
        if len(view) != (
            want := self.program.states[name].nbytes if name in self.program.states else -1
        ):
            raise InputError(
                (
                    f"{len(view)} bytes for a state of {want}"
                    if want >= 0
                    else "there is no such state"
                ),
                f"state '{name}'",
                "Give the bytes of a tensor of its shape and type.",
            )
        self.engine.write(self.address(name), view)

    def get(self, name):
        """A state as an array."""
        s = self.program.states.get(name)
        data = self.read(name)
        return as_output(s.dtype, list(s.shape), data)

    def set(self, name, array):
        """Sets a state from an array of its shape and type."""
        s = self.program.states.get(name)
        if s is None:
            self.address(name)
        dtype, shape, data = as_input(array, name, s.dtype)
        if dtype != s.dtype or list(shape) != list(s.shape):
            raise InputError(
                f"it is {NAME[dtype]}{list(shape)}, {NAME[s.dtype]}{list(s.shape)} is wanted",
                f"state '{name}'",
                "Convert or reshape it.",
            )
        self.write(name, data)

    @locked
    def merged(self):
        """{initializer: bytes} of the base weights with their adapters, in the file's types.

        The memory for it is given back.
        """
        return {name: data for name, (_, _, data) in self._once("merge").items()}

    @locked
    def saved(self):
        """{PEFT's name: (dtype code, shape, bytes)} of the parameters that are kept in the
        adapter.
        """
        return self._once("saved") if self.program.saved else {}

    def _once(self, kind):
        """Outputs of a plan that is run now and then: {name: (dtype code, shape, bytes)}.

        Those named like the weight that they are made of have another name as slots
        (builder.finish).
        """
        if not self.initialized:
            self.initialize()
        loaded = self._load(kind)
        try:
            loaded.run()
            return {
                slot.name.removesuffix("~output"): (
                    slot.dtype,
                    tuple(slot.shape),
                    self.engine.read(address, slot.nbytes),
                )
                for (k, _), (address, slot) in self.buffers.items()
                if k == kind and slot.kind == "output"
            }
        finally:
            loaded.free()
            del self.loaded[kind]
            for key in [k for k in self.buffers if k[0] == kind]:
                self.engine.free(self.buffers.pop(key)[0])

    @property
    def step(self):
        """Updates so far."""
        return struct.unpack("<q", self.read(STEP))[0] if STEP in self.program.states else 0

    @property
    @locked
    def nbytes(self):
        """Engine memory this session holds: weights, states, buffers, plans and the arena."""
        held = sum(self.program.states[n].nbytes for n in self.addresses) + sum(
            s.nbytes for _, s in self.buffers.values()
        )
        plans = [self.program.plans[k] for k in self.loaded]
        weights = {
            s.name: s.nbytes
            for p in self.loaded.values()
            for i, s in enumerate(p.plan.slots)
            if s.kind == "computed" or s.kind == "weight" and p.in_runs(i)
        }
        return (
            held
            + sum(weights.values())
            + max((p.arena_bytes for p in plans), default=0)
            + sum(len(p.data) for p in plans)
        )

    @locked
    def free(self):
        """Gives back all engine memory, after a call that another thread is in."""
        self._free()

    def _free(self):
        for p in self.loaded.values():
            p.free()
        for address in [
            *(self.addresses.values() if self.share is None else ()),
            *(a for a, _ in self.buffers.values()),
        ]:
            self.engine.free(address)
        self.loaded, self.addresses, self.buffers, self._initialized = {}, {}, {}, False
        if self.share is None:
            self.store.free()

    def __del__(self):
        try:
            # without the lock: nobody can use it any more, and finalizers must not wait
            self._free()
        except Exception:
            pass


__all__ = ["TrainingSession", "seed_of_run"]
