"""Memory that training takes, before any is allocated, and the change that makes it fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class SlotMemory:
    """A tensor that a plan reads or writes.

    Attributes:
        kind: "weight", "computed", "input", "output", ...
        size: bytes.
    """

    name: str
    kind: str
    size: int


@dataclass
class PlanMemory:
    """A plan of a program.

    Attributes:
        size: bytes of the plan itself.
        arena: bytes of its activations.
    """

    size: int
    arena: int
    slots: Sequence[SlotMemory]


@dataclass
class StateMemory:
    """A tensor that lives between steps.

    Attributes:
        kind: "parameter", "adapter", "gradient", ...
        size: bytes.
    """

    kind: str
    size: int


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


def plans_of_step(accumulates: bool) -> list[str]:
    """The plans that a run loads. accumulates: whether updates average several batches."""
    return ["accumulate", "update"] if accumulates else ["train"]


def estimated(
    plans: Sequence[PlanMemory], states: Sequence[StateMemory], accumulates: bool
) -> Estimate:
    """The memory of a run.

    Args:
        plans: those of `plans_of_step`.
        states: of the program.
        accumulates: whether updates average several batches: only then gradients are kept.
    """
    weights: dict[str, int] = {}
    fed = 0
    arena = 0
    size = 0
    for plan in plans:
        arena = max(arena, plan.arena)
        size += plan.size
        for slot in plan.slots:
            if slot.kind in ("weight", "computed"):
                weights[slot.name] = slot.size
            elif slot.kind in ("input", "output"):
                fed += slot.size
    kept = sum([s.size for s in states if accumulates or s.kind != "gradient"])
    return Estimate(sum(weights.values()), kept, arena + fed, size)


MIN_TOKENS = 8  # of a row that is proposed


def change(
    estimate: Estimate, limit: int, batch: int, sequence: int, adapters: bool, accumulation: int
) -> str | None:
    """The options that make training fit into `limit` bytes; None: it fits.

    Activations are taken as proportional to rows and tokens, which is less than they shrink where
    attention's are.

    Args:
        batch, sequence: rows of a step, and tokens of a row.
        adapters: whether adapters are trained, not the parameters.
        accumulation: batches of an update.
    """
    if estimate.total <= limit:
        return None
    rest = limit - (estimate.total - estimate.activations)
    if rest > 0:
        rows = batch * rest // estimate.activations
        if rows >= 1:
            more = -(-batch * accumulation // rows)
            return (
                f"Compile with batch_size {rows}, or with checkpointing, and train with "
                f"gradient_accumulation_steps {more} for updates of as many rows."
            )
        tokens = batch * sequence * rest // estimate.activations
        if tokens >= MIN_TOKENS:
            return (
                f"Compile with batch_size 1 and checkpointing, or sequence_length {tokens}, and "
                f"train with gradient_accumulation_steps {batch * accumulation}."
            )
    if not adapters:
        return "Train adapters (LoRA) instead of all parameters."
    return "Use a smaller r, or a model with quantized weights (dtype 'q4')."
