"""The training of heads on examples: what each step has."""

from __future__ import annotations

import math
from array import array
from collections.abc import Generator
from dataclasses import dataclass

from ...errors import InputError
from .examples import Labels
from .options import HeadFields, other_examples

ABSENT = -1e9
"""Added to the logits of classes that do not exist."""
CLASSES = 64
"""Classes of the head of a step of adapters; there may be fewer."""


def rate_of(step: int, steps: int, learning_rate: float) -> float:
    """The learning rate of a step, which are counted from 0."""
    return learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))


@dataclass(frozen=True)
class HeadStep:
    """A step of a head. The answer: its loss.

    Attributes:
        number: from 1 on.
        rate: the learning rate.
    """

    number: int
    rate: float


@dataclass(frozen=True)
class HeadFeeds:
    """Inputs of all steps of a head.

    Attributes:
        targets: [rows, classes]: the share of each example in the loss at its class, else 0.
        mask: [classes]: 0 or ABSENT.
        penalty: of the weights.
    """

    targets: array[float]
    mask: array[float]
    penalty: float


def check_trainable(examples: Labels) -> None:
    """Raises InputError unless a head can be trained on examples."""
    if not examples.trainable():
        raise InputError(
            "a head needs examples of two labels or more", "personalize", other_examples()
        )


def head_feeds(examples: Labels, fields: HeadFields, rows: int, classes: int) -> HeadFeeds:
    """Inputs of all steps of a head.

    Args:
        examples: that it is trained on.
        fields: how.
        rows, classes: of the step; there may be fewer examples and labels.
    """
    weights = examples.weights(fields.class_weight)
    total = math.fsum(weights)
    targets = array("f", [0.0]) * (rows * classes)
    for i, weight in enumerate(weights):
        targets[i * classes + examples.classes[i]] = weight / total
    return HeadFeeds(targets, mask_of(len(examples.labels), classes), 1 / (fields.c * total))


def mask_of(labels: int, classes: int) -> array[float]:
    """What is added to logits: ABSENT for those of classes that do not exist."""
    mask = array("f", [0.0]) * classes
    for c in range(labels, classes):
        mask[c] = ABSENT
    return mask


def head_steps(fields: HeadFields) -> Generator[HeadStep, float, list[float]]:
    """The steps of a head. Returns the loss of each.

    Raises:
        InputError: the last one is not finite.
    """
    losses: list[float] = []
    for step in range(fields.steps):
        loss = yield HeadStep(step + 1, rate_of(step, fields.steps, fields.learning_rate))
        losses.append(loss)
    if not math.isfinite(losses[-1]):
        raise InputError("the loss is not finite", "personalize", "Give a lower learning_rate.")
    return losses
