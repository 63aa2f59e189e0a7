"""What all members of a group must agree on, and the messages of secure aggregation.

A group goes through five stages after training. In each, the members send a message, and the hub
answers with what it has collected:

    keys         -> roster      who takes part, with whose keys
    shares       -> sealed      sealed shares of every member's secrets, for the others
    update       -> survivors   the masked updates have arrived of these
    consent      -> consents    so many members have signed the same survivors
    unmask       -> result      shares of the secrets that the sum needs
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....logic.federated import members
from ....logic.federated.crypto import Sum
from ....logic.federated.plan import (
    KEYS,
    GroupPlan,
    context_of,
    grid_of_plan,
    plan_of,
    ring_bits,
    threshold,
)
from ..codec import Schema
from .crypto import digest, made, stream
from .noise import discrete_gaussian
from .quantize import Lattice

HEX = 32  # digits of a group's name


@dataclass(frozen=True)
class Plan(GroupPlan):
    """A group's task, see edgewise.logic.federated.plan. All members sign its context."""

    @classmethod
    def new(
        cls,
        run: str,
        number: int,
        base: str,
        codec: str,
        size: int,
        clip: float,
        noise: float,
        settings: str = "",
    ) -> Plan:
        """A plan with a new name."""
        group = secrets.token_hex(HEX // 2)
        return cls(run, number, base, codec, group, size, clip, noise, settings)

    @classmethod
    def of(cls, task: Mapping[str, Any]) -> Plan:
        """The plan of a message `task` from a hub.

        Raises:
            InputError: it cannot be one.
        """
        return cls(*astuple(plan_of(task)))

    @property
    def context(self) -> bytes:
        """The digest of all fields, which every key and signature of the round depends on."""
        return digest("context", context_of(self))

    def lattice(self, schema: Schema) -> Lattice:
        """How updates become integers."""
        return Lattice.of(grid_of_plan(self, schema.count), self.context)

    def bits(self, members: int) -> int:
        """Bits of the ring in which updates are summed."""
        return ring_bits(self, members)


@dataclass(frozen=True)
class Entry(members.Entry):
    """A member, as it introduces itself; see edgewise.logic.federated.members.Entry."""

    @classmethod
    def of(cls, fields: object, context: bytes, where: str = "keys") -> Entry:
        """Reads and checks an entry.

        Raises:
            InputError: a field is wrong, or the signature.
        """
        found = made(members.entry_of(fields, context, where))
        return cls(*(getattr(found, field.name) for field in dataclasses.fields(found)))

    def same(self, other: Entry, certified: bool) -> str | None:
        """What two members must not have in common, but have: a key or, if their certificates were
        checked, the user.
        """
        for name in KEYS:
            if getattr(self, name) == getattr(other, name):
                return name
        mine, its = self.certificate, other.certificate
        if certified and mine and its and mine.subject == its.subject:
            return "user"
        return None


@dataclass(frozen=True)
class Roster(members.Roster):
    """The members of a group, by identity; see edgewise.logic.federated.members.Roster."""

    @classmethod
    def of(cls, entries: Sequence[Entry], plan: Plan) -> Roster:
        """A roster, checked but for certificates.

        Args:
            entries: in the order of the identities.
            plan: of the group.

        Raises:
            InputError: an identity or key is there twice, there are too few or too many members, or
                they are in another order.
        """
        found = made(members.roster_of(entries, plan, plan.context))
        return cls(tuple(entries), found.digest)

    @property
    def threshold(self) -> int:
        """Members without which there is no sum."""
        return threshold(len(self.entries))

    def certified(self, authority: bytes) -> None:
        """Raises InputError unless the authority knows all members, each as another user."""
        made(members.check_certificates(self.entries, authority, time.time()))

    def consent(self, senders: Collection[int], survivors: Collection[int]) -> bytes:
        """The text that members sign before they give shares away: which secrets of which members.

        Args:
            senders: indices of those whose shares were passed on.
            survivors: of those whose updates have arrived.
        """
        return made(members.consent_of(self, sorted(senders), sorted(survivors)))


def ring(numbers: NDArray[Any], bits: int) -> NDArray[Any]:
    """Integers modulo 2^bits, as they are sent."""
    return numbers.astype(np.int64).astype("<u2" if bits == 16 else "u1")


def centred(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers of a ring as integers around 0."""
    return numbers.view(f"<i{numbers.itemsize}").astype(np.int64)


def mask_of(key: bytes, count: int, bits: int) -> NDArray[Any]:
    """A mask of `count` numbers modulo 2^bits."""
    return np.frombuffer(stream(key, count * bits // 8), "<u2" if bits == 16 else "u1")


def masked(request: Sum) -> bytes:
    """The numbers of an update with its noise and all masks, as they are sent."""
    numbers = np.frombuffer(request.data, "<i2").astype(np.int64)
    if request.sigma:
        numbers = numbers + discrete_gaussian(len(numbers), request.sigma, request.noise)
    total = ring(numbers, request.bits)
    for key, sign in request.masks:
        mask = mask_of(key, len(total), request.bits)
        total = total + mask if sign > 0 else total - mask
    return total.tobytes()
