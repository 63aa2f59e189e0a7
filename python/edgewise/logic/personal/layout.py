"""Adapters of a model as one vector: the A of all layers, then the B of all layers, each in PEFT's
layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import listed, written
from .options import is_count, is_positive

MAX_LAYERS = 1 << 16
MAX_NUMBERS = 1 << 28


@dataclass(frozen=True)
class Layer:
    """A layer with an adapter.

    Attributes:
        name: of the module.
        weight: the initializer that it multiplies with; None where that is quantized, or shared.
        transposed: whether the initializer is stored as [outer, inner].
        x, y: names of its input and output in the file.
        inner, outer: numbers that it takes and gives.
    """

    name: str
    weight: str | None
    transposed: bool
    x: str
    y: str
    inner: int
    outer: int


@dataclass(frozen=True)
class LoraLayout:
    """Where the adapters of layers are in the vector.

    Attributes:
        rank, alpha: as of LoraConfig; the product of A and B is multiplied with alpha / rank.
        layers: in the order of the graph.
    """

    rank: int
    alpha: float
    layers: tuple[Layer, ...]

    @property
    def first(self) -> int:
        """Numbers of all A."""
        return self.rank * sum(layer.inner for layer in self.layers)

    @property
    def numbers(self) -> int:
        """Numbers of all adapters."""
        return self.first + self.rank * sum(layer.outer for layer in self.layers)

    def pairs(self) -> list[tuple[Layer, int, int]]:
        """[(layer, where its A [rank, inner] begins, where its B [outer, rank] begins)]"""
        found: list[tuple[Layer, int, int]] = []
        a = 0
        b = self.first
        for layer in self.layers:
            found.append((layer, a, b))
            a += self.rank * layer.inner
            b += self.rank * layer.outer
        return found

    def to_dict(self) -> dict[str, Any]:
        """For manifests and files."""
        return {
            "rank": self.rank,
            "alpha": self.alpha,
            "numbers": self.numbers,
            "layers": [
                [x.name, x.weight, x.transposed, x.x, x.y, x.inner, x.outer] for x in self.layers
            ],
        }

    def same(self, other: LoraLayout) -> bool:
        """Whether adapters of this layout fit where those of another one are."""
        return self.to_dict() == other.to_dict()


def layout_of(described: object, where: str) -> LoraLayout:
    """The inverse of to_dict. Raises InputError: it is none."""
    found: Mapping[str, Any] = described if isinstance(described, Mapping) else {}
    rank: Any = found.get("rank")
    alpha: Any = found.get("alpha")
    check_lora(rank, alpha)
    rows = listed(found.get("layers"))
    layers: list[Layer] = []
    if rows is not None and len(rows) <= MAX_LAYERS:
        layers = [layer for layer in [_layer(row) for row in rows] if layer is not None]
    if rows is not None and layers and len(layers) == len(rows):
        made = LoraLayout(rank, float(alpha), tuple(layers))
        if made.numbers <= MAX_NUMBERS and found.get("numbers") == made.numbers:
            return made
    raise InputError("its adapters are not described", where, "Save it again.")


def check_lora(rank: Any, alpha: Any) -> None:
    """Raises InputError unless these are a rank and an alpha."""
    if not is_count(rank, 256):
        raise InputError(f"{written(rank)} is not a rank", "lora.rank", "Give 1 to 256.")
    if not is_positive(alpha):
        raise InputError(
            f"{written(alpha)} is not a positive number", "lora.alpha", "Give a positive number."
        )


def _layer(row: object) -> Layer | None:
    """A layer of a description; None: it is none."""
    values = listed(row)
    if values is None or len(values) != 7:
        return None
    name, weight, transposed, x, y, inner, outer = values
    if not isinstance(name, str) or not isinstance(x, str) or not isinstance(y, str):
        return None
    if weight is not None and not isinstance(weight, str):
        return None
    if not isinstance(transposed, bool):
        return None
    if not is_count(inner, 1 << 24) or not is_count(outer, 1 << 24):
        return None
    return Layer(name, weight, transposed, x, y, inner, outer)


def fitting_length(ranges: Sequence[tuple[int, int]], n: int) -> int:
    """The length of an input that plans take for n: n, else the next, else the last.

    Args:
        ranges: the smallest and the largest length of each plan.
        n: the length.
    """
    if any(low <= n <= high for low, high in ranges):
        return n
    larger = [low for low, _ in ranges if low > n]
    return min(larger) if larger else max(high for _, high in ranges)
