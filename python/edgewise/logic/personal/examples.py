"""Labels of examples. Their features stay with the host, in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import InputError
from ..native import Seed, order

OTHER = "other"
"""The label of examples of none of the labels."""


class Labels:
    """The labels of examples.

    Args:
        labels: in the order in which they were added.
        classes: the index of each example's label.
    """

    def __init__(self, labels: Sequence[str] = (), classes: Sequence[int] = ()) -> None:
        self.labels: list[str] = [*labels]
        self.classes: list[int] = [*classes]

    def add_label(self, label: str, count: int) -> None:
        """Adds examples of a label, which may be new."""
        if label not in self.labels:
            self.labels.append(label)
        self.classes += [self.labels.index(label)] * count

    def remove_label(self, label: str) -> list[int]:
        """Removes a label with its examples.

        Returns:
            the indices of the examples that are left

        Raises:
            InputError: there is no such label.
        """
        if label not in self.labels:
            raise InputError(
                f"there is no label {label!r}", "remove", f"There are: {', '.join(self.labels)}."
            )
        gone = self.labels.index(label)
        kept = [i for i, c in enumerate(self.classes) if c != gone]
        self.classes = [self.classes[i] - (1 if self.classes[i] > gone else 0) for i in kept]
        self.labels = [one for one in self.labels if one != label]
        return kept

    def counts(self) -> list[int]:
        """The number of examples of each label."""
        found = [0] * len(self.labels)
        for c in self.classes:
            found[c] += 1
        return found

    def trainable(self) -> bool:
        """Whether there are two labels or more, and examples of each."""
        return len(self.labels) > 1 and all(n > 0 for n in self.counts())

    def weights(self, class_weight: Mapping[str, float] | str | None) -> list[float]:
        """The weight of each example, as of scikit-learn's `class_weight`.

        Args:
            class_weight: "balanced" (all labels count the same, and the weights add up to the
                number of examples), {label: weight} or None (1). Labels that are gone have no
                effect.
        """
        of_label = [1.0] * len(self.labels)
        if isinstance(class_weight, Mapping):
            of_label = [float(class_weight.get(label, 1.0)) for label in self.labels]
        elif class_weight is not None:
            counts = self.counts()
            present = sum(n > 0 for n in counts)
            of_label = [len(self.classes) / (present * n) if n else 0.0 for n in counts]
        return [of_label[c] for c in self.classes]

    def split(self, share: float, seed: Seed) -> tuple[list[int], list[int]]:
        """Indices of (examples to train on, held-out examples).

        Args:
            share: of each label's examples that is held out, rounded, where two or more are left
                over at least one and at most all but one.
            seed: that the choice follows from.
        """
        of_label: list[list[int]] = [[] for _ in self.labels]
        for i, c in enumerate(self.classes):
            of_label[c].append(i)
        held: set[int] = set()
        for own in of_label:
            if len(own) < 2:
                continue
            count = min(max(1, round(share * len(own))), len(own) - 1)
            held |= {own[k] for k in order(len(own), seed)[:count]}
        known = [i for i in range(len(self.classes)) if i not in held]
        return known, sorted(held)
