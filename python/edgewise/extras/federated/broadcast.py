"""The weights from which the clients of a round train, as files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from .codec import Floats, Schema, Values, base_of, pack


@dataclass(frozen=True)
class File:
    """A file that clients fetch.

    Attributes:
        kind: "weights", or "delta" to what a client has.
        since: identity of the weights to which a delta is added.
        codec: see edgewise.extras.federated.codec.
        data: the file.
        sha256: of the file.
        part: of the parameters whose difference it holds, see codec.Schema.part.
    """

    kind: str
    since: str | None
    codec: str
    data: bytes
    sha256: str
    part: str | None = None

    @classmethod
    def of(
        cls, kind: str, since: str | None, codec: str, data: bytes, part: str | None = None
    ) -> File:
        """A file with its digest."""
        return cls(kind, since, codec, data, hashlib.sha256(data).hexdigest(), part)

    @property
    def announcement(self) -> dict[str, Any]:
        """What messages say about it."""
        return {
            "kind": self.kind,
            "from": self.since,
            "codec": self.codec,
            "bytes": len(self.data),
            "sha256": self.sha256,
            "part": self.part,
        }


@dataclass(frozen=True)
class Base:
    """Weights of a round.

    Attributes:
        values: float32 by name.
        sha256: their identity.
        whole: the file of all weights.
        delta: the file for clients that have the weights of the round before, or None.
    """

    values: dict[str, Floats]
    sha256: str
    whole: File
    delta: File | None

    def file_for(self, have: str | None) -> File | None:
        """The smallest file that leads a client from what it has to these weights; None if it has
        them.
        """
        if have == self.sha256:
            return None
        if self.delta is not None and have == self.delta.since:
            return self.delta
        return self.whole


class Broadcast:
    """Makes the weights of each round.

    With a lossy codec clients train from the weights before plus the decoded difference, so that
    clients that fetched a difference have exactly those of clients that fetched everything. What
    the codec rounds away is part of the next difference.

    Args:
        schema: of the parameters.
        codec: of the differences that clients fetch.
        run: name of the run.
        part: of the parameters that changes, see codec.Schema.part.
        frozen: the parameters that do not change, by name.
    """

    def __init__(
        self,
        schema: Schema,
        codec: str,
        run: str,
        part: str | None = None,
        frozen: Values | None = None,
    ) -> None:
        self.schema, self.codec, self.run = schema, codec, run
        self.part, self.changing = part, schema.part(part)
        self.frozen: Values = {} if frozen is None else frozen
        self.base: Base | None = None

    def restore(self, values: Values, number: int) -> None:
        """Goes on from the weights of round `number`, which clients may have."""
        own = {n: np.asarray(values[n], np.float32) for n in self.schema.shapes}
        self.base = self._whole(own, number, None)

    def _whole(self, values: dict[str, Floats], number: int, delta: File | None) -> Base:
        sha256 = base_of(values, self.schema)
        fields = {"run": self.run, "round": str(number), "base": sha256}
        data, _, _ = pack(values, self.schema, "float32", fields, kind="weights")
        return Base(values, sha256, File.of("weights", None, "float32", data), delta)

    def next(self, weights: Values, number: int) -> Base:
        """The weights of round `number`, of which `weights` has those that change; the same object
        if they have not changed.
        """
        fields = {"run": self.run, "round": str(number)}
        weights = {**self.frozen, **weights}
        values = {n: np.asarray(weights[n], np.float32) for n in self.schema.shapes}
        before, delta = self.base, None
        if before is not None and self.codec != "float32":
            try:
                data, decoded, _ = pack(
                    {n: values[n] - before.values[n] for n in self.changing.shapes},
                    self.changing,
                    self.codec,
                    {**fields, "base": before.sha256},
                )
            except InputError:  # a change that float16 cannot express: send everything
                pass
            else:
                values.update({n: before.values[n] + x for n, x in decoded.items()})
                delta = File.of("delta", before.sha256, self.codec, data, self.part)
        made = self._whole(values, number, delta)
        if before is None or made.sha256 != before.sha256:
            self.base = made
        assert self.base is not None
        return self.base
