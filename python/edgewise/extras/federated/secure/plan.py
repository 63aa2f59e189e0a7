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

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InputError
from ....logic.federated.plan import (
    KEYS,
    GroupPlan,
    check_keys,
    check_members,
    check_subjects,
    context_of,
    grid_of_plan,
    indices_of,
    plan_of,
    ring_bits,
    threshold,
)
from ..codec import Schema
from .crypto import SEED, SIGNATURE, digest, is_signed, is_usable
from .identity import Certificate, decoded
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
class Entry:
    """A member, as it introduces itself.

    Attributes:
        identity: its Ed25519 public key.
        channel, mask: X25519 public keys of this round.
        commitment: digest of the seed of its own mask.
        signature: of `statement`, by identity.
        certificate: for identity, or None.
    """

    identity: bytes
    channel: bytes
    mask: bytes
    commitment: bytes
    signature: bytes
    certificate: Certificate | None

    @staticmethod
    def statement(context: bytes, channel: bytes, mask: bytes, commitment: bytes) -> bytes:
        """What a member signs."""
        return digest("keys", context, channel, mask, commitment)

    @classmethod
    def of(cls, fields: Mapping[str, Any], context: bytes, where: str = "keys") -> Entry:
        """Reads and checks an entry.

        Raises:
            InputError: a field is wrong, or the signature.
        """
        if not isinstance(fields, Mapping):
            raise InputError("it is no object", where)
        identity, channel, mask, commitment = (
            decoded(fields.get(n), SEED, f"{where}.{n}") for n in KEYS
        )
        signature = decoded(fields.get("signature"), SIGNATURE, f"{where}.signature")
        if not is_signed(identity, signature, cls.statement(context, channel, mask, commitment)):
            raise InputError("its keys are not signed by its identity, for this round", where)
        if not (is_usable(channel) and is_usable(mask)):
            raise InputError("a key of X25519 is not canonical, or gives no secret", where)
        certificate = fields.get("certificate")
        if certificate is not None:
            if not isinstance(certificate, Mapping):
                raise InputError("it is no object", f"{where}.certificate")
            certificate = Certificate.of({**certificate, "identity": fields["identity"]})
        return cls(identity, channel, mask, commitment, signature, certificate)

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

    @property
    def fields(self) -> dict[str, Any]:
        """The entry of a message."""
        from .identity import encoded

        out: dict[str, Any] = {
            "identity": encoded(self.identity),
            "channel": encoded(self.channel),
            "mask": encoded(self.mask),
            "commitment": encoded(self.commitment),
            "signature": encoded(self.signature),
        }
        if self.certificate is not None:
            own = self.certificate.fields
            out["certificate"] = {n: own[n] for n in ("subject", "expires", "signature")}
        return out


@dataclass(frozen=True)
class Roster:
    """The members of a group, by identity; a member's index is its place.

    Attributes:
        entries: of the members.
        digest: of the context and all keys.
    """

    entries: tuple[Entry, ...]
    digest: bytes

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
        check_members(len(entries), plan)
        keys = [[getattr(e, name) for name in KEYS] for e in entries]
        check_keys([[key.hex() for key in own] for own in keys])
        return cls(
            tuple(entries), digest("roster", plan.context, *(k for own in keys for k in own))
        )

    @property
    def threshold(self) -> int:
        """Members without which there is no sum."""
        return threshold(len(self.entries))

    def certified(self, authority: bytes, now: float | None = None) -> None:
        """Raises InputError unless the authority knows all members, each as another user."""
        for entry in self.entries:
            if entry.certificate is not None:
                entry.certificate.check(authority, now)
        known = [e.certificate for e in self.entries]
        check_subjects([None if c is None else c.subject for c in known])

    def consent(self, senders: Collection[int], survivors: Collection[int]) -> bytes:
        """The text that members sign before they give shares away: which secrets of which members.

        Args:
            senders: indices of those whose shares were passed on.
            survivors: of those whose updates have arrived.
        """
        lists = bytes(sorted(senders)) + b"\xff" + bytes(sorted(survivors))
        return digest("survivors", self.digest, lists)

    def indices(self, found: object, least: int, where: str) -> list[int]:
        """Checks a list of members: ascending indices, as many as the threshold and `least`.

        Raises:
            InputError: it is another list.
        """
        return indices_of(found, len(self.entries), least, where)


def ring(numbers: NDArray[Any], bits: int) -> NDArray[Any]:
    """Integers modulo 2^bits, as they are sent."""
    return numbers.astype(np.int64).astype("<u2" if bits == 16 else "u1")


def centred(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers of a ring as integers around 0."""
    return numbers.view(f"<i{numbers.itemsize}").astype(np.int64)
