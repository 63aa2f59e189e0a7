"""Labelled features, which a head is trained on again whenever they change."""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import InputError


class Examples:
    """The features of examples, by label.

    Args:
        size: numbers of an example's features.

    Attributes:
        labels: in the order in which they were added.
        classes: the index of each example's label.
        data: features, float32 [examples, size].
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.labels: list[str] = []
        self.classes: list[int] = []
        self.data = bytearray()

    def __len__(self) -> int:
        return len(self.classes)

    def add(self, label: str, rows: Iterable[bytes]) -> None:
        """Adds examples. rows: float32 [size] each. Raises InputError: another size."""
        if label not in self.labels:
            self.labels.append(label)
        index = self.labels.index(label)
        for row in rows:
            if len(row) != 4 * self.size:
                raise InputError(
                    f"it has {len(row) // 4} features, the others have {self.size}",
                    f"example of '{label}'",
                    "Use the model that the other examples were read with.",
                )
            self.data += row
            self.classes.append(index)

    def remove(self, label: str) -> None:
        """Removes a label with its examples. Raises InputError: there is no such label."""
        if label not in self.labels:
            raise InputError(
                f"there is no label {label!r}", "remove", f"There are: {', '.join(self.labels)}."
            )
        gone = self.labels.index(label)
        kept = [i for i, c in enumerate(self.classes) if c != gone]
        self.data = bytearray(b"".join(self.row(i) for i in kept))
        self.classes = [c - (c > gone) for c in (self.classes[i] for i in kept)]
        self.labels.remove(label)

    def row(self, index: int) -> bytes:
        """The features of an example, float32 [size]."""
        return bytes(self.data[4 * self.size * index : 4 * self.size * (index + 1)])

    def chosen(self, indices: Sequence[int]) -> Examples:
        """Some of the examples, with all labels."""
        made = Examples(self.size)
        made.labels = list(self.labels)
        for i in indices:
            made.data += self.row(i)
            made.classes.append(self.classes[i])
        return made

    def counts(self) -> list[int]:
        """The number of examples of each label."""
        found = Counter(self.classes)
        return [found[i] for i in range(len(self.labels))]

    def weights(self, class_weight: str | dict[str, float] | None) -> list[float]:
        """The weight of each example, as of scikit-learn's `class_weight`.

        Args:
            class_weight: "balanced" (all labels count the same, and the weights add up to the
                number of examples), {label: weight} or None (1); see check_weights. Labels
                that are gone have no effect.
        """
        of_label = [1.0] * len(self.labels)
        if isinstance(class_weight, dict):
            of_label = [float(class_weight.get(label, 1.0)) for label in self.labels]
        elif class_weight is not None:
            counts = self.counts()
            present = sum(n > 0 for n in counts)
            of_label = [len(self) / (present * n) if n else 0.0 for n in counts]
        return [of_label[c] for c in self.classes]

    def split(self, share: float, seed: int) -> tuple[list[int], list[int]]:
        """Indices of (examples to train on, held-out examples).

        Args:
            share: of each label's examples that is held out, rounded, where two or more are left
                over at least one and at most all but one.
            seed: that the choice follows from.
        """
        from ...seeds import seed_of_run

        of_label: list[list[int]] = [[] for _ in self.labels]
        for i, c in enumerate(self.classes):
            of_label[c].append(i)
        held: list[int] = []
        for own in of_label:
            if len(own) < 2:
                continue
            count = min(max(1, round(share * len(own))), len(own) - 1)
            order = sorted(range(len(own)), key=lambda k: seed_of_run(seed, k))
            held += [own[k] for k in order[:count]]
        is_held = set(held)
        return [i for i in range(len(self)) if i not in is_held], sorted(held)


def floats(data: bytes | bytearray) -> array[float]:
    """float32 numbers of bytes."""
    found = array("f")
    found.frombytes(bytes(data))
    return found


def are_finite(data: bytes | bytearray) -> bool:
    """Whether float32 numbers are."""
    return all(map(math.isfinite, floats(data)))


def is_positive(value: Any) -> bool:
    """Whether a value is a number above 0 that a float can be."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value <= sys.float_info.max


def check_labels(class_weight: Any, labels: Mapping[str, Any]) -> None:
    """Raises InputError if a weight is of no label."""
    for label in class_weight if isinstance(class_weight, Mapping) else ():
        if label not in labels:
            raise InputError(
                f"there is no label {label!r}", "class_weight", f"There are: {', '.join(labels)}."
            )


def check_weights(class_weight: Any) -> None:
    """Raises InputError unless this is "balanced", {label: weight above 0} or None."""
    fine = class_weight is None or class_weight == "balanced"
    if isinstance(class_weight, dict):
        fine = all(isinstance(k, str) and is_positive(w) for k, w in class_weight.items())
    if not fine:
        raise InputError(
            f"it is {str(class_weight)[:80]}",
            "class_weight",
            'Give "balanced", {label: a positive number} or None.',
        )
