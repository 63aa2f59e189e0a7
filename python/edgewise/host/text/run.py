"""What computes logits for a generation, and how it hosts logic/generation."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from ...errors import Aborted, InputError
from ...logic.generation.chunks import Tail
from ...logic.generation.kept import Taken
from ...logic.generation.requests import (
    Criterion,
    Format,
    Forward,
    Logits,
    Processor,
    Request,
    Verify,
)
from ...logic.generation.shortlist import suffices
from ...logic.generation.speculation import Pace
from .results import Tokens
from .shortlist import Shortlist
from .signals import is_set

Result = TypeVar("Result")


def finished(running: Generator[Any, None, Result]) -> Result:
    """What a generator returns."""
    while True:
        try:
            next(running)
        except StopIteration as over:
            result: Result = over.value
            return result


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
        tail: optional; how less than a piece is read (logic/generation/chunks.py).
        encoder_input_ids: optional; token ids of the encoder's input.
        scored: optional; without beams called with the address of float32[vocab_size], the
            processed scores, and the token that was chosen from them.
        verified, verify, pace: optional; tokens that `verify` takes at most, the method, which
            returns the logits after each of them, and what was measured of it
            (session/decoder.py).
        chooses, forward_best: optional; whether a device finds the highest logits itself, and the
            method that returns them (session/decoder.py).
        take, mark, give: optional; see Keeps.
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


@runtime_checkable
class Keeps(Protocol):
    """A decoder that keeps sequences of earlier generations (logic/generation/kept.py)."""

    def take(self, prompt: list[int]) -> Taken | None:
        """A sequence for a prompt; None: nothing is kept."""
        ...

    def mark(self, taken: Taken, length: int, last: bool) -> None:
        """Tells that a sequence holds `length` tokens, after which prompts can continue."""
        ...

    def give(self, taken: Taken, ids: list[int], following: list[int]) -> None:
        """Takes a sequence back that has read `ids`, which others are likely to follow."""
        ...


class GenerationHost:
    """The host of logic/generation: a decoder, and the caller of a generation.

    Args:
        decoder: computes logits.
        streamer: gets the prompt and the tokens, or None.
        signal: stops the work, or None.
        criteria, processors: of the caller.
        cache: continue earlier generations, and be continued, where the decoder keeps them.
        format: what the texts have to be; None: anything.
        assistant: a smaller model that guesses tokens, or None.
    """

    def __init__(
        self,
        decoder: Decoder,
        streamer: Any = None,
        signal: Any = None,
        criteria: list[Criterion] | None = None,
        processors: list[Processor] | None = None,
        cache: bool = False,
        format: Format | None = None,
        assistant: Decoder | None = None,
    ) -> None:
        self.decoder, self.streamer, self.signal = decoder, streamer, signal
        self.keeps: Keeps | None = decoder if cache and isinstance(decoder, Keeps) else None
        self.engine, self.vocab_size = decoder.engine, decoder.vocab_size
        self.max_length = decoder.max_length
        self.piece: int | None = getattr(decoder, "prefill_chunk", None)
        self.tail: Tail | None = getattr(decoder, "tail", None)
        self.encoder_ids = getattr(decoder, "encoder_input_ids", None)
        self.streams = streamer is not None
        self.scored: Any = getattr(decoder, "scored", None)
        self.scores = self.scored is not None
        self.verified: int = getattr(decoder, "verified", 0)
        self.pace: Pace = getattr(decoder, "pace", None) or Pace()
        self.criteria, self.processors = criteria or [], processors or []
        self.format = format
        self.assistant: GenerationHost | None = None
        if assistant is not None:
            self.assistant = GenerationHost(assistant, cache=cache)
        self.open, self.copy, self.truncate = decoder.open, decoder.copy, decoder.truncate
        self.now = time.monotonic
        self.lock = getattr(decoder, "lock", None)
        self.reason = self._reason()
        if self.assistant is not None:
            self.assistant.reason = self.reason
        self.logits = self.rows = 0  # this generation's own, where others take turns with it

    def _reason(self) -> Callable[[], Aborted | None] | None:
        """For decoder.forward: a function that returns an error if the signal is set. None for
        signals that are functions, which must not be called from another thread.
        """
        if not hasattr(self.signal, "aborted") and not hasattr(self.signal, "is_set"):
            return None
        return lambda: Aborted("generation was aborted", "generate") if self.aborted() else None

    def answer(self, steps: Generator[Request, Any, Result]) -> Generator[int | None, None, Result]:
        """Runs logic: yields each token, and None between other steps."""
        try:
            request = next(steps)
            while True:
                if request.kind == "step":
                    yield request.token
                    request = next(steps)
                    continue
                try:
                    logits = self._answer(request)
                except BaseException as e:
                    request = steps.throw(e)
                else:
                    request = steps.send(logits)
        except StopIteration as over:
            result: Result = over.value
            return result
        finally:
            steps.close()
            for host in (self, self.assistant):
                if host is not None:
                    host.free()

    def free(self) -> None:
        """Frees the memory of logits."""
        for own in (self.logits, self.rows):
            if own:
                self.engine.free(own)
        self.logits = self.rows = 0

    def _answer(self, request: Forward | Verify) -> Logits:
        """The logits that are asked for."""
        if request.kind == "verify":
            return self.verify(request)
        assistant = self.assistant if request.drafts else None
        return (assistant or self).forward(request)

    def forward(self, request: Forward) -> Logits:
        """What a request asks for."""
        decoder, lock = self.decoder, self.lock
        if lock is None:
            return decoder.forward(request.sequence, request.ids)
        shortlist: Shortlist | None = request.choosing
        with lock:
            if shortlist is None:
                found = decoder.forward(request.sequence, request.ids, self.reason)
            else:
                enough = None if shortlist.greedy else shortlist.holds
                best: Any = decoder  # with `forward_best`, since it `chooses`
                found = best.forward_best(request.sequence, request.ids, enough, self.reason)
                if not isinstance(found, int):
                    return partial(shortlist.among, found)
                shortlist.cleared = False  # all scores are written
            if not self.logits:
                self.logits = self.engine.alloc(4 * self.vocab_size)
            self.engine.copy(found, self.logits, 4 * self.vocab_size)
        return self.logits

    def verify(self, request: Verify) -> int:
        """The logits after each id of a request."""
        decoder: Any = self.decoder  # with `verify`, since it has `verified`
        row = 4 * self.vocab_size
        with self.lock or nullcontext():
            found = decoder.verify(request.sequence, request.ids, self.reason)
            if not self.rows:
                self.rows = self.engine.alloc(row * self.verified)
            self.engine.copy(found, self.rows, row * len(request.ids))
        return self.rows

    def choosing(self, members: Mapping[str, Any], work: int) -> Shortlist | None:
        """What lets a device choose tokens; None: it does not."""
        if self.lock is None or not getattr(self.decoder, "chooses", False):
            return None
        return Shortlist(members, self.engine, work) if suffices(members) else None

    def aborted(self) -> bool:
        """Whether the signal is set."""
        return is_set(self.signal)

    def close(self, sequence: Any) -> None:
        """Frees a sequence."""
        try:
            self.decoder.close(sequence)
        except InputError:  # the model was freed meanwhile, and its sequences with it
            pass

    def take(self, prompt: list[int]) -> Taken | None:
        """A sequence for a prompt; None: nothing is kept."""
        return None if self.keeps is None else self.keeps.take(prompt)

    def mark(self, taken: Taken, length: int, last: bool) -> None:
        """Copies states that cannot be cut, if it is time."""
        if self.keeps is not None:
            self.keeps.mark(taken, length, last)

    def give(self, taken: Taken, ids: list[int], following: list[int]) -> None:
        """Takes a sequence back."""
        if self.keeps is not None:
            self.keeps.give(taken, ids, following)

    def put(self, ids: list[int]) -> None:
        """Gives ids to the streamer."""
        self.streamer.put(Tokens(ids))

    def end(self) -> None:
        """Tells the streamer that there are no more."""
        self.streamer.end()
