"""The training of adapters on examples: its options, what each step has, when it ends, and whether
they are kept.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ...errors import InputError
from ..native import Seed, given, order, seed_of_run
from .examples import Labels
from .layout import check_lora
from .measures import Measures, cross_entropy, measured
from .options import MAX_STEPS, is_count, is_positive, refused
from .training import CLASSES, rate_of

RANK = 8
ALPHA = 16.0


@dataclass(frozen=True)
class LoraOptions:
    """How adapters are trained.

    Attributes:
        rank, alpha: as r and lora_alpha of LoraConfig.
        steps: of Adam, at most.
        learning_rate: of the first step; it falls to 0 along a cosine.
        batch_size: examples of a step.
        evaluate_every: steps between two measurements of the held-out examples.
        patience: measurements without a lower loss after which the training ends.
    """

    rank: int = RANK
    alpha: float = ALPHA
    steps: int = 40
    learning_rate: float = 1e-3
    batch_size: int = 4
    evaluate_every: int = 5
    patience: int = 3


LORA: dict[str, Any] = {
    "rank": None,
    "alpha": None,
    "steps": 40,
    "learning_rate": 1e-3,
    "batch_size": 4,
    "evaluate_every": 5,
    "patience": 3,
}
"""{option of adapters: its default}; None: that of the pipeline."""


def lora_options(
    asked: Any, rank: int = RANK, alpha: float = ALPHA, made: bool = False
) -> LoraOptions:
    """The option `lora`: True, or {name of an option: value}.

    Args:
        asked: the option.
        rank, alpha: the defaults.
        made: whether the pipeline was made for these two, and no others.

    Raises:
        InputError: it is none of these.
    """
    values: dict[str, Any] = {**LORA}
    known = isinstance(asked, Mapping) and all(name in LORA for name in list(asked))
    if asked is not True and not known:
        raise InputError("it is no set of options", "lora", f"There are: {', '.join(list(LORA))}.")
    if asked is not True:
        for name, value in given(asked):
            values[name] = value
    for name in ("rank", "alpha"):
        own = rank if name == "rank" else alpha
        if values[name] is None:
            values[name] = own
        elif made and values[name] != own:
            raise InputError(
                f"the pipeline was made for the rank {rank} and the alpha {alpha}",
                "lora",
                "Leave `rank` and `alpha` out, or make the pipeline for others.",
            )
    check_lora(values["rank"], values["alpha"])
    for name in ("steps", "batch_size", "evaluate_every", "patience"):
        if not is_count(values[name], MAX_STEPS):
            raise refused(values, name, "lora.", f"Give a positive integer of at most {MAX_STEPS}.")
    if not is_positive(values["learning_rate"]):
        raise refused(values, "learning_rate", "lora.", "Give a positive number.")
    return LoraOptions(
        values["rank"],
        float(values["alpha"]),
        values["steps"],
        float(values["learning_rate"]),
        values["batch_size"],
        values["evaluate_every"],
        values["patience"],
    )


@dataclass(frozen=True)
class Begin:
    """Train a head on the examples to train on, and draw first adapters."""

    kind: Literal["begin"] = "begin"


@dataclass(frozen=True)
class Step:
    """Train on a batch. The answer: its loss.

    Attributes:
        batch: indices of examples.
        number: from 1 on.
        rate: the learning rate.
    """

    batch: list[int]
    number: int
    rate: float
    kind: Literal["step"] = "step"


@dataclass(frozen=True)
class Measure:
    """The answer: the mean loss of the held-out examples."""

    kind: Literal["measure"] = "measure"


@dataclass(frozen=True)
class Keep:
    """Keep a copy of the adapters: no others had a lower loss."""

    kind: Literal["keep"] = "keep"


@dataclass(frozen=True)
class Score:
    """The answer: (labels of the held-out examples, scores that a head gives them that does not
    know them). adapted: with the features of the model with the adapters that were kept.
    """

    adapted: bool
    kind: Literal["score"] = "score"


Request = Begin | Step | Measure | Keep | Score
Scores = tuple[list[str], list[Mapping[str, float]]]


class LoraReport(TypedDict):
    """What a training of adapters gave.

    Attributes:
        kept: whether the head has them: held-out examples are told apart better with them.
        before: measures on the held-out examples without adapters.
        after: with them; None if they are not kept.
        losses: the mean loss of each step's examples.
        held_out_losses: mean cross entropy of the held-out examples: of the head alone, and of each
            measurement.
    """

    kept: bool
    before: Measures
    after: Measures | None
    losses: list[float]
    held_out_losses: list[float]


def adapting(
    examples: Labels,
    known: Sequence[int],
    held: Sequence[int],
    inputs: int,
    options: LoraOptions,
    seed: Seed,
) -> Generator[Request, Any, LoraReport]:
    """Trains adapters, and keeps them if held-out examples are told apart better with them.

    Args:
        examples: all of them.
        known: indices of the examples to train on.
        held: indices of the held-out ones.
        inputs: how many inputs the model had for the examples.
        options: how.
        seed: of the order of the examples.

    Raises:
        InputError: there are no held-out examples, or too many labels, or the model reads an
            example in parts, or a loss is not finite.
    """
    if inputs != len(examples.classes):
        raise InputError("the model reads an example in parts", "lora", "Give shorter ones.")
    if not held:
        raise InputError(
            "no label has two examples", "lora", "Give more: some are held out to compare."
        )
    labels = examples.labels
    if len(labels) > CLASSES:
        raise InputError(f"there are {len(labels)} labels", "lora", f"Give up to {CLASSES}.")
    yield Begin()
    losses: list[float] = []
    measures: list[float] = []
    kept = yield from _trained(known, options, seed, losses, measures)
    scores: Scores = yield Score(False)
    before = measured(labels, scores[0], scores[1])
    after: Measures | None = None
    if kept:
        adapted: Scores = yield Score(True)
        after = measured(labels, adapted[0], adapted[1])
        gained = _accuracy(after) - _accuracy(before)
        if gained == 0:
            gained = cross_entropy(scores[0], scores[1]) - cross_entropy(adapted[0], adapted[1])
        if gained <= 0:
            after = None
    return {
        "kept": after is not None,
        "before": before,
        "after": after,
        "losses": losses,
        "held_out_losses": measures,
    }


def _accuracy(measures: Measures) -> float:
    accuracy = measures["accuracy"]
    return 0.0 if accuracy is None else accuracy


def _trained(
    known: Sequence[int],
    options: LoraOptions,
    seed: Seed,
    losses: list[float],
    measures: list[float],
) -> Generator[Request, Any, bool]:
    """The steps, whose losses it notes. Returns whether adapters were kept."""
    lowest: float = yield Measure()
    measures.append(lowest)
    worse = 0
    kept = False
    for step in range(options.steps):
        batch = batch_of(known, options.batch_size, step, seed)
        loss: float = yield Step(
            batch, step + 1, rate_of(step, options.steps, options.learning_rate)
        )
        if not math.isfinite(loss):
            raise InputError("the loss is not finite", "lora", "Give a lower learning_rate.")
        losses.append(loss)
        if (step + 1) % options.evaluate_every and step + 1 < options.steps:
            continue
        found: float = yield Measure()
        measures.append(found)
        if found < lowest:
            lowest = found
            worse = 0
            kept = True
            yield Keep()
        else:
            worse += 1
        if worse >= options.patience:
            break
    return kept


def batch_of(known: Sequence[int], size: int, step: int, seed: Seed) -> list[int]:
    """The examples of a step: the next ones of epochs, each in an order of its own."""
    found: list[int] = []
    for at in range(step * size, (step + 1) * size):
        epoch, place = divmod(at, len(known))
        found.append(known[order(len(known), seed_of_run(seed, epoch + 1))[place]])
    return found


def shares_of(
    examples: Labels, known: Labels, class_weight: Mapping[str, float] | str | None
) -> list[float]:
    """For each label, how much an example of it counts in a step; 1 on average.

    Args:
        examples: all of them.
        known: those to train on.
        class_weight: see Labels.weights.
    """
    weights = known.weights(class_weight)
    total = math.fsum(weights)
    of = [1.0] * len(examples.labels)
    for i, c in enumerate(known.classes):
        of[c] = weights[i]
    return [weight * len(weights) / total for weight in of]


def targets_of(label: int, share: float, batch: int) -> array[float]:
    """The targets of an example of a batch, [CLASSES]."""
    targets = array("f", [0.0]) * CLASSES
    targets[label] = share / batch
    return targets


def loss_of(logits: Sequence[float], label: int) -> float:
    """The cross entropy of an example."""
    top = max(logits)
    total = math.fsum([math.exp(v - top) for v in logits])
    return top + math.log(total) - logits[label]
