"""Labelled features, which a head is trained on again whenever they change."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

from ...errors import InputError
from ...logic.personal.examples import Labels


class Examples(Labels):
    """The features of examples, by label.

    Args:
        size: numbers of an example's features.

    Attributes:
        labels: in the order in which they were added.
        classes: the index of each example's label.
        data: features, float32 [examples, size].
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.data = bytearray()

    def __len__(self) -> int:
        return len(self.classes)

    def add(self, label: str, rows: Iterable[bytes]) -> None:
        """Adds examples. rows: float32 [size] each. Raises InputError: another size."""
        count = 0
        for row in rows:
            if len(row) != 4 * self.size:
                raise InputError(
                    f"it has {len(row) // 4} features, the others have {self.size}",
                    f"example of '{label}'",
                    "Use the model that the other examples were read with.",
                )
            self.data += row
            count += 1
        self.add_label(label, count)

    def remove(self, label: str) -> None:
        """Removes a label with its examples. Raises InputError: there is no such label."""
        self.data = bytearray(b"".join([self.row(i) for i in self.remove_label(label)]))

    def row(self, index: int) -> bytes:
        """The features of an example, float32 [size]."""
        return bytes(self.data[4 * self.size * index : 4 * self.size * (index + 1)])

    def chosen(self, indices: Sequence[int]) -> Examples:
        """Some of the examples, with all labels."""
        return self.instead([self.row(i) for i in indices], [self.classes[i] for i in indices])

    def instead(self, rows: Sequence[bytes], classes: Sequence[int] | None = None) -> Examples:
        """Other examples with the same labels.

        Args:
            rows: float32 [size] each.
            classes: the index of each one's label. Default: those of the present ones.
        """
        made = Examples(self.size)
        made.labels = list(self.labels)
        made.classes = list(self.classes if classes is None else classes)
        made.data = bytearray(b"".join(rows))
        return made


def floats(data: bytes | bytearray) -> array[float]:
    """float32 numbers of bytes."""
    found = array("f")
    found.frombytes(bytes(data))
    return found


def are_finite(data: bytes | bytearray) -> bool:
    """Whether float32 numbers are."""
    return all(map(math.isfinite, floats(data)))
