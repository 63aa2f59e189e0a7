"""`TrainingSession`: a program's plans and states in an engine."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import isnan
from typing import Any

from ...compiler.arrays import as_input, as_output
from ...compiler.declare.dtypes import FLOAT, INT64, NAME
from ...compiler.plan.plan import Slot
from ...compiler.training.losses import TOKEN_WEIGHTS, CausalLMLoss
from ...compiler.training.program import (
    AVERAGED,
    GRADIENT_SCALE,
    LEARNING_RATE,
    SEED,
    STEP,
    Program,
)
from ...errors import EngineError, InputError
from ...logic.training.data import token_weights
from ...seeds import MASK64, seed_of_run
from ..engine import Buffer, Ends, Engine, Owner, default_engine, locked
from ..profile import Profile, Watch
from ..session.weights import WeightStore

PIECE = 1 << 24  # bytes of a weight that are copied at once
PATIENCE = 0.7  # seconds that Ctrl-C waits for the end of a step, so that states stay whole


def learned_labels(feeds: Mapping[str, Any], program: Program) -> int:
    """Labels of a batch of a causal language model that are learned."""
    labels, sequence = _labels(feeds, program)
    return sum(1 for w in token_weights(labels, sequence, 1.0) if w)


def weighed(
    feeds: Mapping[str, Any], program: Program, count: int | None = None
) -> dict[str, object]:
    """Weights that give the mean loss over `count` labels; None: over those of the batch."""
    labels, sequence = _labels(feeds, program)
    total = learned_labels(feeds, program) if count is None else count
    weights = token_weights(labels, sequence, 1 / max(1, total))
    shape = [len(weights) // max(1, sequence), sequence]
    data = struct.pack(f"<{len(weights)}f", *weights)
    return {TOKEN_WEIGHTS: as_output(FLOAT, shape, data)}


def _labels(feeds: Mapping[str, Any], program: Program) -> tuple[list[int], int]:
    """The labels of a batch, -100 where there is no loss, and their number in a row."""
    loss = program.loss
    assert isinstance(loss, CausalLMLoss)  # others have no weights of tokens
    if loss.target not in feeds:
        return [], 1
    dtype, shape, data = as_input(feeds[loss.target], loss.target, INT64)
    if dtype != INT64 or not shape:
        return [], 1
    found = memoryview(data).cast("B").cast("q").tolist()
    ignored = loss.ignore_index
    return [-100 if x == ignored else x for x in found], max(1, shape[-1])


class TrainingSession(Owner):
    """Runs the plans of a training program on states in the engine's memory.

    Several threads may use it: calls queue, also those of sessions that share states.

    A failed call leaves the states as they were, unless the engine itself fails during `train` or
    `update` (OutOfMemory is raised before anything is written). Ctrl-C lets a step end if that
    takes less than a second; otherwise states are partly updated, and every call raises EngineError
    until `initialize`, or until they are written again (`mended`).

    Args:
        program: the program.
        engine: default: the process's.
        seed: int that adapters' first values and dropout follow from.
        share: a session of the same model with other shapes, whose states are used; it must outlive
            this one.

    Attributes:
        seed: as given.
        runs: forward passes with dropout so far. The result of a run depends on the states, the
            seed and this number.
        engine: the engine.
        store: the model's weights.
    """

    def __init__(
        self,
        program: Program,
        engine: Engine | None = None,
        seed: int = 0,
        share: TrainingSession | None = None,
    ):
        self.program, self.share = program, share
        self.engine: Any = share.engine if share else engine or default_engine()
        self.seed, self.runs = int(seed) & MASK64 >> 1, 0
        self.ends, self.busy = Ends(), False
        self.torn: str | None = None  # kind of states that a stopped step left partly written
        if share is None:
            self.start_lock()
        self.device = self.engine.device
        self.store: WeightStore = WeightStore(self.device) if share is None else share.store
        self.watch: Watch = Watch() if share is None else share.watch
        self.loaded: dict[str, Any] = {}  # plans in the engine
        self.memory: dict[str, Buffer] = {} if share is None else share.memory  # of states
        self.buffers: dict[tuple[str, str], tuple[Buffer, Slot]] = {}  # of inputs and outputs
        self._initialized = False

    @property
    def root(self) -> TrainingSession:
        """The session that owns the states, and whose lock all sessions that share them take."""
        return self if self.share is None else self.share.root

    @property
    def initialized(self) -> bool:
        """Whether the states have their first values."""
        return self._initialized if self.share is None else self.share.initialized

    # ---- memory ----
    @locked
    def place(self, name: str) -> Buffer:
        """The memory of a state. Raises InputError if there is no such state."""
        if name not in self.memory:
            s = self.program.states.get(name)
            if s is None:
                raise InputError(
                    f"there is no state '{name}'",
                    "states",
                    f"Some of them: {', '.join(list(self.program.states)[:8])}.",
                )
            self.memory[name] = self.device.allocate_state(s.nbytes)
        return self.memory[name]

    def _load(self, kind: str, store: WeightStore | None = None) -> Any:
        if kind not in self.loaded:
            plan = self.program.plan(kind)
            loaded = self.device.load_plan(plan)
            fresh: list[str] = []
            loaded.watch, loaded.ends, loaded.title = self.watch, self.ends, kind
            loaded.patience = PATIENCE if kind in ("train", "accumulate", "update") else 0.0
            try:
                fresh = (store or self.store).connect(loaded)
                for i, slot in enumerate(plan.slots):
                    if slot.kind == "state":
                        loaded.bind(i, self.place(slot.name))
                    elif slot.kind in ("input", "output"):
                        loaded.bind(i, self._buffer(kind, slot))
                (store or self.store).init(loaded, fresh)
            except BaseException:
                (store or self.store).forget(fresh)
                loaded.free()
                raise
            if store is not None:
                return loaded
            self.loaded[kind] = loaded
        return self.loaded[kind]

    def _buffer(self, kind: str, slot: Slot) -> Buffer:
        key = (kind, slot.name)
        if key not in self.buffers:
            self.buffers[key] = (self.device.allocate(slot.nbytes), slot)
        return self.buffers[key][0]

    @locked
    def initialize(self, kind: str = "train") -> None:
        """Sets all states to their first values: parameters to those in the model's file.

        The first run calls it.

        Args:
            kind: the plan whose states are initialized.
        """
        if self.share is not None:
            return self.share.initialize(kind)
        self.torn = None
        self.program.plan(kind)
        weights = WeightStore(self.device)  # float16 weights are read once and released
        loaded = self._load("begin", weights)
        try:
            for name, s in self.program.states.items():
                if self.program.copied(s):
                    self._copy(self.program.graph.constants[s.initial[1]], self.place(name))
                elif s.kind == "gradient" or s.initial == ("fill", 0):
                    if name in self.memory:
                        self.device.fill(self.memory[name])
            if ("begin", SEED) in self.buffers:
                self.device.write(
                    self.buffers["begin", SEED][0], struct.pack("<q", seed_of_run(self.seed, -1))
                )
            loaded.run()
            if self.program.lora is not None and self.program.lora.use_dora:
                loaded.free()
                loaded = self._load("magnitudes", weights)
                loaded.run()
        finally:
            loaded.free()
            weights.free()
        self.runs, self._initialized = 0, True

    def _copy(self, tensor: Any, buffer: Buffer) -> None:
        """Writes a tensor's bytes in pieces, so that the file need not fit into Python's memory."""
        if tensor.data is not None:
            self.device.write(buffer, tensor.data)
            return
        for at in range(0, tensor.nbytes, PIECE):
            piece = tensor.source.read(tensor.offset + at, min(PIECE, tensor.nbytes - at))
            self.device.write(buffer, piece, at)

    # ---- runs ----
    @locked
    def train(self, feeds: Mapping[str, Any], learning_rate: float) -> dict[str, Any]:
        """Forward pass, backward pass and update.

        Args:
            feeds: {input or target name: array} of the program's shapes and types.
            learning_rate: of the update.

        Returns:
            {"loss": float32 [], ...}: the program's outputs, before the update.

        Raises:
            InputError: an array is missing, or has another shape or type.
        """
        return self._run("train", feeds, {LEARNING_RATE: struct.pack("<f", learning_rate)})

    @locked
    def accumulate(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward pass; adds to the gradients. Args, Returns, Raises: as `train`.

        Of causal language models `token_weights` may be fed: the loss is the sum of the losses of
        labels times their weights. Default: weights that give their mean.
        """
        self.program.plan("accumulate")
        if TOKEN_WEIGHTS in self.program.feeds and TOKEN_WEIGHTS not in feeds:
            feeds = {**feeds, **weighed(feeds, self.program)}
        return self._run("accumulate", feeds, {})

    @locked
    def update(self, learning_rate: float, scale: float = 1.0) -> None:
        """The optimizer's step on the accumulated gradients. They are kept: see `reset`.

        Args:
            learning_rate: of the update.
            scale: factor of the gradients, such as 1 / number of batches.
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
    def reset(self) -> None:
        """Sets the accumulated gradients to zero."""
        if self.root.torn == "gradients":
            self.root.torn = None
        for name, s in self.program.states.items():
            if s.kind == "gradient" and name in self.memory:
                self.device.fill(self.memory[name])

    @locked
    def evaluate(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Forward pass without dropout. Args, Returns, Raises: as `train`."""
        return self._run("evaluate", feeds, {})

    def mended(self) -> None:
        """To be called once all states that a stopped step left partly updated are written."""
        self.root.torn = None

    def _check_whole(self) -> None:
        if self.root.torn is not None:
            raise EngineError(
                f"the last step was aborted, and {self.root.torn} are partly updated",
                "TrainingSession",
                (
                    "Go back to a checkpoint (Trainer.resume)."
                    if self.root.torn == "parameters"
                    else "Set the gradients to zero (reset) and repeat the batches."
                ),
            )

    def _run(
        self, kind: str, feeds: Mapping[str, Any], numbers: Mapping[str, bytes]
    ) -> dict[str, Any]:
        """Runs a plan. numbers: bytes of the inputs that are not the caller's."""
        self._check_whole()
        if not self.initialized:
            self.initialize("accumulate" if kind in ("accumulate", "update") else "train")
        loaded = self._load(kind)
        inputs = self._inputs(kind, feeds, numbers)
        if self.root.busy:
            raise EngineError(
                "this thread is already running this session",
                "TrainingSession",
                "Do not train in a signal handler.",
            )
        try:
            self.root.busy, loaded.torn, loaded.done = True, False, False
            for buffer, data in inputs:
                self.device.write(buffer, data)
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
        for (k, name), (buffer, slot) in self.buffers.items():
            if k == kind and slot.kind == "output":
                out[name] = as_output(slot.dtype, slot.shape, self.device.read(buffer))
        return out

    def _inputs(
        self, kind: str, feeds: Mapping[str, Any], numbers: Mapping[str, bytes]
    ) -> list[tuple[Buffer, Any]]:
        """[(buffer, bytes)] of a plan's inputs. Raises InputError unless all are fed."""
        rest, out = dict(feeds), []
        for (k, name), (buffer, slot) in self.buffers.items():
            if k != kind or slot.kind != "input":
                continue
            if name in numbers:
                out.append((buffer, numbers[name]))
            elif name == SEED:
                out.append((buffer, struct.pack("<q", seed_of_run(self.seed, self.runs))))
            elif name not in rest:
                raise InputError(
                    "it is missing", f"input '{name}'", f"Feed {', '.join(self._fed())}."
                )
            else:
                feed = self.program.feeds.get(name)
                data = self._data(rest.pop(name), name, slot, feed.kind if feed else None)
                out.append((buffer, data))
        unknown = [n for n in rest if n not in self.program.feeds and n not in self.program.shapes]
        if unknown:
            hint = f"There are {', '.join(self._fed())}."
            if unknown[0] == "attention_mask":
                hint += " Padding stands at the ends of rows, with the label -100, without a mask."
            raise InputError(f"there is no input '{unknown[0]}'", "feeds", hint)
        return out

    def _fed(self) -> list[str]:
        """Names of the inputs that have no default."""
        return [f.name for f in self.program.feeds.values() if f.kind != "weights"]

    @staticmethod
    def _data(x: Any, name: str, slot: Slot, kind: str | None = None) -> Any:
        dtype, shape, data = as_input(x, name, slot.dtype)
        if dtype != slot.dtype or list(shape) != list(slot.shape):
            raise InputError(
                f"it is {NAME[dtype]}{list(shape)}, {NAME[slot.dtype]}{list(slot.shape)} is"
                " expected",
                f"input '{name}'",
                "Give batches of the shape that the program was made for.",
            )
        if (
            slot.dtype == FLOAT
            and kind == "target"
            and any(map(isnan, memoryview(data).cast("B").cast("f")))
        ):
            raise InputError(
                "it contains NaN",
                f"input '{name}'",
                "Take those rows out: they would spoil every parameter.",
            )
        return data

    def profile(self) -> Profile:
        """A Profile of the steps in a `with` block.

        with session.profile() as p:
            session.train(feeds, 1e-3)
        print(p)
        p.save("trace.json")
        """
        return Profile(self.engine, [self.watch])

    # ---- states ----
    @locked
    def read(self, name: str) -> bytes:
        """The bytes of a state."""
        self._check_whole()
        if not self.initialized:
            self.initialize()
        return self.device.read(self.place(name))

    @locked
    def write(self, name: str, data: Any) -> None:
        """Sets a state from bytes or a buffer. Raises InputError if their number differs."""
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
        self.device.write(self.place(name), view)

    def get(self, name: str) -> Any:
        """A state as an array."""
        s: Any = self.program.states.get(name)
        data = self.read(name)
        return as_output(s.dtype, list(s.shape), data)

    def set(self, name: str, array: Any) -> None:
        """Sets a state from an array of its shape and type."""
        s: Any = self.program.states.get(name)
        if s is None:
            self.place(name)  # raises InputError
        dtype, shape, data = as_input(array, name, s.dtype)
        if dtype != s.dtype or list(shape) != list(s.shape):
            raise InputError(
                f"it is {NAME[dtype]}{list(shape)}, {NAME[s.dtype]}{list(s.shape)} is expected",
                f"state '{name}'",
                "Convert or reshape it.",
            )
        self.write(name, data)

    @locked
    def merged(self) -> dict[str, bytes]:
        """The base weights with their adapters merged into them, {initializer: bytes}, in the
        file's types. Takes engine memory while it runs.
        """
        return {name: data for name, (_, _, data) in self._once("merge").items()}

    @locked
    def swap(self) -> None:
        """Exchanges what is trained with its averages."""
        self._run("swap", {}, {})

    @property
    def averaged(self) -> int:
        """Updates that averages are of; 0: there are none."""
        if AVERAGED not in self.program.states:
            return 0
        return struct.unpack("<q", self.read(AVERAGED))[0]

    @locked
    def gains(self) -> dict[str, bytes]:
        """Of DoRA: factors of the outputs of layers, {layer: bytes of float32 [out]}."""
        if self.program.lora is None or not self.program.lora.use_dora:
            return {}
        return {name: data for name, (_, _, data) in self._once("gains").items()}

    @locked
    def saved(self) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
        """Parameters of the adapter's file, {PEFT's name: (dtype code, shape, bytes)}."""
        return self._once("saved") if self.program.saved else {}

    def _once(self, kind: str) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
        """Loads a plan, runs it and frees it. Returns its outputs.

        An output with the name of a weight has the suffix "~output" in its slot (builder.finish).
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
                    self.device.read(buffer),
                )
                for (k, _), (buffer, slot) in self.buffers.items()
                if k == kind and slot.kind == "output"
            }
        finally:
            loaded.free()
            del self.loaded[kind]
            for key in [k for k in self.buffers if k[0] == kind]:
                self.device.release(self.buffers.pop(key)[0])

    @property
    def step(self) -> int:
        """Updates made."""
        return struct.unpack("<q", self.read(STEP))[0] if STEP in self.program.states else 0

    @property
    @locked
    def nbytes(self) -> int:
        """Bytes of engine memory that the session holds: weights, states, buffers, plans and the
        arena.
        """
        held = sum(self.program.states[n].nbytes for n in self.memory) + sum(
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
    def free(self) -> None:
        """Frees all engine memory, after the call that another thread may be in."""
        self._free()

    def _free(self) -> None:
        for p in self.loaded.values():
            p.free()
        for buffer in [
            *(self.memory.values() if self.share is None else ()),
            *(buffer for buffer, _ in self.buffers.values()),
        ]:
            self.device.release(buffer)
        self.loaded, self.memory, self.buffers, self._initialized = {}, {}, {}, False
        if self.share is None:
            self.store.free()

    def __del__(self) -> None:
        try:
            # without the lock: it is unreachable, and finalizers must not wait
            self._free()
        except Exception:
            pass


__all__ = ["TrainingSession", "seed_of_run"]
