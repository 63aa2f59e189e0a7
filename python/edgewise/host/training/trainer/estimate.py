"""The memory that a Trainer takes, and what fits into less."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ....compiler.training.program import Program
from ....errors import OutOfMemory

SLACK = 1.25  # candidates are compiled if their activations, scaled by rows, are within this factor


@dataclass
class Estimate:
    """Bytes of engine memory that training takes.

    Attributes:
        weights: of the model, as the plans read them.
        states: parameters, adapters, optimizer states and gradients.
        activations: the plans' arena, inputs and outputs.
        plans: the plans themselves.
    """

    weights: int
    states: int
    activations: int
    plans: int

    @property
    def total(self) -> int:
        """The sum: the peak."""
        return self.weights + self.states + self.activations + self.plans

    @classmethod
    def of(cls, program: Program, accumulates: bool) -> Estimate:
        """The estimate for a program. accumulates: whether updates average several batches."""
        kinds = ("accumulate", "update") if accumulates else ("train",)
        plans = [program.plan(k) for k in kinds]
        weights = {
            s.name: s.nbytes for p in plans for s in p.slots if s.kind in ("weight", "computed")
        }
        fed = sum(s.nbytes for p in plans for s in p.slots if s.kind in ("input", "output"))
        states = sum(
            s.nbytes for s in program.states.values() if accumulates or s.kind != "gradient"
        )
        return cls(
            sum(weights.values()),
            states,
            max(p.arena_bytes for p in plans) + fed,
            sum(len(p.data) for p in plans),
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
        remedy: what to do if not even one row fits.

    Raises:
        OutOfMemory: it does not fit; says what would.
    """
    program = make()
    estimate = Estimate.of(program, accumulates)
    if estimate.total > limit and not checkpointing:
        rest = max(1, limit - (estimate.total - estimate.activations))
        tight = make(checkpointing=rest)
        if Estimate.of(tight, accumulates).total < estimate.total:
            program, estimate = tight, Estimate.of(tight, accumulates)
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


def _first_that_fits(
    candidates: list[Candidate], activations: int, rest: float, limit: float, accumulates: bool
) -> str | None:
    for i, candidate in enumerate(candidates):
        # Compiling takes long: skip those that will not fit, but for the smallest.
        if i < len(candidates) - 1 and candidate.share * activations > SLACK * rest:
            continue
        if Estimate.of(candidate.make(), accumulates).total <= limit:
            return candidate.options
    return None


def _mb(n: float) -> str:
    return f"{n / 1e6:.0f} MB"
