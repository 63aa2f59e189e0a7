"""How token ids that are appended to a sequence are divided into runs of a decoder's plans, each of
which takes a fixed number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ...errors import InputError
from ..native import written


@dataclass
class Shape:
    """The plans of a decoder.

    Attributes:
        sizes: tokens per run of the plans, in ascending order.
        max_length: maximum number of tokens of a sequence.
        vocab_size: token ids are smaller.
        way: "append": each run takes the tokens after those in the caches; "recompute": there are
            no caches, all tokens are run again; "steps": the first run fills the caches, each later
            one takes a single token.
        padded: whether the last run of ids may be padded.
        fixed: whether sequences have states that cannot be cut to every length: where they hold
            other tokens than the sequence, all tokens are run again.
    """

    sizes: list[int]
    max_length: int
    vocab_size: int
    way: Literal["append", "recompute", "steps"] = "append"
    padded: bool = True
    fixed: bool = False


class Span(NamedTuple):
    """Tokens of a prompt from index `start` to `end`, which is not among them."""

    start: int
    end: int


class Tail(NamedTuple):
    """How a prompt is read after its whole pieces.

    Attributes:
        size: tokens of the runs that read most of it.
        most: up to so many tokens.
    """

    size: int
    most: int


class Part(NamedTuple):
    """Tokens of a prompt that are read together.

    Attributes:
        start, end: indices of the first one, and of the one after the last.
        keeps: whether a prompt that begins alike can continue after them.
    """

    start: int
    end: int
    keeps: bool


class PlanRun(NamedTuple):
    """A run of a plan.

    Attributes:
        size: tokens that the plan takes.
        ids: at most so many.
        past: tokens before them in the caches.
    """

    size: int
    ids: list[int]
    past: int


def runs_of(
    shape: Shape,
    ids: Sequence[int],
    past: int,
    before: Sequence[int],
    stale: bool = False,
    together: Sequence[Span] = (),
) -> list[PlanRun]:
    """The runs that append ids to a sequence.

    Args:
        shape: of the decoder.
        ids: token ids.
        past: number of tokens of the sequence.
        before: these tokens; read where they are run again.
        stale: whether states of the sequence that cannot be cut hold other tokens: some were
            removed, or a run failed. Those of fixed shape are to be emptied before the first run.
        together: tokens of the sequence that one run takes, in order.

    Raises:
        InputError: there are none or too many, one is not in the vocabulary, or no run takes those
            that belong together.
    """
    count = len(ids)
    if not count:
        raise InputError("there are no token ids", "forward", "Give at least one token id.")
    if past + count > shape.max_length:
        raise InputError(
            f"{past + count} tokens exceed the model's maximum length, {shape.max_length}",
            "forward",
            "Shorten the prompt or max_new_tokens, or give the model a larger capacity.",
        )
    for i in ids:
        if not (isinstance(i, int) and 0 <= i < shape.vocab_size):
            raise InputError(
                f"token id {written(i)} is outside the vocabulary of {shape.vocab_size}",
                "forward",
                "Use the model's own tokenizer.",
            )
    if shape.way == "recompute":
        whole = [*before, *ids]
        return [PlanRun(_size_for(shape, len(whole)), whole, 0)]
    left, at = list(ids), past
    if shape.fixed and stale:
        left, at = [*before, *ids], 0
    runs: list[PlanRun] = []
    while left:
        count = _count_together(shape, len(left), at, together)
        size = _size_for(shape, count) if count else _next_size(shape, len(left), at)
        taken = left[: count or size]
        runs.append(PlanRun(size, taken, at))
        at += len(taken)
        left = left[len(taken) :]
    return runs


def tail_of(sizes: Sequence[int], padded: bool) -> Tail | None:
    """The tails of prompts that are read by equal runs, whatever their length; None: there are
    none.

    Args:
        sizes: tokens per run of the plans, in ascending order.
        padded: whether the last run may be padded.
    """
    piece = sizes[-1]
    smaller = [size for size in sizes if 1 < size < piece]
    if not smaller:
        return None
    size = smaller[-1]
    most = size
    while most + 1 < piece and choose_run(sizes, most + 1, 0, 2 * piece, padded) == size:
        most += 1
    return Tail(size, most)


def parts_of(start: int, length: int, piece: int, tail: Tail | None) -> list[Part]:
    """The parts in which a prompt is read: whole pieces, and a tail of less than a piece.

    Args:
        start: tokens that were read: whole pieces, or a part of the tail that can be continued.
        length: of the prompt.
        piece: tokens of a piece.
        tail: as of `tail_of`.
    """
    base = length - length % piece
    found: list[Part] = []
    at = start
    while at < base:
        found.append(Part(at, at + piece, True))
        at += piece
    end = kept_length(length, length, piece, tail)
    if at < end:
        found.append(Part(at, end, True))
        at = end
    if at < length:
        found.append(Part(at, length, False))
    return found


def kept_length(n: int, length: int, piece: int, tail: Tail | None) -> int:
    """How many of the first `n` tokens of a prompt of `length` tokens can be continued from, as
    `parts_of` reads them.
    """
    base = length - length % piece
    if tail is None or n < base or length - base > tail.most:
        return n - n % piece
    return n - (n - base) % tail.size


def check_length(length: Any, count: int) -> None:
    """Raises InputError if a sequence of `count` tokens cannot be cut to a length."""
    whole = isinstance(length, int) and not isinstance(length, bool)
    if not whole or not 0 <= length <= count:
        raise InputError(
            f"{written(length)} is not a valid length for a sequence of {count} tokens",
            "truncate",
            f"Give one from 0 to {count}.",
        )


def _count_together(shape: Shape, count: int, at: int, together: Sequence[Span]) -> int:
    """How many of the next `count` tokens a run takes that does not divide those that belong
    together; 0: none of those are left.
    """
    left = [one for one in together if one.end > at]
    if not left:
        return 0
    fitting = [n for n in shape.sizes if at + n <= shape.max_length]
    most = min(max(fitting) if fitting else 0, count)
    for one in left:
        if one.start < at + most < one.end:
            most = one.start - at
    if most <= 0 or not (shape.padded or most in shape.sizes):
        raise InputError(
            f"{left[0].end - left[0].start} tokens of the prompt see each other, and a run takes at"
            f" most {shape.sizes[-1]}",
            "forward",
            "Give fewer pictures, or a shorter text.",
        )
    return most


def _next_size(shape: Shape, count: int, past: int) -> int:
    """The size of the next run, of `count` tokens at most."""
    if shape.way == "steps":
        return 1 if past else _size_for(shape, count)
    size = choose_run(shape.sizes, count, past, shape.max_length, shape.padded)
    if size is None:
        raise InputError(
            f"no run of the model fits between {past} tokens and its limit of {shape.max_length}",
            "forward",
            "Use a shorter sequence; a model with a plan for single tokens reaches its limit.",
        )
    return size


def _size_for(shape: Shape, count: int) -> int:
    """The smallest size for `count` tokens."""
    for size in shape.sizes:
        if size >= count:
            return size
    raise InputError(
        f"there is no plan for {count} tokens", "forward", "Build the model with a larger capacity."
    )


def run_cost(tokens: int) -> int:
    """Relative cost of a run of `tokens` tokens. The unit is half the cost of each additional token
    in a long run. Measured with float32, int8 and 4-bit models of 135M parameters.
    """
    return 9 if tokens == 1 else 20 + 2 * tokens


def choose_run(
    sizes: Sequence[int], count: int, past: int, max_length: int, padded: bool = True
) -> int | None:
    """Number of tokens of the next run of a prompt.

    It is the first of the runs that process `count` tokens at the lowest total cost, longest first.
    The last run may be padded, and then costs as much as a full one.

    Args:
        sizes: tokens per run of the plans, in ascending order.
        count: remaining tokens of the prompt, at least one.
        past: tokens in the caches.
        max_length: capacity of the caches.
        padded: whether the last run may be padded. A state of fixed shape, such as that of a
            recurrent layer, would take the padding for tokens.

    Returns:
        One of `sizes`, or None if none of them fits after `past`.
    """
    fitting = [size for size in reversed(sizes) if past + size <= max_length]
    if not padded:
        fitting = [size for size in fitting if size <= count]
        return fitting[0] if fitting else None
    if not fitting or count >= fitting[0]:
        return fitting[0] if fitting else None
    costs, best = [0], 0
    for n in range(1, count + 1):
        least, best = min(
            (run_cost(size) + costs[max(n - size, 0)], i) for i, size in enumerate(fitting)
        )
        costs.append(least)
    return fitting[best]
