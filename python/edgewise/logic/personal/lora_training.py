"""The training of adapters on examples: which of them a step has, and when it ends."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..native import order


@dataclass(frozen=True)
class Step:
    """Train on a batch of examples, whose indices it has."""

    batch: list[int]
    kind: Literal["step"] = "step"


@dataclass(frozen=True)
class Measure:
    """Say the mean loss of the held-out examples."""

    kind: Literal["measure"] = "measure"


@dataclass(frozen=True)
class Keep:
    """Keep a copy of the adapters: no others had a lower loss."""

    kind: Literal["keep"] = "keep"


def training(
    known: Sequence[int], steps: int, batch_size: int, evaluate_every: int, patience: int, seed: int
) -> Generator[Step | Measure | Keep, float, None]:
    """What is done one after the other. Only Measure needs an answer.

    Args:
        known: indices of the examples to train on.
        steps: at most so many.
        batch_size: examples of a step.
        evaluate_every: steps from a measurement to the next.
        patience: so many measurements without a lower loss end the training.
        seed: of the order of the examples.
    """
    lowest = yield Measure()
    worse = 0
    for step in range(steps):
        yield Step(batch_of(known, batch_size, step, seed))
        if (step + 1) % evaluate_every and step + 1 < steps:
            continue
        loss = yield Measure()
        if loss < lowest:
            lowest = loss
            worse = 0
            yield Keep()
        else:
            worse += 1
        if worse >= patience:
            return


def batch_of(known: Sequence[int], size: int, step: int, seed: int) -> list[int]:
    """The examples of a step: the next ones of epochs, each in an order of its own."""
    found = []
    for at in range(step * size, (step + 1) * size):
        epoch, place = divmod(at, len(known))
        found.append(known[order(len(known), seed, epoch + 1)[place]])
    return found
