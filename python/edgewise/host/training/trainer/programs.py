"""The programs of a Trainer: for its options, and for smaller batches where memory is limited; the
memory that they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....compiler.ir import Graph
from ....compiler.targets import Target
from ....compiler.training.language_model import causal_lm_inputs, without_past
from ....compiler.training.program import Program
from ....errors import InputError, OutOfMemory
from .options import Options

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
        remedy: the way out if not even one row fits.

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


MIN_TOKENS = 8  # of the rows that are suggested where memory does not suffice

Shapes = dict[str, list[int]]


class ProgramFactory:
    """Makes programs.

    Args:
        graph: the model.
        options: of the trainer.
        target: device that plans are for.
        config: the model's config.json.

    Attributes:
        shapes: of the inputs and targets, once they are known; not for language models.
    """

    def __init__(
        self, graph: Graph, options: Options, target: Target, config: Mapping[str, Any]
    ) -> None:
        self.graph, self.options, self.target, self.config = graph, options, target, config
        self.shapes: Shapes | None = None

    def make(
        self,
        batch_size: int | None = None,
        sequence_length: int | None = None,
        checkpointing: bool | float | None = None,
        shapes: Shapes | None = None,
    ) -> Program:
        """A program for the trainer's options, or for those given.

        Args:
            checkpointing: True, or the bytes that activations may take.

        Raises:
            InputError: the shapes are not known.
        """
        options = self.options
        shapes = shapes or self.shapes
        inputs: dict[str, Any]
        if options.is_lm:
            inputs = causal_lm_inputs(
                self.graph,
                batch_size or options.batch_size,
                sequence_length or options.sequence_length,
                self.config,
            )
        elif shapes is None:
            raise InputError(
                "the shapes of the inputs are not known yet",
                "Trainer",
                "Pass a batch, or call fit, first.",
            )
        else:
            inputs = without_past(self.graph, shapes, self.config)
        if checkpointing is None:
            checkpointing = options.checkpointing
        return Program(
            self.graph,
            **inputs,
            checkpointing=checkpointing,
            target=self.target,
            **options.program(),
        )

    def fitting(self) -> Program:
        """A program that takes at most `options.memory` bytes.

        Raises:
            OutOfMemory: there is none; says what would fit.
        """
        options = self.options
        if options.memory is None:
            return self.make()
        return fit_into_memory(
            self.make,
            options.memory,
            options.accumulates,
            options.checkpointing,
            self._smaller,
            "use a smaller r, or a quantized model."
            if options.lora is not None
            else "train adapters (adapters=LoraConfig(...)) instead of all parameters.",
        )

    def _smaller(self, activations: float) -> Iterator[Candidate]:
        """Programs with smaller batches, the largest first.

        Args:
            activations: the bytes that they may take.
        """
        bytes_left = max(1, activations)
        if self.options.is_lm:
            batch, sequence = self.options.batch_size, self.options.sequence_length
            for s in (sequence, sequence // 2, sequence // 4):
                for b in (batch // 2, batch // 4, batch // 8, 1):
                    if b and s >= MIN_TOKENS:
                        yield Candidate(
                            b * s / (batch * sequence),
                            f"batch_size={b}, sequence_length={s}",
                            partial(self.make, b, s, bytes_left),
                        )
            return
        shapes = self.shapes or {}
        first = {s[0] for s in shapes.values() if s}
        whole = rows = first.pop() if len(first) == 1 else 1
        while rows := rows // 2:
            smaller = {n: [rows, *s[1:]] if s else s for n, s in shapes.items()}
            yield Candidate(
                rows / whole,
                f"batch_size={rows}",
                partial(self.make, checkpointing=bytes_left, shapes=smaller),
            )
