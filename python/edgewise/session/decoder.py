"""A language model with its caches, ready to generate; `edgewise.CausalLM` adds adapters."""

from __future__ import annotations

import os
import struct
from collections import deque
from operator import index

from ..compile import compile_package
from ..engine import Ends, Owner, Place, default_engine
from ..errors import EngineError, InputError, OutOfMemory, PackageError
from ..ir import Tensor
from ..manifest_limits import CACHE_DTYPES
from ..onnx import FileSource
from ..onnx.source import LazyFileSource
from ..ops.table import kernel_table
from ..package import Package
from ..plan.notes import NOTES, read_notes
from ..plan.plan import Plan, Slot, step_kernels
from ..profile import Profile, Watch
from .weights import WeightStore, key_of


def folder_files(path):
    """{relative name: FileSource} of a model folder (Hugging Face layout), or of the folder of one
    .onnx file.
    """
    path = os.fspath(path)
    root = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
    files = {}
    for base in (root, os.path.join(root, "onnx")):
        if os.path.isdir(base):
            for name in sorted(os.listdir(base)):
                full = os.path.join(base, name)
                if os.path.isfile(full):
                    files[os.path.relpath(full, root)] = full
    if os.path.basename(root) == "onnx":  # the texts of a Hugging Face model lie one folder up
        for name in sorted(os.listdir(os.path.dirname(root))):
            full = os.path.join(os.path.dirname(root), name)
            if os.path.isfile(full) and name.endswith((".json", ".jinja")):
                files.setdefault(name, full)
    return {n: LazyFileSource(p) for n, p in files.items()}, root


def open_package(model, dtype=None, capacity=None, lora=None, cache_dtype=None):
    """A Package from an .edge file, an .onnx file or a model folder. lora: LoraConfig of adapters
    that there is to be room for. cache_dtype: as DecoderModel's.
    """
    try:
        path = os.fsdecode(model)
    except TypeError:
        raise InputError(
            f"a {type(model).__name__} is no model",
            "model",
            "Give a model folder, an .onnx file or an .edge package.",
        ) from None
    if path.endswith(".edge"):
        if lora is not None:
            raise InputError(
                "a package is compiled already",
                "lora",
                "Build it with `edgewise build --train lora`, or pass the model's folder.",
            )
        return check_cache_dtype(Package.read(FileSource(path)), cache_dtype)
    if "\0" in path or not os.path.exists(path):
        raise InputError(
            "there is no such file or folder",
            path,
            "Give a model folder, an .onnx file or an .edge package.",
        )
    files, root = folder_files(path)
    chosen = os.path.relpath(os.path.abspath(path), root) if os.path.isfile(path) else None
    return compile_package(
        files, dtype, capacity, model_file=chosen, lora=lora, cache_dtype=cache_dtype
    )


def check_cache_dtype(package, cache_dtype):
    """The package; InputError where keys and values are asked for as something else than what its
    plans keep.
    """
    built = package.manifest.get("decoder", {}).get("cache_dtype", CACHE_DTYPES[0])
    if cache_dtype is not None and cache_dtype != built:
        raise InputError(
            f"the package was built to keep keys and values as {built}, not as {cache_dtype!r}",
            "cache_dtype",
            "Build it with `edgewise build --cache-dtype`, which takes"
            f" {' or '.join(CACHE_DTYPES)}, or pass the model's folder.",
        )
    return package


def run_cost(tokens):
    """What a run of so many tokens costs, in halves of what each further token of a long one does:
    measured with float32, int8 and 4-bit models of 135M parameters. (The same in
    web/src/worker/model/decoder.ts.)
    """
    return 9 if tokens == 1 else 20 + 2 * tokens


class DecoderModel(Owner):
    """A decoder-only language model.

    It may be used from several threads at once: forwards queue, each sequence has its own cache,
    and generations of several threads give what each gives alone.

    Args:
        model: path of a model folder, an .onnx file or an .edge package; or a Package.
        dtype: which .onnx file of a folder. capacity: most tokens of a sequence. engine: default
        the process's. cache_dtype: what keys and values are kept as, when a model is compiled:
        "float32", or "float16", which takes half the memory. Default: float16 where the model
        declares its caches so, else float32. verify: whether weights of an .edge package are
        compared with their checksums as they are loaded. states: {name: engine.Place} of adapters
        and parameters that live elsewhere, as in a training session; adapters that are not there
        are zeros (off).

    Attributes: vocab_size; max_length (tokens a sequence may have); cache_dtype; config,
    generation_config (dicts); package; engine. Sequences are numbers from open(); each has its own
    cache.
    """

    def __init__(
        self,
        model,
        dtype=None,
        capacity=None,
        engine=None,
        states=None,
        cache_dtype=None,
        verify=True,
    ):
        self.states, self.watch, self.ends, self.busy, self.closed = (
            dict(states or {}),
            Watch(),
            Ends(),
            False,
            False,
        )
        self.start_lock()
        self.package = (
            check_cache_dtype(model, cache_dtype)
            if isinstance(model, Package)
            else open_package(model, dtype, capacity, cache_dtype=cache_dtype)
        )
        self.engine = engine or default_engine()
        manifest = self.package.manifest
        if manifest.get("table_hash") != kernel_table().hash:
            raise PackageError(
                "it was made for another version of the engine",
                "package",
                "Build it again with this version.",
            )
        if "decoder" not in manifest:
            raise PackageError(
                f"its task is '{manifest.get('task')}'",
                "package",
                "Text generation needs a package of a language model, built without --dims.",
            )
        d = manifest["decoder"]
        self.vocab_size, self.max_length, self.recompute = (
            d["vocab_size"],
            d["capacity"],
            bool(d.get("recompute")),
        )
        self.prefill_chunk = (
            None if self.recompute else max(p["tokens"] for p in d["plans"])
        )  # tokens between two looks at an abort signal
        self.config = self.package.json("config.json", {})
        self.generation_config = self.package.json("generation_config.json", {})
        self.cache_bytes = {c["name"]: c["bytes"] for c in d["caches"]}
        self.filled = 0  # ids in the input buffer
        self.caches, self.cache_dtype = d["caches"], d.get("cache_dtype", CACHE_DTYPES[0])
        self.weights = {w["name"]: w for w in manifest["weights"]}
        self.store = WeightStore(self.engine, self.states, self._checks() if verify else None)
        self.plans, self.sequences, self.next, self.closing = [], {}, 1, deque()
        self.notes = read_notes(self.package.file(NOTES))
        self.buffers, self.owned = {}, []
        try:
            for p in sorted(d["plans"], key=lambda p: p["tokens"]):
                self.plans.append(_DecoderPlan(self, p))
        except BaseException:
            self.free()
            raise

    def weight(self, slot):
        """The Tensor (bytes as uint8) of a weight slot that the manifest describes, in the file
        where it lies.
        """
        w = self.weights[slot["name"]]
        source = self.package.source(w["file"])
        while hasattr(source, "source") and hasattr(
            source, "offset"
        ):  # a part of a package: to the file itself, so that it can be mapped
            w = {**w, "offset": w["offset"] + source.offset}
            source = source.source
        return Tensor(w["name"], 2, (w["bytes"],), source, w["offset"], w["bytes"])

    def _checks(self) -> dict:
        """What WeightStore checks weights by."""
        checks = {}
        for w in self.weights.values():
            if "sums" in w:
                tensor = self.weight(w)
                checks[key_of(tensor)] = w["sums"], w["name"], tensor.source.name
        return checks

    def buffer(self, name: str, nbytes: int) -> Place:
        """A buffer shared by the plans (input ids, logits)."""
        if name not in self.buffers or self.buffers[name].nbytes < nbytes:
            place = Place(self.engine.alloc(nbytes), nbytes)
            self.owned.append(place.address)
            self.buffers[name] = place
        return self.buffers[name]

    def state_place(self, name: str, nbytes: int) -> Place:
        """Memory of a state that the plans share."""
        if name not in self.states:
            self.states[name] = self.buffer("state/" + name, nbytes)
        return self.states[name]

    def refresh(self, changed=None):
        """Computes again what follows from weights of these names (default: those that live
        elsewhere), after they have changed.
        """
        with self.lock:
            for p in self.plans:
                self.store.refresh(p.loaded, self.store.instead if changed is None else changed)

    # ---- sequences ----
    def open(self):
        """A new empty sequence."""
        with self.lock:
            self._check_open()
            caches = {}
            try:
                for c in self.caches:
                    caches[c["name"]] = self.engine.alloc(c["bytes"])
            except BaseException as e:
                for a in caches.values():
                    self.engine.free(a)
                if isinstance(e, OutOfMemory):
                    raise OutOfMemory(
                        f"the attention cache of a sequence of up to {self.max_length} tokens takes"
                        f" {sum(self.cache_bytes.values())} bytes, which could not be had",
                        "engine memory",
                        "Load or build the model with a smaller capacity, close other sequences, or"
                        " keep keys and values as float16 (cache_dtype).",
                    ) from None
                raise
            handle, self.next = self.next, self.next + 1
            self.sequences[handle] = [caches, []]
            return handle

    def _check_open(self):
        if self.closed:
            raise InputError("the model was freed", "CausalLM", "Load it again.")

    def state(self, sequence):
        """[caches, tokens] of an open sequence."""
        state = self.sequences.get(sequence) if isinstance(sequence, int) else None
        if state is None:
            self._check_open()
            raise InputError(
                f"{sequence!r} is no open sequence",
                "sequence",
                "Use a number from open() that close() has not had.",
            )
        return state

    def close(self, sequence):
        """Frees a sequence's cache, after a forward that another thread is in.

        InputError where it is not open.
        """
        self.state(sequence)
        caches, _ = self.sequences.pop(sequence)
        self.closing.append(
            caches
        )  # a generator that is collected closes its sequences, too, and must not wait
        if self.lock.acquire(blocking=False):
            try:
                if not self.busy:
                    self._free_closed()
            finally:
                self.lock.release()

    def _free_closed(self):
        """Frees the caches of closed sequences; with the lock held, and not amid a forward."""
        while self.closing:
            for a in self.closing.popleft().values():
                self.engine.free(a)

    def copy(self, source, target):
        """The target's cache becomes the source's."""
        with self.lock:
            a, b = self.state(source), self.state(target)
            for c in self.caches:
                self.engine.copy(a[0][c["name"]], b[0][c["name"]], c["bytes"])
            b[1] = list(a[1])

    def length(self, sequence):
        """Tokens of a sequence so far. InputError where it is not open."""
        return len(self.state(sequence)[1])

    def truncate(self, sequence, length):
        """Forgets all but the first `length` tokens."""
        with self.lock:
            tokens = self.state(sequence)[1]
            if type(length) is not int or not 0 <= length <= len(tokens):
                raise InputError(
                    f"{length!r} is no length of a sequence of {len(tokens)} tokens",
                    "truncate",
                    f"Give one from 0 to {len(tokens)}.",
                )
            del tokens[length:]

    def forward(self, sequence, ids, reason=None):
        """Appends tokens; returns the engine address of float32[vocab_size] logits behind the last
        one, valid until the next forward of any sequence (hold `lock` until you have read them
        where other threads use the model, too).

        reason: function that returns an error with which the forward is to end early, or None; it
        is asked from another thread, too. Raises InputError when an id is outside the vocabulary or
        the sequence would exceed max_length; the sequence is then as before.
        """
        try:
            ids = [index(i) for i in ids]
        except TypeError:
            raise InputError(
                f"{str(ids)[:100]} are no token ids", "forward", "Give a list of integers."
            ) from None
        with self.lock:
            if self.busy:
                raise EngineError(
                    "this thread is amid a forward of this model",
                    "forward",
                    "Do not run models in a signal handler.",
                )
            try:
                self.busy = True
                with self.ends.watch(reason):
                    return self._forward(sequence, ids)
            finally:
                self.busy = False
                self._free_closed()

    def _forward(self, sequence, ids):
        state = self.state(sequence)
        if not ids:
            raise InputError("no tokens", "forward", "Give at least one token id.")
        if len(state[1]) + len(ids) > self.max_length:
            raise InputError(
                f"{len(state[1])} + {len(ids)} tokens do not fit in {self.max_length}",
                "forward",
                "Use a shorter prompt, or build the model with a larger capacity.",
            )
        bad = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if bad is not None:
            raise InputError(
                f"token id {bad} is outside the vocabulary of {self.vocab_size}",
                "forward",
                "Use the model's own tokenizer.",
            )
        before = len(state[1])
        try:
            if self.recompute:
                whole = state[1] + ids
                plan = next(p for p in self.plans if p.tokens >= len(whole))
                logits = plan.run(sequence, whole, 0)
                state[1] = whole
                return logits
            while ids:
                plan = self.choose(len(ids), len(state[1]))
                part, ids = ids[: plan.tokens], ids[plan.tokens :]
                logits = plan.run(sequence, part, len(state[1]))
                state[1] = state[1] + part
            return logits
        except BaseException:
            del state[1][before:]
            raise

    def choose(self, count, past):
        """The plan for the next run: the first of those that together take `count` tokens at the
        lowest cost, the longest first. A padded run costs what a full one does.
        """
        fitting = [p for p in reversed(self.plans) if past + p.tokens <= self.max_length]
        if not fitting:
            raise InputError(
                f"no run of the model fits between {past} tokens and its limit of"
                f" {self.max_length}",
                "forward",
                "Use a shorter sequence; a model with a plan for single tokens reaches its limit.",
            )
        if count >= fitting[0].tokens:
            return fitting[0]
        costs = [0]
        for n in range(1, count + 1):
            least, best = min(
                (run_cost(p.tokens) + costs[max(n - p.tokens, 0)], i) for i, p in enumerate(fitting)
            )
            costs.append(least)
        return fitting[best]

    def profile(self):
        """A profile.Profile of what the model runs in a `with` block: `with lm.profile() as p:
        generate(lm, ids)`; then `print(p)`, `p.save("trace.json")`.
        """
        return Profile(self.engine, [self.watch])

    def logits(self, address):
        """The logits at an address as a list of floats."""
        return list(
            struct.unpack(f"<{self.vocab_size}f", self.engine.read(address, 4 * self.vocab_size))
        )

    def free(self):
        """Gives back all engine memory, after a forward that another thread is in; what is called
        afterwards raises InputError.
        """
        with self.lock:
            self._free()

    def _free(self):
        self.closed = True
        for s in list(self.sequences):
            self.closing.append(self.sequences.pop(s)[0])
        self._free_closed()
        for p in self.plans:
            p.loaded.free()
        for a in self.owned:
            self.engine.free(a)
        self.plans, self.owned, self.buffers = [], [], {}
        self.store.free()

    def __del__(self):
        try:
            # without the lock: nobody can use it any more, and finalizers must not wait
            self._free()
        except Exception:
            pass


class _DecoderPlan:
    def __init__(self, lm, described):
        self.lm, self.tokens, self.bound = lm, described["tokens"], None
        slots = [
            Slot(s["name"], s["kind"], 2, [s["bytes"]], s["bytes"]) for s in described["slots"]
        ]
        for slot, s in zip(slots, described["slots"]):
            if slot.kind == "weight":
                slot.tensor = lm.weight(s)
        self.slots = slots
        self.registers = described["registers"]
        data = bytes(lm.package.file(described["file"]))
        kernels, init = step_kernels(data)
        plan = Plan(
            data,
            slots,
            list(self.registers),
            lm.package.labels.get(described["file"], []),
            kernels,
            0,
            init,
            notes=lm.notes.get(described["file"]),
        )
        plan.name = getattr(lm.package.sources.get(described["file"]), "name", described["file"])
        self.loaded = lm.engine.load(plan)
        self.loaded.watch, self.loaded.ends, self.loaded.title = (
            lm.watch,
            lm.ends,
            described["file"],
        )
        fresh = lm.store.connect(self.loaded)
        for i, s in enumerate(slots):
            if s.kind in ("input", "output"):
                place = lm.buffer(
                    s.name,
                    (
                        s.nbytes
                        if s.kind == "output"
                        else 8 * max(p["tokens"] for p in lm.package.manifest["decoder"]["plans"])
                    ),
                )
                self.loaded.bind(i, *place)
                if s.kind == "input":
                    self.input = place.address
                else:
                    self.output = place.address
            elif s.kind == "state":
                self.loaded.bind(i, *lm.state_place(s.name, s.nbytes))
        if fresh:
            self.bind_caches(None)
        lm.store.init(self.loaded, fresh)

    def bind_caches(self, sequence):
        caches = self.lm.sequences[sequence][0] if sequence is not None else None
        for i, s in enumerate(self.slots):
            if s.kind == "cache":
                self.loaded.bind(
                    i,
                    *(
                        Place(caches[s.name], self.lm.cache_bytes[s.name])
                        if caches
                        else self.lm.buffer("cache/" + s.name, s.nbytes)
                    ),
                )
        self.bound = sequence

    def run(self, sequence, ids, past):
        if self.bound != sequence:
            self.bind_caches(sequence)
        lm = self.lm
        lm.engine.write(self.input, struct.pack(f"<{len(ids)}q", *ids))
        if lm.filled > len(ids):  # what a longer run left there; the memory began as zeros
            lm.engine.write(self.input + 8 * len(ids), bytes(8 * (lm.filled - len(ids))))
        lm.filled = len(ids)
        if "past" in self.registers:
            self.loaded.register(self.registers["past"], past)
            self.loaded.register(self.registers["last"], len(ids) - 1)
        self.loaded.run()
        return self.output
