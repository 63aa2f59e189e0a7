"""What a client demands of rounds, and its host's part in secure aggregation. The rules are in
edgewise.logic.federated: terms, group and members.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ...logic.federated.group import Integers, Spent
from ...logic.federated.members import Own
from ...logic.federated.requests import Finished, Secrets
from ...logic.federated.terms import LONGEST, Terms
from .client_state import ClientState
from .codec import Floats, Schema, Values, norm_of
from .secure.crypto import ANSWERS, SEED
from .secure.identity import Identity
from .secure.plan import masked
from .secure.quantize import Lattice, quantize


@dataclass(frozen=True)
class ClientTerms:
    """What a client demands; it declines tasks that do not meet it.

    Attributes:
        minimum_cohort: fewest clients of a round; with secure aggregation, fewest members of a
            group whose keys and consents it has seen.
        secure_aggregation: "required": only rounds whose server sees sums. It needs `authority`.
        authority: Ed25519 public key of who certifies members. Without it members are taken on the
            hub's word.
        maximum_epsilon: only rounds with differential privacy that spend at most this.
        noise_by: whom it trusts with the noise: "clients", the members of its group, each of which
            adds a share; or "server", whose word for epsilon it takes.
    """

    minimum_cohort: int = 1
    secure_aggregation: str = "optional"
    authority: bytes | None = None
    maximum_epsilon: float | None = None
    noise_by: str = "clients"

    def __post_init__(self) -> None:
        """Raises InputError if nothing could meet them."""
        if self.secure_aggregation == "required" and self.authority is None:
            raise InputError(
                "secure aggregation is required, but not who certifies its members",
                "authority",
                "Give the authority's public key: a hub could invent members.",
            )
        if self.noise_by not in ("clients", "server"):
            raise InputError(f"{self.noise_by!r} is neither clients nor server", "noise_by")

    @property
    def read(self) -> Terms:
        """The same for edgewise.logic.federated."""
        return Terms(
            self.minimum_cohort,
            self.secure_aggregation == "required",
            self.authority,
            self.maximum_epsilon,
            self.noise_by == "server",
            math.inf,
            LONGEST,
        )


def clipped(
    changes: dict[str, Floats], clip: float, left: Values
) -> tuple[dict[str, Floats], Values]:
    """Changes and what is still to be added to them, whose sum has at most a norm.

    Args:
        changes: of this round.
        clip: the norm; infinity: none.
        left: rounding errors of earlier updates.
    """
    if clip == math.inf:
        return changes, left
    whole = {n: x + left[n] if n in left else x for n, x in changes.items()}
    norm = norm_of(whole)
    if norm <= clip:
        return whole, {}
    return {n: x * np.float32(clip / norm) for n, x in whole.items()}, {}


class Secure:
    """The host of groups.

    Args:
        identity: of the client.
        state: of the client.
        schema: of all parameters.
        changes: the changes of the last training, for the parameters of a schema.
        kept: what it keeps for the next one.
    """

    def __init__(
        self,
        identity: Identity,
        state: ClientState,
        schema: Schema,
        changes: Callable[[Schema], dict[str, Floats]],
        kept: Callable[[], Mapping[str, bytes]],
    ) -> None:
        self.identity, self.state, self.schema = identity, state, schema
        self.changes, self.kept = changes, kept
        self.answers: dict[str, Callable[[Any], Any]] = {
            **ANSWERS,
            "identify": lambda _: Own(identity.public, identity.certificate),
            "sign": lambda request: identity.sign(request.text),
            "spent": self._spent,
            "integers": self._integers,
            "sum": masked,
        }

    def _spent(self, request: Spent) -> list[float]:
        own = request.context.hex()
        return [noise for context, noise in self.state.spent.items() if context != own]

    def _integers(self, request: Integers) -> Finished:
        schema = self.schema.part(request.part)
        lattice = Lattice.of(request.grid, request.context)
        numbers, left, _ = quantize(self.changes(schema), self.state.left, schema, lattice)
        self.state.next(left, self.kept())
        told, own = request.told, Secrets(secrets.token_bytes(SEED), {})
        data = numbers.astype("<i2").tobytes()
        return Finished(request.key, data, "", told.examples, told.steps, told.metrics, own)
