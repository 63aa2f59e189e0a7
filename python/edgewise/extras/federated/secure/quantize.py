"""Updates as integers whose sum is exact, and whose norm is bounded.

A sum needs one scale for all clients, and the scale must not depend on anybody's data. So an update
is clipped to the norm C of the round and rotated: its signs are changed by a public stream, then
Hadamard matrices mix numbers that are far from each other. Afterwards every number is about
C / sqrt(n), whatever the update was, and one step fits all (as in Kairouz et al., The Distributed
Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation, ICML 2021). The norm of
the integers never exceeds C / step: noise is measured against it.

Its sizes are in edgewise.logic.federated.lattice; web/src/extras/federated/secure/quantize.ts
computes the same, number by number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....compiler.declare.symbolic import product
from ....logic.federated.lattice import LESS, Grid
from ..codec import Floats, Schema, Values
from .crypto import digest, stream


@dataclass(frozen=True)
class Lattice(Grid):
    """How a round's updates become integers.

    Attributes:
        count, block, columns, levels, step, bound: see edgewise.logic.federated.lattice.Grid.
        context: digest of the round, from which the signs come.
    """

    context: bytes

    @classmethod
    def of(cls, grid: Grid, context: bytes) -> Lattice:
        """The lattice of a round."""
        return cls(**asdict(grid), context=context)

    @property
    def size(self) -> int:
        """Integers of an update."""
        return self.block * self.columns

    def _signs(self) -> NDArray[np.float64]:
        raw = stream(digest("signs", self.context), -(-self.size // 8))
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[: self.size]
        return 1.0 - 2.0 * bits.astype(np.float64)

    def _mix(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiplies the columns with the Hadamard matrix of orthonormal rows."""
        x = x.reshape(self.block, self.columns)
        half = 1
        while half < self.block:
            pairs = x.reshape(-1, 2, half, self.columns)
            x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1)
            half *= 2
        return x.reshape(-1) * (1 / math.sqrt(self.block))

    def rotate(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """[count] -> [size]."""
        return self._mix(np.pad(x, (0, self.size - self.count)) * self._signs())

    def unrotate(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """[size] -> [count], the inverse of `rotate`."""
        return (self._mix(x) * self._signs())[: self.count]

    def round(self, x: NDArray[np.float64]) -> NDArray[np.int16]:
        """Rotated numbers of a norm of at most clip as integers of a norm of at most `bound`."""
        y = x * (1 / self.step)
        for _ in range(8):
            q = np.clip(np.rint(y), -self.levels, self.levels)
            squares = float(q @ q)  # integers: exact
            if squares <= self.bound * self.bound:
                return q.astype(np.int16)
            y = y * (LESS * self.bound / math.sqrt(squares))
        q = np.trunc(x * (LESS / self.step))  # towards 0: no norm grows
        return np.clip(q, -self.levels, self.levels).astype(np.int16)


def norm_in_order(x: NDArray[np.float64]) -> float:
    """The L2 norm, summed from the first number to the last, as TypeScript does it."""
    return math.sqrt(float(np.cumsum(x * x)[-1])) if x.size else 0.0


def _flat(values: Mapping[str, Any], schema: Schema) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(values[n], np.float64).reshape(-1) for n in schema.shapes])


def _named(flat: NDArray[Any], schema: Schema) -> dict[str, Any]:
    out, at = {}, 0
    for name, shape in schema.shapes.items():
        out[name] = flat[at : at + product(shape)].reshape(shape)
        at += product(shape)
    return out


def quantize(
    values: Values, left: Values, schema: Schema, lattice: Lattice
) -> tuple[NDArray[np.int16], dict[str, Floats], float]:
    """An update as integers.

    Args:
        values: the difference of each parameter.
        left: rounding errors of earlier updates; they are added first.
        schema: of the parameters.
        lattice: of the round.

    Returns:
        (the integers [lattice.size]; what they have rounded away; the L2 norm of what they express)
    """
    x = _flat(values, schema)
    if left:  # of an earlier run it may have other parameters
        some = {n: left.get(n, np.zeros(s, np.float32)) for n, s in schema.shapes.items()}
        x = x + _flat(some, schema)
    norm, clip = norm_in_order(x), lattice.step * lattice.bound
    if not math.isfinite(norm):
        from ....errors import InputError

        raise InputError("its change is not finite", "update", "Train with a smaller rate.")
    if norm > clip:
        x = x * (clip / norm)
    q = lattice.round(lattice.rotate(x))
    got = lattice.unrotate(q * lattice.step)
    away = (x - got).astype(np.float32)
    return q, _named(away, schema), norm_in_order(got)


def mean_of(total: NDArray[Any], count: int, schema: Schema, lattice: Lattice) -> dict[str, Any]:
    """The mean update, in float64, of the sum of `count` clients' integers."""
    flat = lattice.unrotate(total.astype(np.float64) * lattice.step) / count
    return _named(flat, schema)
