"""A language model with its caches, ready to generate; `edgewise.CausalLM` adds adapters."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from ...compiler.ir import Tensor
from ...compiler.package import Package as Package
from ...compiler.plan.notes import NOTES, read_notes
from ...compiler.targets import Target, target_of
from ...errors import (
    EngineError,
    InputError,
    OutOfMemory,
    PackageError,
    memory_in_words,
    token_ids,
    wrong_type,
)
from ...logic.generation.chunks import PlanRun, Shape, check_length, runs_of, tail_of
from ...logic.generation.kept import Kept, Taken, checked_budget
from ...logic.generation.prefix import PrefixModel, sum_of
from ...logic.generation.rooms import cache_bytes as bytes_of_cache
from ...logic.generation.rooms import (
    first_room,
    grows,
    least_room,
    moves,
    needed,
    next_room,
    sequence_bytes,
)
from ...logic.generation.sliding import (
    dropped_for,
    first_seen,
    marked,
    marked_bytes,
    shifts,
    spans,
    window_of,
)
from ...logic.generation.speculation import Pace
from ...logic.manifest.limits import CACHE_DTYPES
from ...logic.manifest.schema import Cache, Manifest, ManifestSlot
from ..arguments import check_engine
from ..engine import Buffer, Ends, Owner, default_engine
from ..profile import Profile, Watch
from . import prefix
from .decoder_plan import DecoderPlan
from .open import check_cache_dtype, check_device
from .open import open_package as open_package
from .weights import WeightStore, checks_of, weight_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from ...compiler.onnx.source import Source
    from ..engine import Engine
    from .features import Features

MAX_COMPARED = 1 << 24  # bytes of adapters of another owner, which are compared at each generation


class DecoderModel(Owner):
    """A decoder-only language model.

    Several threads may use it at once: forward passes run one after the other, and each sequence
    has a cache of its own, so that generations in several threads give what each gives alone.

    Args:
        model: path of a model folder, an .onnx file or an .edge package; the id of a model of the
            hub (needs `edgewise[hub]`); or a Package.
        dtype: which .onnx file of a folder to use: "q4", or that of each by its name, as
            {"decoder_model_merged": "q4", "embed_tokens": "fp16"}.
        capacity: maximum length of a sequence in tokens.
        engine: runs the model; by default the engine of the process.
        states: {name: Buffer} of adapters and parameters with another owner, such as a training
            session. Adapters that are missing are zero, which means off.
        cache_dtype: how keys and values are stored when a model is compiled: "float32", "float16"
            in half the memory, or on the processor "int8" and "int4", which take 8.5 and 4.5 bits a
            number. By default float16 if the model declares its caches so.
        verify: compare the weights of an .edge package with their checksums when they are loaded.
        revision: branch, tag or commit of a model of the hub. Default: "main".
        cache_bytes: memory that the states of earlier generations may take, for `take`. Default:
            256 MB, or one sequence of any size; 0: none are kept.

    Attributes:
        kept: these states; None: none are kept.
        vocab_size: number of logits.
        max_length: maximum length of a sequence in tokens.
        prefill_chunk: tokens between two checks of an abort signal; None: no checks.
        cache_dtype: how keys and values are stored.
        verified: tokens that `verify` takes at most; 0: none.
        pace: what generations measured of it.
        config, generation_config: contents of the model's files of these names.
        package, engine: as above.

    Sequences are numbers that `open` returns.
    """

    @memory_in_words
    def __init__(
        self,
        model: str | os.PathLike[str] | Package,
        dtype: str | Mapping[str, str] | None = None,
        capacity: int | None = None,
        engine: Engine | None = None,
        states: Mapping[str, Buffer] | None = None,
        cache_dtype: str | None = None,
        verify: bool = True,
        revision: str | None = None,
        cache_bytes: int | None = None,
    ) -> None:
        checked_budget(cache_bytes)
        check_engine(engine)
        if states is not None and not isinstance(states, dict):
            raise wrong_type(states, "states", "a dict of buffers")
        self.states = dict(states or {})
        self.shared = list(self.states.values())  # of another owner, which may change them
        self.watch, self.ends = Watch(), Ends()
        self.busy = self.closed = False
        self.latest = range(0)  # addresses of the logits of the latest forward pass
        self.start_lock()
        self.engine = engine or default_engine()
        self.device = self.engine.device
        target = target_of(self.device)
        self.package = (
            check_cache_dtype(model, cache_dtype)
            if isinstance(model, Package)
            else self._open_package(model, dtype, capacity, cache_dtype, target, revision)
        )
        self._read_manifest(self.package.manifest)
        self.store = WeightStore(
            self.device, self.states, checks_of(self.package) if verify else None
        )
        self.plans: list[DecoderPlan] = []
        # by number: the caches by name, the tokens so far, whether states that cannot be cut hold
        # others than these, the features of the prompt or None, the tokens that caches have room
        # for, and the positions that those of a sliding window have dropped
        self.sequences: dict[int, list[Any]] = {}
        self.next = 1  # number of the next sequence
        self.closing: deque[dict[str, Buffer]] = deque()  # caches of closed sequences
        self.returned: deque[tuple[Taken, list[int], list[int]]] = deque()  # for `kept`
        self.changes = 0  # of weights
        self.digest = ""  # of the package, once it is known
        self.kept: Kept | None = None
        self.verified, self.pace = 0, Pace()
        self.notes = read_notes(self.package.file(NOTES))
        self.buffers: dict[str, Buffer] = {}
        self.owned: list[Buffer] = []
        self.filled = 0  # ids in the input buffer
        self.selected = 0  # tokens of the last run whose features were written
        try:
            self._load(self.package.manifest)
        except BaseException:
            self.free()
            raise
        if self.prefill_chunk is not None and cache_bytes != 0:
            self.kept = Kept(self, cache_bytes, self.prefill_chunk, self.tail)

    def _open_package(
        self,
        model: str | os.PathLike[str],
        dtype: Any,
        capacity: int | None,
        cache_dtype: str | None,
        target: Target,
        revision: str | None,
    ) -> Package:
        return open_package(
            model, dtype, capacity, cache_dtype=cache_dtype, target=target, revision=revision
        )

    def _load(self, manifest: Manifest) -> None:
        """Loads the plans."""
        for p in sorted(manifest["decoder"]["plans"], key=lambda p: p["tokens"]):
            self.plans.append(DecoderPlan(self, p, p["tokens"], p["registers"]))
        self.shape = Shape(
            [p.tokens for p in self.plans],
            self.max_length,
            self.vocab_size,
            "recompute" if self.recompute else "append",
            self.padded,
            len(self.fixed_states) > 0 or self.window is not None,
        )
        self.tail = None if self.recompute else tail_of(self.shape.sizes, self.padded)
        several = [p.tokens for p in self.plans if "rows" in p.registers]
        self.verified = max(several, default=0) if self.padded and not self.fixed_states else 0

    def _read_manifest(self, manifest: Manifest) -> None:
        """Sets attributes from the manifest. Raises PackageError."""
        check_device(manifest, self.device)
        if "decoder" not in manifest:
            raise PackageError(
                f"its task is '{manifest.get('task')}'",
                "package",
                "Text generation needs a package of a language model, built without --dims.",
            )
        described = manifest["decoder"]
        self.vocab_size: int = described["vocab_size"]
        self.max_length: int = described["capacity"]
        self.recompute = bool(described.get("recompute"))
        longest = max(p["tokens"] for p in described["plans"])
        self.prefill_chunk = None if self.recompute else longest
        self.config = self.package.json("config.json", {}) or self.package.json(
            "genai_config.json", {}
        )
        self.generation_config = self.package.json("generation_config.json", {})
        self.caches = described["caches"]
        self.padded = described.get("padded") is not False
        self.fixed_states = [c["name"] for c in self.caches if c.get("fixed")]
        self.window = window_of(described.get("window"), self.max_length)
        self.grows = grows(described["plans"])
        self.first_room = first_room(self.max_length, self.grows)
        self.first_bytes = self._sizes(self.first_room)
        self.cache_dtype: str = described.get("cache_dtype", CACHE_DTYPES[0])
        self.weights = {w["name"]: w for w in manifest["weights"]}

    def weight(self, slot: ManifestSlot) -> Tensor:
        """A weight that the manifest describes, as a tensor of uint8."""
        return weight_of(self.package, self.weights[slot["name"]])

    def buffer(self, name: str, nbytes: int) -> Buffer:
        """A buffer shared by the plans (input ids, logits)."""
        if name not in self.buffers or self.buffers[name].nbytes < nbytes:
            self.buffers[name] = self.device.allocate(nbytes)
            self.owned.append(self.buffers[name])
        return self.buffers[name]

    def state_buffer(self, name: str, nbytes: int) -> Buffer:
        """Memory of a state that the plans share."""
        if name not in self.states:
            self.states[name] = self.buffer("state/" + name, nbytes)
        return self.states[name]

    def refresh(self, changed: Iterable[str] | None = None) -> None:
        """Updates what init steps compute from weights of these names after they have changed; by
        default from those with another owner.
        """
        with self.lock:
            self.changes += 1
            for p in self.plans:
                self.store.refresh(p.loaded, self.store.instead if changed is None else changed)

    # ---- sequences ----
    @memory_in_words
    def open(self, features: Features | None = None) -> int:
        """A new empty sequence. Raises OutOfMemory, InputError after `free`.

        Args:
            features: of the prompt that it will begin with; None: it has none.
        """
        with self.lock:
            self._check_open()
            caches = self._allocate_caches(
                self.first_bytes,
                f"the attention cache of a sequence of up to {self.first_room} tokens takes",
                "Load or build the model with a smaller capacity, close other sequences, or",
            )
            handle, self.next = self.next, self.next + 1
            self.sequences[handle] = [caches, [], False, features, self.first_room, 0]
            return handle

    def _sizes(self, room: int) -> dict[str, int]:
        """{name: bytes} of the caches of a sequence with room for so many tokens."""
        return {c["name"]: bytes_of_cache(c, room) for c in self.caches}

    def _allocate_caches(
        self, sizes: Mapping[str, int], what: str, remedy: str
    ) -> dict[str, Buffer]:
        """Buffers of caches, by name: all or none.

        Args:
            sizes: bytes of each by its name.
            what, remedy: the beginnings of the message of OutOfMemory.
        """
        caches: dict[str, Buffer] = {}
        try:
            for name, nbytes in sizes.items():
                caches[name] = self.device.allocate(nbytes)
        except BaseException as e:
            for cache in caches.values():
                self.device.release(cache)
            if isinstance(e, OutOfMemory):
                raise OutOfMemory(
                    f"{what} {sum(sizes.values())} bytes, which could not be allocated",
                    "engine memory",
                    f"{remedy} keep keys and values as float16 (cache_dtype).",
                ) from None
            raise
        return caches

    # ---- memory of sequences
    def room_of(self, sequence: int) -> int:
        """The tokens that a sequence's caches have room for."""
        return cast("int", self.state(sequence)[4])

    def dropped_of(self, sequence: int) -> int:
        """The positions that a sequence's caches of a sliding window have dropped."""
        return cast("int", self.state(sequence)[5])

    def drop_before(self, sequence: int, count: int) -> None:
        """Prepares an empty sequence for states after `count` tokens."""
        self.state(sequence)[5] = first_seen(self.window, count)

    def bytes_for(self, count: int) -> int:
        """The memory of a new sequence with room for `count` tokens."""
        room = least_room(count, self.max_length) if self.grows else self.max_length
        return sequence_bytes(self.caches, room)

    def bytes_of(self, sequence: int) -> int:
        """The memory of a sequence."""
        return sequence_bytes(self.caches, self.room_of(sequence))

    @property
    def cache_memory(self) -> int:
        """Bytes of the caches of all open sequences, those of earlier generations among them."""
        return sum(self.bytes_of(sequence) for sequence in self.sequences)

    def reserve(self, sequence: int, count: int) -> None:
        """Gives a sequence room for `count` tokens, if it has less. What it holds stays, also after
        OutOfMemory. The lock must be held; no plan of the model may be running.
        """
        room = self.room_of(sequence)
        if count <= room:
            return
        enough = least_room(count, self.max_length)
        try:
            self._move(sequence, next_room(room, count, self.max_length))
        except OutOfMemory:
            if self.kept is not None:
                self.kept.clear()
                self._free_closed()
            self._move(sequence, enough)

    def _move(self, sequence: int, room: int) -> None:
        """Moves a sequence to caches with another room. Raises OutOfMemory."""
        state, sizes = self.state(sequence), self._sizes(room)
        before_sizes = self._sizes(state[4])
        growing = {c["name"]: c for c in self.caches if sizes[c["name"]] != before_sizes[c["name"]]}
        caches = self._allocate_caches(
            {name: sizes[name] for name in growing},
            f"the attention cache of a sequence grows to {room} tokens, which take",
            "Give a shorter prompt or a smaller max_new_tokens, close other sequences, or",
        )
        for name, cache in growing.items():
            count = len(state[1]) - (state[5] if cache.get("sliding") else 0)
            for at, to, n in moves(cache, count, state[4], room):
                self.device.copy(state[0][name].part(at, n), caches[name].part(to, n), n)
        before = [state[0][name] for name in growing]
        state[0].update(caches)
        state[4] = room
        for plan in self.plans:
            if plan.bound == sequence:
                plan.bound = None
        for buffer in before:
            self.device.release(buffer)

    def _check_open(self) -> None:
        if self.closed:
            raise InputError("the model was freed", "CausalLM", "Load it again.")

    def memory_of(self, sequence: int) -> Mapping[str, Buffer]:
        """{name: Buffer} of the caches that plans read and write for a sequence."""
        return cast("Mapping[str, Buffer]", self.state(sequence)[0])

    def features_of(self, sequence: int) -> Features | None:
        """The features of a sequence's prompt."""
        return cast("Features | None", self.state(sequence)[3])

    def state(self, sequence: int) -> list[Any]:
        """[caches, tokens, stale, features] of an open sequence. Raises InputError if it is not
        open.
        """
        state = self.sequences.get(sequence) if isinstance(sequence, int) else None
        if state is None:
            self._check_open()
            raise InputError(
                f"{sequence!r} is not an open sequence",
                "sequence",
                "Use a number that open() returned, before close().",
            )
        return state

    def close(self, sequence: int) -> None:
        """Frees a sequence's cache, after the forward pass of another thread.

        Raises InputError if it is not open.
        """
        self.state(sequence)
        caches = self.sequences.pop(sequence)[0]
        # Not freed here: a finalizer of a generator may call this, and must not wait.
        self.closing.append(caches)
        if self.lock.acquire(blocking=False):
            try:
                if not self.busy:
                    self._free_closed()
            finally:
                self.lock.release()

    def _free_closed(self) -> None:
        """Frees the caches of closed sequences. The caller holds the lock; no plan is running."""
        while self.closing:
            for cache in self.closing.popleft().values():
                self.device.release(cache)

    def copy(self, source: int, target: int) -> None:
        """Copies a sequence's cache and tokens to another sequence."""
        with self.lock:
            a, b = self.state(source), self.state(target)
            if b[4] != a[4]:
                b[1], b[5] = [], 0
                self._move(target, a[4])
            for c in self.caches:
                self.device.copy(a[0][c["name"]], b[0][c["name"]])
            b[1], b[2], b[3], b[5] = list(a[1]), a[2], a[3], a[5]

    def length(self, sequence: int) -> int:
        """Number of tokens of a sequence. Raises InputError if it is not open."""
        return len(self.state(sequence)[1])

    def truncate(self, sequence: int, length: int) -> None:
        """Removes all but the first `length` tokens. Raises InputError."""
        with self.lock:
            state = self.state(sequence)
            tokens: list[int] = state[1]
            check_length(length, len(tokens))
            if length < len(tokens):
                state[2] = not self.cuts(sequence, length)
            del tokens[length:]

    def cuts(self, sequence: int, length: int) -> bool:
        """Whether the states of a sequence are those of its first tokens once it is cut to them."""
        state = self.state(sequence)
        if state[2] or self.fixed_states:
            return False
        return bool(state[5] <= first_seen(self.window, length))

    # ---- sequences of earlier generations
    def take(self, prompt: list[int]) -> Taken | None:
        """A sequence for a prompt, which continues an earlier one that begins alike.

        Returns:
            To be given back; None where nothing is kept.

        Raises: as `open`.
        """
        with self.lock:
            self._check_open()
            self._take_back()
            key = self.kept_key()
            return None if self.kept is None or key is None else self.kept.take(key, prompt)

    def mark(self, taken: Taken, length: int, last: bool) -> None:
        """Copies the states of a sequence that cannot be cut, if it is time (Kept.mark)."""
        with self.lock:
            if self.kept is not None:
                self.kept.mark(taken, length, last)

    def give(self, taken: Taken, ids: list[int], following: list[int]) -> None:
        """Takes a sequence back that has read `ids`, after which prompts can continue, and may be
        followed by others.
        """
        # Not kept here: a finalizer of a generator may call this, and must not wait.
        self.returned.append((taken, ids, following))
        if self.lock.acquire(blocking=False):
            try:
                if not self.busy:
                    self._take_back()
            finally:
                self.lock.release()

    def _take_back(self) -> None:
        """Keeps the sequences that were given back. The caller holds the lock."""
        while self.returned:
            taken, ids, following = self.returned.popleft()
            if self.kept is not None and not self.closed:
                self.kept.give(taken, ids, following, self.kept_key() or "")

    @memory_in_words
    def read_ahead(self) -> bool:
        """Reads tokens that the next prompt is likely to have after those that were kept: the
        answer of the last generation. For hosts that have time between calls.

        Returns:
            Whether there was one.

        Raises: as `forward`.
        """
        with self.lock:
            self._take_back()
            key = None if self.kept is None else self.kept_key()
            ahead = None if self.kept is None or key is None else self.kept.ahead(key)
            if self.kept is None or ahead is None:
                return False
            try:
                self.forward(ahead.taken.sequence, ahead.piece)
            except BaseException:
                self.kept.give(ahead.taken, ahead.ids, [], key or "")
                raise
            self.kept.was_read(ahead, key or "")
            return True

    def clear_cache(self) -> None:
        """Frees the states of earlier generations."""
        with self.lock:
            self._take_back()
            if self.kept is not None:
                self.kept.clear()

    @memory_in_words
    def save_prefix(self, ids: Iterable[SupportsIndex], target: Any = None) -> bytes | None:
        """Writes the states after a prefix of prompts to a safetensors file, for `load_prefix`.

        Args:
            ids: token ids, of which whole pieces of `prefill_chunk` tokens are saved.
            target: a path (the file is complete or not written at all), an object with `write`, or
                None: returns the bytes.

        Raises:
            InputError: there are fewer or more tokens than can be saved, or an id is outside the
                vocabulary.
        """
        with self.lock:
            self._check_open()
            return prefix.save(self, token_ids(ids, "ids"), target)

    @memory_in_words
    def load_prefix(self, source: str | os.PathLike[str] | bytes | Source) -> int:
        """Puts the states of a file of `save_prefix` among those that are kept: prompts that begin
        with its tokens continue from them, with `cache=True`.

        Args:
            source: a path, or bytes.

        Returns:
            its tokens

        Raises:
            ModelError: the file is damaged. InputError: it is of another model, adapter or version,
                or the model keeps no states.
        """
        with self.lock:
            self._check_open()
            self._take_back()
            return prefix.load(self, source)

    def prefix_model(self) -> PrefixModel:
        """The model as far as the states of prefixes depend on it. The lock must be held."""
        if self.kept_key() is None:
            raise InputError(
                "its weights are those of a training session, and may change at any time",
                "prefix",
                "Save a package of the trained model, and load that.",
            )
        if not self.digest:
            self.digest = prefix.digest_of(self.package)
        values = {n: self.device.read(b) for n, b in self.state_values().items()}
        return PrefixModel(
            self.max_length,
            self.vocab_size,
            self.cache_dtype,
            self.caches,
            self.window,
            self.prefill_chunk,
            self.package.manifest["table_hash"],
            self.digest,
            sum_of(prefix.digests(values)),
        )

    def state_values(self) -> dict[str, Buffer]:
        """{name: Buffer} of what states of sequences depend on besides the package."""
        return {n: b for n, b in self.states.items() if any(b is one for one in self.shared)}

    def kept_key(self) -> str | None:
        """Names the weights that states come from; None: they may change at any time."""
        if sum(b.nbytes for b in self.shared) > MAX_COMPARED:
            return None
        values = 0
        for buffer in self.shared:
            values = zlib.crc32(self.device.read(buffer), values)
        return f"{self.changes}/{values}"

    def save(self, sequence: int) -> dict[str, Buffer]:
        """A copy of the states of a sequence that cannot be cut."""
        state = self.state(sequence)
        parts = self._marked_spans(sequence, len(state[1]))
        sizes = {name: sum(n for _, n in found) for name, found in parts.items()}
        saved = self._allocate_caches(sizes, "a copy of a sequence's states takes", "Or")
        for name, found in parts.items():
            done = 0
            for at, n in found:
                self.device.copy(state[0][name].part(at, n), saved[name].part(done, n), n)
                done += n
        return saved

    def marked_bytes(self, n: int) -> int:
        """The memory of such a copy after `n` tokens."""
        return marked_bytes(self.caches, self.window, n)

    def _marked_spans(self, sequence: int, count: int) -> dict[str, list[tuple[int, int]]]:
        """{cache: (offset, bytes) of the parts of a copy} of the states after `count` tokens."""
        return {c["name"]: self.spans_of(sequence, c, count) for c in self.caches if marked(c)}

    def spans_of(self, sequence: int, cache: Cache, count: int) -> list[tuple[int, int]]:
        """(offset, bytes) of the states after `count` tokens in a cache of a sequence."""
        state = self.state(sequence)
        return spans(cache, self.window, state[4], count, state[5])

    def restore(self, saved: Mapping[str, Buffer], sequence: int, n: int) -> None:
        """Removes all but the first `n` tokens, after which the states were saved."""
        state = self.state(sequence)
        state[5] = first_seen(self.window, n)
        for name, found in self._marked_spans(sequence, n).items():
            done = 0
            for at, size in found:
                self.device.copy(saved[name].part(done, size), state[0][name].part(at, size), size)
                done += size
        del state[1][n:]
        state[2] = False

    def drop(self, saved: Mapping[str, Buffer]) -> None:
        """Frees a copy of states."""
        for buffer in saved.values():
            self.device.release(buffer)

    @memory_in_words
    def forward(
        self,
        sequence: int,
        ids: Iterable[SupportsIndex],
        reason: Callable[[], Exception | None] | None = None,
    ) -> int:
        """Appends tokens to a sequence and computes the logits after the last one.

        Args:
            sequence: an open sequence.
            ids: token ids, at least one.
            reason: returns the error that ends the forward pass early, or None. It is called from
                other threads as well.

        Returns:
            Address in host memory of float32 [vocab_size]. It is valid until the next forward pass
            of any sequence: hold `lock` while reading it if other threads use the model.

        Raises:
            InputError: an id is outside the vocabulary, or the sequence would exceed max_length.
                The sequence is unchanged.
        """
        with self.lock:
            return self._hosted(self._checked_forward(sequence, ids, reason))

    @memory_in_words
    def forward_best(
        self,
        sequence: int,
        ids: Iterable[SupportsIndex],
        enough: Callable[[list[tuple[int, float]]], bool] | None,
        reason: Callable[[], Exception | None] | None = None,
    ) -> int | list[tuple[int, float]]:
        """As `forward`, but reads only the highest logits from the device, where it finds them.

        Args:
            sequence, ids, reason: as of `forward`.
            enough: whether the 256 highest logits suffice; None: the highest one does, the lowest
                token of several.

        Returns:
            [(token, logit)], highest first (with `enough` None one of them, without its logit), or
            as `forward` where they do not suffice.

        Raises: as `forward`.
        """
        with self.lock:
            logits = self._checked_forward(sequence, ids, reason)
            if enough is None:
                if (token := self.device.highest(logits)) is not None:
                    return [(token, 0.0)]
            elif (found := self.device.top(logits)) is not None and enough(found):
                return found
            return self._hosted(logits)

    @property
    def chooses(self) -> bool:
        """Whether the device finds the highest logits itself, for `forward_best`."""
        return self.device.chooses

    @memory_in_words
    def verify(
        self,
        sequence: int,
        ids: Iterable[SupportsIndex],
        reason: Callable[[], Exception | None] | None = None,
    ) -> int:
        """As `forward`, for at most `verified` tokens that fit before `max_length` as so many, but
        returns the address of the logits after each of them, float32 [len(ids), vocab_size].
        """
        with self.lock:
            return self._hosted(self._checked_forward(sequence, ids, reason, True))

    def _hosted(self, logits: Buffer) -> int:
        """The address of logits in host memory."""
        address = self.device.hosted(logits)
        self.latest = range(address, address + logits.nbytes)
        return address

    def _checked_forward(
        self,
        sequence: int,
        ids: Iterable[SupportsIndex],
        reason: Callable[[], Exception | None] | None,
        every: bool = False,
    ) -> Buffer:
        """As `forward`, and returns the logits. every: as of `verify`."""
        try:
            tokens = [index(i) for i in ids]
        except TypeError:
            raise InputError(
                f"{str(ids)[:100]} are not token ids", "forward", "Give a list of integers."
            ) from None
        with self.lock:
            if self.busy:
                raise EngineError(
                    "this thread is already running this model",
                    "forward",
                    "Do not run models in a signal handler.",
                )
            try:
                self.busy, self.latest = True, range(0)
                with self.ends.watch(reason):
                    return self._forward(sequence, tokens, every)
            finally:
                self.busy = False
                self._free_closed()

    def _forward(self, sequence: int, ids: list[int], every: bool) -> Buffer:
        state = self.state(sequence)
        tokens, stale = state[1], state[2]
        features = self.features_of(sequence)
        together = features.prompt.together if features else ()
        runs = runs_of(self.shape, ids, len(tokens), tokens, stale, together)
        if every:
            before = runs_of(self.shape, tokens, 0, []) if stale and self.shape.fixed else []
            runs = [*before, PlanRun(self.verified, ids, len(tokens))]
        if stale:  # states that cannot be cut begin again
            state[5] = 0
        if self.grows:
            self.reserve(sequence, needed(runs))
        try:
            if stale:
                for name in self.fixed_states:
                    self.device.fill(state[0][name], 0, 0, self.first_bytes[name])
            for size, part, past in runs:
                self._slide(sequence, past, size)
                of_all = every and past == len(tokens)
                logits = self._plan_for(size, past).run(sequence, part, past, of_all)
        except BaseException:
            state[2] = not self.cuts(sequence, len(tokens))
            raise
        tokens += ids
        state[2] = False
        return logits

    def _slide(self, sequence: int, past: int, count: int) -> None:
        """Drops positions of caches of a sliding window before a run of `count` tokens."""
        state = self.state(sequence)
        dropped = dropped_for(self.window, state[5], past, count)
        by = dropped - state[5]
        for cache in self.caches if by else ():
            if cache.get("sliding"):
                memory = state[0][cache["name"]]
                for at, to, n in shifts(cache, past - state[5], by, state[4]):
                    self.device.copy(memory.part(at, n), memory.part(to, n), n)
        state[5] = dropped

    def _plan_for(self, size: int, past: int) -> DecoderPlan:
        """The plan of a run of `size` tokens that follow `past` others."""
        return next(p for p in self.plans if p.tokens == size)

    def set_registers(self, plan: DecoderPlan, sequence: int) -> None:
        """Sets registers that depend on more than tokens."""

    def profile(self) -> Profile:
        """Records what the model runs in a `with` block: `with lm.profile() as p: generate(lm,
        ids)`; then `print(p)`, `p.save("trace.json")`.
        """
        return Profile(self.engine, [self.watch])

    def logits(self, address: int) -> list[float]:
        """The logits at the address that the latest `forward` returned.

        Raises:
            InputError: it is another address, or the model is closed.
        """
        with self.lock:
            self._check_open()
            nbytes = 4 * self.vocab_size
            if address not in self.latest or address + nbytes > self.latest.stop:
                raise InputError(
                    f"{address!r} is not the address of the latest logits",
                    "address",
                    "Give what forward() returned, before the next forward pass.",
                )
            return list(struct.unpack(f"<{self.vocab_size}f", self.engine.read(address, nbytes)))

    def free(self) -> None:
        """Frees all memory, after the forward pass of another thread. Later calls raise
        InputError.
        """
        with self.lock:
            self._free()

    def _free(self) -> None:
        if self.kept is not None and not self.closed:
            self.kept.clear()
        self.closed = True
        for s in list(self.sequences):
            self.closing.append(self.sequences.pop(s)[0])
        self._free_closed()
        for p in self.plans:
            p.loaded.free()
        for buffer in self.owned:
            self.device.release(buffer)
        self.plans, self.owned, self.buffers = [], [], {}
        self.store.free()

    def __del__(self) -> None:
        try:
            # Without the lock: the model is unreachable, and finalizers must not wait.
            self._free()
        except Exception:
            pass
