"""What generation asks of its host: requests that wait, and what is done at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from .chunks import Tail
from .kept import Taken
from .speculation import Pace

Chosen = Callable[[Callable[[], int]], int]
"""A token, given a function that draws one from the scores in the engine's memory."""

Logits = int | Chosen
"""Address of float32 [vocab_size] in the engine's memory, valid until the next answer; or the
choice of the token, by a device that has the logits.
"""

Processor = Callable[[list[int], "array[float]"], "Sequence[float] | None"]
"""f(ids, scores): the new scores, or None."""

Criterion = Callable[[list[int], "array[float] | None"], bool]
"""f(ids, scores): whether the sequence ends."""

Result = TypeVar("Result")


@dataclass
class Forward:
    """Append ids to a sequence, and compute the logits after the last one. The answer: Logits.

    Attributes:
        sequence: of Host.open.
        ids: token ids, at least one.
        room: tokens that may follow.
        choosing: of Host.choosing; None: all logits are needed.
        drafts: whether the sequence is one of Host.assistant.
    """

    sequence: Any
    ids: list[int]
    room: int
    choosing: Any
    drafts: bool
    kind: Literal["forward"] = "forward"


@dataclass
class Verify:
    """Append ids to a sequence, and compute the logits after each of them. The answer: the address
    of float32 [len(ids), vocab_size] in the engine's memory, valid until the next such answer.

    Attributes:
        sequence: of Host.open.
        ids: token ids, at most Host.verified.
    """

    sequence: Any
    ids: list[int]
    kind: Literal["verify"] = "verify"


@dataclass
class Step:
    """A token was chosen, or a piece of the prompt or a step of beams is over: the host may do
    other things. No answer.

    Attributes:
        token: None: there is no single one.
    """

    token: int | None
    kind: Literal["step"] = "step"


Request = Forward | Verify | Step

Steps = Generator[Request, Any, Result]
Loop = Generator[Request, Any, None]


class Engine(Protocol):
    """Memory and functions of the engine, in which tokens are chosen."""

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

    def call(self, name: str, *args: int) -> int:
        """Calls a function of core/sampling/sampling.h. The low 32 bits of the result count."""
        ...


class Constraint(Protocol):
    """Where the sequences of a generation are in a format (logic/grammar/constraint.py)."""

    def first(self) -> Any:
        """The place before the first token."""
        ...

    def after(self, place: Any, token: int) -> Any:
        """The place after a token that was allowed."""
        ...

    def apply(self, place: Any, scores: int, vocab_size: int) -> bool:
        """Sets the scores of tokens that are not allowed to -inf. Returns whether only the end is.
        scores: address of float32 [vocab_size].
        """
        ...

    def close(self) -> None:
        """Frees what it has in the engine."""
        ...


class Format(Protocol):
    """What texts have to be."""

    def open(self, ends: Sequence[int]) -> Constraint:
        """The constraint of a generation. ends: ids that end a text."""
        ...


class Host(Protocol):
    """What computes logits, and the caller of a generation.

    Attributes:
        vocab_size: number of logits.
        max_length: tokens that a sequence holds.
        piece: the prompt is given to the model in pieces of this many ids, so that an abort is
            noticed between them; None: at once.
        tail: how less than a piece is read, as Kept's.
        encoder_ids: token ids of the encoder's input; None: there are none.
        streams: whether `put` and `end` have a taker.
        scores: whether `scored` has one.
        verified: ids that Verify takes at most; 0: none.
        pace: of the model's runs of guesses.
        criteria, processors: of the caller.
        format: what the texts have to be; None: anything.
    """

    vocab_size: int
    max_length: int
    piece: int | None
    tail: Tail | None
    encoder_ids: Sequence[int] | None
    streams: bool
    scores: bool
    verified: int
    pace: Pace
    criteria: list[Criterion]
    processors: list[Processor]
    format: Format | None

    @property
    def engine(self) -> Engine:
        """Memory and functions, in which tokens are chosen."""
        ...

    @property
    def assistant(self) -> Host | None:
        """The smaller model that guesses tokens; None: there is none."""
        ...

    def open(self) -> Any:
        """A new sequence."""
        ...

    def close(self, sequence: Any) -> None:
        """Frees a sequence."""
        ...

    def copy(self, source: Any, target: Any) -> None:
        """Copies the state of a sequence."""
        ...

    def truncate(self, sequence: Any, n: int) -> None:
        """Removes all but the first `n` tokens."""
        ...

    def take(self, prompt: list[int]) -> Taken | None:
        """A sequence for a prompt, which may hold the beginning of it; None: nothing is kept."""
        ...

    def mark(self, taken: Taken, length: int, last: bool) -> None:
        """Tells that a sequence holds `length` tokens, after which prompts can continue. last: less
        than a piece of the prompt follows.
        """
        ...

    def give(self, taken: Taken, ids: list[int], following: list[int]) -> None:
        """Takes a sequence back, which has read `ids`, after which prompts can continue, and may
        hold more. following: tokens that the next prompt is likely to have after them.
        """
        ...

    def choosing(self, members: Mapping[str, Any], work: int) -> Any | None:
        """What lets a device choose tokens; None: it needs the logits here.

        Args:
            members: of ew_sampling.
            work: address of the scores in the engine's memory.
        """
        ...

    def scored(self, work: int, token: int) -> None:
        """Tells of the processed scores, by their address, and of the token that was chosen."""
        ...

    def aborted(self) -> bool:
        """Whether the caller has aborted."""
        ...

    def now(self) -> float:
        """Seconds of a clock that only goes forward."""
        ...

    def put(self, ids: list[int]) -> None:
        """Gives ids to the streamer: the prompt, then each token."""
        ...

    def end(self) -> None:
        """Tells the streamer that there are no more, also after a failure."""
        ...
