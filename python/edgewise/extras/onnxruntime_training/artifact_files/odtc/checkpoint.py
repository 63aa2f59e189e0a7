"""The contents of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

IDENTIFIER, VERSION = b"ODTC", 2
MAX = (1 << 31) - 1  # bytes of a FlatBuffer

# A Tensor, an array, or (dtype, shape, data): what edgewise.compiler.onnx.sink.as_stored takes.
Storable = Any


@dataclass
class OptimizerGroup:
    """States of an optimizer.

    Attributes:
        step: optimizer steps made.
        initial_learning_rate: float32.
        momentums: {parameter name: {"momentum0": tensor, ...}}. AdamW has momentum0 (first moment)
            and momentum1 (second), SGD an unused momentum0.
    """

    step: int = 0
    initial_learning_rate: float = 1e-3
    momentums: dict[str, dict[str, Storable]] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """A checkpoint. Tensors that were read lie in the file.

    Attributes:
        requires_grad: {name: tensor} of the parameters that are trained.
        frozen: of those that are not, but were named.
        groups: {"group0": OptimizerGroup}; empty before an optimizer ran.
        properties: {name: int, float (float32 in the file) or str}.
        nominal: the parameters have names and types only.
    """

    requires_grad: dict[str, Storable] = field(default_factory=dict)
    frozen: dict[str, Storable] = field(default_factory=dict)
    groups: dict[str, OptimizerGroup] = field(default_factory=dict)
    properties: Mapping[str, int | float | str] = field(default_factory=dict)
    nominal: bool = False

    @property
    def parameters(self) -> dict[str, Storable]:
        """{name: tensor} of all parameters, those that are trained first."""
        return self.requires_grad | self.frozen
