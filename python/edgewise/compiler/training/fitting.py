"""Programs that fit into memory: activations are recomputed, or rows are fewer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...errors import InputError, OutOfMemory
from ...logic.training.memory import (
    Estimate,
    PlanMemory,
    SlotMemory,
    StateMemory,
    estimated,
    plans_of_step,
)
from .program import Program

SLACK = 1.25  # candidates are compiled if their activations, scaled by rows, are within this factor


def estimate_of(program: Program, accumulates: bool) -> Estimate:
    """The estimate for a program. accumulates: whether updates average several batches."""
    plans = [program.plan(k) for k in plans_of_step(accumulates)]
    return estimated(
        [
            PlanMemory(
                len(p.data), p.arena_bytes, [SlotMemory(s.name, s.kind, s.nbytes) for s in p.slots]
            )
            for p in plans
        ],
        [StateMemory(s.kind, s.nbytes) for s in program.states.values()],
        accumulates,
    )


@dataclass
class Candidate:
    """A smaller program that may fit.

    Attributes:
        share: of the activations that it takes, approximately.
        options: the arguments that make it, for a message.
        make: compiles it.
    """

    share: float
    options: str
    make: Callable[[], Program]


def fit_into_memory(
    make: Callable[..., Program],
    limit: float,
    accumulates: bool,
    checkpointing: bool,
    smaller: Callable[[float], Iterator[Candidate]],
    remedy: str,
) -> Program:
    """A program that takes at most `limit` bytes; activations are recomputed if that is needed.

    Args:
        make: makes the program; takes `checkpointing`.
        checkpointing: whether all activations are recomputed in any case.
        smaller: given the bytes that are left for activations, programs with smaller batches, the
            largest first.
        remedy: the way out if not even one row fits.

    Raises:
        OutOfMemory: it does not fit; says what would.
    """
    program = make()
    estimate = estimate_of(program, accumulates)
    if estimate.total > limit and not checkpointing:
        rest = max(1, limit - (estimate.total - estimate.activations))
        tight = make(checkpointing=rest)
        if estimate_of(tight, accumulates).total < estimate.total:
            program, estimate = tight, estimate_of(tight, accumulates)
    if estimate.total <= limit:
        return program
    rest = limit - (estimate.total - estimate.activations)
    fits = _first_that_fits(list(smaller(rest)), estimate.activations, rest, limit, accumulates)
    raise OutOfMemory(
        f"training takes {_mb(estimate.total)}, {_mb(limit)} may be used",
        "memory",
        f"It would fit with {fits} and checkpointing=True."
        if fits
        else f"Even a batch of one row does not fit; {remedy}",
    )


def read_fit(fit: object) -> bool:
    """Whether the option `fit` was given. Raises InputError for other values than "auto"."""
    if fit not in (None, "auto"):
        raise InputError(f"it is {fit!r}", "fit", "Give 'auto', or leave it out.")
    return fit is not None


def fit_rows(
    make: Callable[[int, bool | float], Program],
    limit: float,
    batch: int,
    accumulation: int = 1,
    fewer: bool = True,
) -> tuple[Program, int]:
    """A program that takes at most `limit` bytes, and its rows: as it is, else with activations
    that are recomputed, else with half the rows or fewer, and so on. The rows
    are a divisor of `batch`, so that an update can have as many.

    Args:
        make: makes the program of a number of rows; its `checkpointing` is True, False, or the
            bytes that activations may take.
        batch: rows, if they fit.
        accumulation: batches of an update. Fewer rows need more of them for updates of as many
            rows, so gradients are kept.
        fewer: whether there may be fewer rows.

    Raises:
        OutOfMemory: it does not fit.
    """
    rows = batch
    while True:
        accumulates = accumulation > 1 or rows < batch
        program = make(rows, False)
        estimate = estimate_of(program, accumulates)
        rest = limit - (estimate.total - estimate.activations)
        if estimate.total > limit and rest > 0:
            program = make(rows, rest)
            tight = estimate_of(program, accumulates)
            if tight.total <= limit:
                return program, rows
        elif estimate.total <= limit:
            return program, rows
        if not fewer or rest <= 0 or rows == 1:
            least = min(estimate.total, estimate_of(program, accumulates).total)
            raise OutOfMemory(
                f"training in batches of {rows} takes {_mb(least)}, {_mb(limit)} may be used",
                "memory",
                "Allow more; or train adapters, with a smaller r, on shorter rows, or of a"
                " quantized model"
                + ("." if fewer or rows == 1 else "; or give fit='auto', which takes fewer rows."),
            )
        rows = next(n for n in range(rows // 2, 0, -1) if batch % n == 0)


def _first_that_fits(
    candidates: list[Candidate], activations: int, rest: float, limit: float, accumulates: bool
) -> str | None:
    for i, candidate in enumerate(candidates):
        # Compiling takes long: skip those that will not fit, but for the smallest.
        if i < len(candidates) - 1 and candidate.share * activations > SLACK * rest:
            continue
        if estimate_of(candidate.make(), accumulates).total <= limit:
            return candidate.options
    return None


def _mb(n: float) -> str:
    return f"{n / 1e6:.0f} MB"
