"""Generation from one prompt: its memory in the engine, and what sampling and beam search share."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ...errors import Aborted, InputError
from ..native import float32_bytes, float32s, float_bits, int32_bytes, int32s
from .chunks import parts_of
from .config import Configuration, error_for
from .kept import Taken
from .records import pack, size
from .requests import Constraint, Engine, Forward, Host, Logits, Step, Steps
from .stop_strings import StopStrings

FinishReason = Literal["eos", "length", "stop_string", "max_time", "stopping_criteria"]


@dataclass
class Output:
    """What was generated.

    Attributes:
        sequences: token ids of each result, prompt included, prompt by prompt, not padded.
        finish_reasons: why each sequence ended.
        scores: with output_scores: per step the processed scores [vocab_size] of each sequence
            (None once it has ended) or running beam.
        logits: with output_logits: as `scores`, before processing.
        sequences_scores: of beams: sum of log-probabilities / length ** length_penalty.
        cached_tokens: tokens of prompts that were kept of earlier calls, and not read again; None
            where nothing is kept.
    """

    sequences: list[list[int]]
    finish_reasons: list[FinishReason]
    scores: list[list[array[float] | None]] | None = None
    logits: list[list[array[float] | None]] | None = None
    sequences_scores: list[float] | None = None
    cached_tokens: int | None = None


class Recorded(NamedTuple):
    """A step of a sequence, as far as it was asked for."""

    scores: array[float] | None
    logits: array[float] | None


@dataclass
class Task:
    """A prompt, and how it is continued.

    Attributes:
        config: resolved.
        prompt: token ids.
        limit: maximum tokens of a sequence, prompt included.
        stop: the criterion of stop_strings, or None.
        deadline: of Host.now; None: there is none.
        seed: its low and high 32 bits.
        stream: number of the first sequence; each draws its own random numbers.
    """

    config: Configuration
    prompt: list[int]
    limit: int
    stop: StopStrings | None = None
    deadline: float | None = None
    seed: tuple[int, int] = (0, 0)
    stream: int = 0


class Run:
    """Generation from one prompt. Subclasses have the loops.

    Args:
        host: computes logits.
        task: what is generated.
        output: sequences are added to it.
    """

    def __init__(self, host: Host, task: Task, output: Output) -> None:
        self.host, self.engine, self.task, self.output = host, host.engine, task, output
        self.config, self.prompt = task.config, task.prompt
        self.cached: bool = self.config.get("use_cache") is not False
        self.output_scores: bool = bool(self.config.get("output_scores"))
        self.output_logits: bool = bool(self.config.get("output_logits"))
        self.choosing: Any = None
        self.constraint: Constraint | None = None
        self.addresses: list[int] = []
        self.sequences: list[Any] = []  # open ones
        self.taken: Taken | None = None  # the sequence of the prompt, where the host keeps it
        self.made: list[int] = []  # the sequence, where there is one
        self.read = 0  # tokens of the prompt that it holds and can be continued from
        self.current: list[list[int]] = []  # sequences that an abort interrupts
        self.others: list[Run] = []  # freed with it
        self.drafts = False  # whether the host is the smaller model of another run
        self.params = self.lists = self.work = self.rng = self.ids_at = 0

    def allocate(self, chooses: bool = False) -> None:
        """Takes the engine's memory of the run. chooses: whether a device may choose tokens."""
        host, vocab_size = self.host, self.host.vocab_size
        members, lists = self.config.pack(
            vocab_size, len(self.prompt), self.task.limit, host.encoder_ids
        )
        self.params = self.alloc(size("ew_sampling"), pack("ew_sampling", members))
        self.lists = self.alloc(4 * max(1, len(lists)), int32_bytes(lists))
        self.call("ew_sampling_check", self.params, self.lists)
        self.work = self.alloc(self.call("ew_sampling_work_bytes", vocab_size))
        self.rng = self.alloc(16)
        self.ids_at = self.alloc(4 * self.task.limit)
        self.write_ids(0, self.prompt)
        if host.format is not None:
            self.constraint = host.format.open(self.config.eos_token_ids)
        whole = self.output_scores or self.output_logits or host.scores or len(host.processors) > 0
        if chooses and not whole and self.constraint is None:
            self.choosing = host.choosing(members, self.work)

    def alloc(self, n: int, data: bytes | None = None) -> int:
        """The address of `n` bytes, which the run frees at its end."""
        address = self.engine.alloc(n)
        self.addresses.append(address)
        if data is not None:
            self.engine.write(address, data)
        return address

    def free(self) -> None:
        """Closes the sequences and frees the memory."""
        sequences, addresses, constraint = self.sequences, self.addresses, self.constraint
        taken, others = self.taken, self.others
        self.others = []
        self.sequences = []
        self.addresses = []
        self.constraint = None
        self.taken = None
        if taken is not None:
            made = self.made or (self.current[0] if len(self.current) == 1 else self.prompt)
            self.host.give(taken, self.prompt[: self.read], made[self.read :])
        for other in others:
            other.free()
        if constraint is not None:
            constraint.close()
        for sequence in sequences:
            self.host.close(sequence)
        for address in addresses:
            self.engine.free(address)

    def call(self, name: str, *args: int) -> int:
        """Calls a function of the engine. Returns its int32; raises for negative ones."""
        code = self.engine.call(name, *args) & 0xFFFFFFFF
        if code >= 2**31:  # bits of JavaScript have a sign
            code -= 2**32
        if code < 0:
            raise error_for(code)
        return code

    def write_ids(self, at: int, ids: Sequence[int]) -> None:
        """Writes token ids from index `at` on."""
        self.engine.write(self.ids_at + 4 * at, int32_bytes(ids))

    def floats(self, address: int) -> array[float]:
        """A copy of float32 [vocab_size] in the engine's memory."""
        return float32s(self.engine.read(address, 4 * self.host.vocab_size))

    def integers(self, address: int, n: int) -> list[int]:
        """`n` int32 in the engine's memory."""
        return int32s(self.engine.read(address, 4 * n))

    def seed_random(self, sequence: int) -> None:
        """Seeds the random numbers of a sequence of the task."""
        low, high = self.task.seed
        self.engine.call("ew_sampling_seed", self.rng, low, high, self.task.stream + sequence)

    def open(self) -> Any:
        """A new sequence, which the run closes at its end."""
        sequence = self.host.open()
        self.sequences.append(sequence)
        return sequence

    def begin(self) -> Any:
        """The sequence of the prompt. It may have its beginning from an earlier generation."""
        self.taken = self.host.take(self.prompt) if self.cached else None
        if self.taken is None:
            return self.open()
        self.read = self.taken.past
        self.output.cached_tokens = (self.output.cached_tokens or 0) + self.taken.past
        return self.taken.sequence

    def close(self, sequence: Any) -> None:
        """Closes a sequence that the run has opened before its end."""
        if self.taken is None or sequence != self.taken.sequence:
            self.sequences.remove(sequence)
            self.host.close(sequence)

    def prefill(self, sequence: Any) -> Steps[Logits]:
        """Runs the prompt, with a Step between its pieces. Returns the logits after it."""
        length = len(self.prompt)
        piece = self.host.piece or length
        tail = None if self.taken is None else self.host.tail
        logits: Logits = 0
        start = self.read
        for part in parts_of(start, length, piece, tail):
            if part.start > start:
                yield Step(None)
            self.check_abort()
            ids = self.prompt[part.start : part.end]
            logits = yield from self.compute(sequence, ids, 1)
            if self.taken is not None and part.keeps:
                self.host.mark(self.taken, part.end, part.end + piece >= length)
                self.read = part.end
        return logits

    def forward(self, sequence: Any, ids: list[int]) -> Steps[Logits]:
        """The logits after `ids`. All but the last id are in the sequence."""
        if self.cached:
            room = self.task.limit - len(ids)
            return (yield from self.compute(sequence, ids[-1:], room))
        self.host.truncate(sequence, 0)
        return (yield from self.compute(sequence, list(ids), 1))

    def compute(self, sequence: Any, ids: list[int], room: int) -> Steps[Logits]:
        """The logits after ids that are appended to a sequence. Where an abort ended the work, the
        error has the sequences so far.
        """
        try:
            logits: Logits = yield Forward(sequence, ids, room, self.choosing, self.drafts)
        except Exception:
            self.check_abort()
            raise
        return logits

    def check_abort(self) -> None:
        """Raises Aborted, with the sequences so far, if the caller has aborted."""
        if self.host.aborted():
            error = Aborted("generation was aborted", "generate")
            error.sequences = self.output.sequences + self.current
            raise error

    def process(self, ids_at: int, length: int, ids: Callable[[], list[int]], logits: int) -> None:
        """Writes the processed logits to `work`.

        Args:
            ids_at: address of the sequence's ids.
            length: how many there are.
            ids: returns them, for the caller's processors.
            logits: address.
        """
        self.call("ew_sampling_process", self.params, self.lists, ids_at, length, logits, self.work)
        if not self.host.processors:
            return
        scores = self.floats(self.work)
        for processor in self.host.processors:
            new = processor(ids(), scores)
            if new is not None:
                scores = array("f", new)
            if len(scores) != self.host.vocab_size:
                raise InputError(
                    f"a logits_processor returned {len(scores)} scores instead of"
                    f" {self.host.vocab_size}",
                    "generate",
                )
        self.engine.write(self.work, float32_bytes(scores))

    def constrain(self, place: Any) -> bool:
        """Takes the scores in `work` from tokens that the format does not have next. Returns
        whether only the end is left.

        Args:
            place: of the sequence in the format.
        """
        if self.constraint is None:
            return False
        return self.constraint.apply(place, self.work, self.host.vocab_size)

    def ended(self, ids: list[int]) -> FinishReason | None:
        """Why a sequence ends with its last id, by the criteria that the engine does not have;
        None if it does not.
        """
        task, host = self.task, self.host
        if task.stop is not None and task.stop.hit(ids):
            return "stop_string"
        if task.deadline is not None and host.now() > task.deadline:
            return "max_time"
        if host.criteria:
            scores = self.floats(self.work) if self.output_scores else None
            for criterion in host.criteria:
                if criterion(list(ids), scores):
                    return "stopping_criteria"
        return None

    def recorded(self, logits: Logits) -> Recorded:
        """The step that has processed logits."""
        raw = self.floats(logits) if self.output_logits and isinstance(logits, int) else None
        return Recorded(self.floats(self.work) if self.output_scores else None, raw)

    def record(self, steps: list[list[Recorded]]) -> None:
        """Adds scores and logits to the output, if they were asked for.

        Args:
            steps: for each step one per sequence or beam.
        """
        output = self.output
        if self.output_scores:
            output.scores = output.scores or []
            output.scores.extend([[one.scores for one in step] for step in steps])
        if self.output_logits:
            output.logits = output.logits or []
            output.logits.extend([[one.logits for one in step] for step in steps])


class Rescoring(Run):
    """The probabilities of tokens that were chosen before: those of beams, whose steps are not
    kept.
    """

    def total(self, tokens: Sequence[int]) -> Steps[float]:
        """The sum of the logarithms of the probabilities of tokens after the prompt, under the
        rules of the search.
        """
        self.allocate()
        sequence, sum_ = self.open(), 0.0
        ids = list(self.prompt)
        logits: Any = yield from self.compute(sequence, list(ids), 1)
        for i, token in enumerate(tokens):
            self.process(self.ids_at, len(ids), lambda: list(ids), logits)
            self.call("ew_sampling_warp", self.params, self.work)
            sum_ += log_probability(self.engine, self.host.vocab_size, self.work, token, 1.0)
            self.write_ids(len(ids), [token])
            ids.append(token)
            if i < len(tokens) - 1:
                logits = yield from self.forward(sequence, ids)
        return sum_


def log_probability(
    engine: Engine, vocab_size: int, scores: int, token: int, factor: float
) -> float:
    """The logarithm of the probability of a token.

    Args:
        engine: has the scores.
        vocab_size: how many they are.
        scores: address of float32 [vocab_size].
        token: its id.
        factor: of the scores.
    """
    at = engine.alloc(4)
    try:
        engine.write(at, int32_bytes([float_bits(factor)]))
        engine.call("ew_sampling_log_probability", scores, vocab_size, token, at)
        return float32s(engine.read(at, 4))[0]
    finally:
        engine.free(at)
