"""The base of sampling and beam search: engine memory, calls of the decoder and the engine, and the
caller's criteria and processors.
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ...errors import Aborted, InputError
from ...logic.generation.stop_strings import StopStrings
from .config import GenerationConfig, error_for
from .fields import pack, size
from .results import GenerateOutput
from .signals import is_set

Scores = Any  # array("f") [vocab_size]; its type has no parameter at run time in Python 3.11
Recorded = tuple[Scores | None, Scores | None]  # scores, logits


class HostMemory(Protocol):
    """The engine that a decoder computes in."""

    def alloc(self, n: int) -> int:
        """The address of `n` bytes."""
        ...

    def free(self, address: int) -> None:
        """Frees memory."""
        ...

    def write(self, address: int, data: bytes) -> None:
        """Writes bytes."""
        ...

    def read(self, address: int, n: int) -> bytes:
        """Reads bytes."""
        ...

    def copy(self, source: int, target: int, n: int) -> None:
        """Copies bytes."""
        ...

    def call(self, name: str, *args: int) -> int:
        """Calls a C function."""
        ...


class Decoder(Protocol):
    """What computes logits: edgewise.CausalLM, or your own.

    Attributes:
        vocab_size: number of logits.
        max_length: tokens that a sequence's cache holds.
        generation_config: contents of generation_config.json, or {}.
        engine: memory and C functions.
        prefill_chunk: optional; prompts are given to `forward` in pieces of this many ids, so that
            an abort is noticed between them.
        encoder_input_ids: optional; token ids of the encoder's input.
        scored: optional; without beams called with the address of float32[vocab_size], the
            processed scores, and the token that was chosen from them.
        chooses, forward_best: optional; whether a device finds the highest logits itself, and the
            method that returns them (session/decoder.py).
        lock: optional; a re-entrant lock, held over `forward` and the copy of its logits, so that
            generations of several threads take turns. `forward` then takes a third argument, a
            function that returns an error if the run is to end early, or None.
    """

    vocab_size: int
    max_length: int
    generation_config: dict[str, Any]
    engine: HostMemory

    def open(self) -> Any:
        """A new sequence."""
        ...

    def close(self, sequence: Any) -> None:
        """Frees a sequence."""
        ...

    def copy(self, source: Any, target: Any) -> None:
        """Copies a sequence's cache."""
        ...

    def truncate(self, sequence: Any, n: int) -> None:
        """Removes all but the first `n` tokens."""
        ...

    def forward(self, sequence: Any, ids: list[int], *more: Any) -> int:
        """Appends ids to a sequence. Returns the address of float32[vocab_size], the logits after
        the last id, valid until the next forward.
        """
        ...


@dataclass
class GenerateCall:
    """The arguments of a call of `generate`.

    Attributes:
        streamer: gets the prompt and the tokens, or None.
        signal: stops the work, or None.
        stop: the criterion of stop_strings, or None.
        deadline: of time.monotonic(), or None.
        criteria: f(ids, scores) -> bool.
        processors: f(ids, scores) -> new scores or None.
    """

    streamer: Any
    signal: Any
    stop: StopStrings | None
    deadline: float | None
    criteria: list[Callable[..., Any]]
    processors: list[Callable[..., Any]]


class Generation:
    """Generation from one prompt. Subclasses have the loop.

    Args:
        decoder: computes logits.
        prompt: token ids.
        config: resolved.
        limit: maximum tokens of a sequence, prompt included.
        host: arguments of the caller: streamer, signal, criteria, processors.
        seed: uint64.
        stream: number of the first sequence; each draws its own random numbers.
        result: sequences are added to it.
    """

    def __init__(
        self,
        decoder: Decoder,
        prompt: list[int],
        config: GenerationConfig,
        limit: int,
        host: GenerateCall,
        seed: int,
        stream: int,
        result: GenerateOutput,
    ):
        self.decoder, self.engine, self.prompt = decoder, decoder.engine, prompt
        self.config, self.limit, self.host, self.result = config, limit, host, result
        self.seed, self.stream = seed, stream
        self.addresses: list[int] = []
        self.open_sequences: list[Any] = []
        self.lock = getattr(decoder, "lock", None)
        self.logits, self.length = 0, 0
        self.members: dict[str, float] = {}
        self.current: list[list[int]] = []

    def loop(self) -> Iterator[int | None]:
        """Yields each token, or None; adds the sequences to `result`."""
        raise NotImplementedError

    def allocate(self) -> None:
        """Takes the engine memory of the run."""
        members, lists = self.config.pack(
            self.decoder.vocab_size,
            len(self.prompt),
            self.limit,
            getattr(self.decoder, "encoder_input_ids", None),
        )
        self.members = members
        self.params = self.alloc(size("ew_sampling"), pack("ew_sampling", members))
        self.lists = self.alloc(4 * max(1, len(lists)), struct.pack(f"<{len(lists)}i", *lists))
        self.checked("ew_sampling_check", self.params, self.lists)
        self.work = self.alloc(self.checked("ew_sampling_work_bytes", self.decoder.vocab_size))
        self.rng = self.alloc(16)
        if self.lock is not None:
            self.logits = self.alloc(4 * self.decoder.vocab_size)
        self.ids = self.alloc(4 * self.limit)
        self.write_ids(0, self.prompt)

    def alloc(self, n: int, data: bytes = b"") -> int:
        """The address of `n` bytes, which the run frees at its end."""
        address = self.engine.alloc(n)
        self.addresses.append(address)
        if data:
            self.engine.write(address, data)
        return address

    def free(self) -> None:
        """Closes the sequences and frees the memory."""
        for sequence in self.open_sequences:
            try:
                self.decoder.close(sequence)
            except InputError:  # the model was freed meanwhile, and its sequences with it
                pass
        for address in self.addresses:
            self.engine.free(address)
        self.open_sequences, self.addresses = [], []

    def checked(self, name: str, *args: int) -> int:
        """Calls a function of the engine. Returns its int32 (natively only the low half of the
        result is meaningful); raises for negative ones.
        """
        code = self.engine.call(name, *args) & 0xFFFFFFFF
        if code >= 2**31:
            raise error_for(code - 2**32)
        return code

    def write_ids(self, at: int, ids: Sequence[int]) -> None:
        """Writes token ids from index `at` on."""
        self.engine.write(self.ids + 4 * at, struct.pack(f"<{len(ids)}i", *ids))

    def floats(self, address: int) -> Scores:
        """A copy of float32[vocab_size] in engine memory."""
        values: Scores = array("f")
        values.frombytes(bytes(self.engine.read(address, 4 * self.decoder.vocab_size)))
        return values

    def seed_stream(self, stream: int) -> None:
        """Seeds the random numbers of a sequence."""
        low, high = self.seed & 0xFFFFFFFF, self.seed >> 32
        self.engine.call("ew_sampling_seed", self.rng, low, high, stream)

    def open_sequence(self) -> Any:
        """A new sequence of the decoder, which the run closes at its end."""
        sequence = self.decoder.open()
        self.open_sequences.append(sequence)
        return sequence

    def prefill(self, sequence: Any) -> Generator[None, None, int]:
        """Runs the prompt, and yields between its pieces. Returns the address of the logits."""
        piece = getattr(self.decoder, "prefill_chunk", None) or len(self.prompt)
        logits = 0
        for at in range(0, len(self.prompt), piece):
            if at:
                yield None
            self.check_abort([])
            logits = self.compute(sequence, self.prompt[at : at + piece])
        return logits

    def compute(self, sequence: Any, ids: list[int]) -> int:
        """As decoder.forward; the logits are valid until this run's next call."""
        if self.lock is None:
            return self.decoder.forward(sequence, ids)
        with self.lock, self.stoppable():
            logits = self.decoder.forward(sequence, ids, self.reason)
            self.engine.copy(logits, self.logits, 4 * self.decoder.vocab_size)
        return self.logits

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """`with run.stoppable():` around a forward pass: where the signal ended it, the error has
        the sequences so far.
        """
        try:
            yield
        except Aborted:
            self.check_abort(self.current)
            raise

    @property
    def reason(self) -> Callable[[], Aborted | None] | None:
        """For decoder.forward: a function that returns an error if the signal is set. None for
        signals that are functions, which must not be called from another thread.
        """
        signal = self.host.signal
        if not hasattr(signal, "aborted") and not hasattr(signal, "is_set"):
            return None
        return lambda: Aborted("generation was aborted", "generate") if self.fired() else None

    def fired(self) -> bool:
        """Whether the signal is set."""
        return is_set(self.host.signal)

    def forward(self, sequence: Any, ids: list[int]) -> int:
        """The address of the logits after `ids`. All but the last id are in the cache."""
        if self.config.use_cache is False:
            self.decoder.truncate(sequence, 0)
            return self.compute(sequence, ids)
        return self.compute(sequence, ids[-1:])

    def check_abort(self, sequences: list[list[int]]) -> None:
        """Raises Aborted if the signal is set. sequences: the unfinished ones."""
        if self.fired():
            error = Aborted("generation was aborted", "generate")
            error.sequences = self.result["sequences"] + sequences  # type: ignore[attr-defined]
            raise error

    def process(self, ids_at: int, ids: Callable[[], list[int]], logits: int) -> None:
        """Writes the processed logits to `work`.

        Args:
            ids_at: address of the sequence's ids.
            ids: returns them, for the caller's processors.
            logits: address.
        """
        self.checked(
            "ew_sampling_process", self.params, self.lists, ids_at, self.length, logits, self.work
        )
        if self.host.processors:
            scores = self.floats(self.work)
            for processor in self.host.processors:
                new = processor(ids(), scores)
                if new is not None:
                    scores = array("f", new)
                    if len(scores) != self.decoder.vocab_size:
                        raise InputError(
                            f"a logits_processor returned {len(scores)} scores instead of"
                            f" {self.decoder.vocab_size}",
                            "generate",
                        )
            self.engine.write(self.work, scores.tobytes())

    def ended_by_host(self, ids: list[int]) -> str | None:
        """Why a sequence ends with its last id, by the criteria that the engine does not have;
        None if it does not.
        """
        host = self.host
        if host.stop is not None and host.stop.hit(ids):
            return "stop_string"
        if host.deadline is not None and time.monotonic() > host.deadline:
            return "max_time"
        if host.criteria:
            scores = self.floats(self.work) if self.config.output_scores else None
            if any(criterion(list(ids), scores) for criterion in host.criteria):
                return "stopping_criteria"
        return None

    def record(self, steps: Sequence[Sequence[Recorded]]) -> None:
        """Adds scores and logits to the result, if they were asked for.

        Args:
            steps: for each step a (scores, logits) per sequence or beam.
        """
        for name, part in (("scores", 0), ("logits", 1)):
            if getattr(self.config, "output_" + name):
                self.result.setdefault(name, []).extend(
                    [entry[part] for entry in step] for step in steps
                )
