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

import math
import secrets
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InputError
from ..codec import LEVELS, Schema
from ..protocol import NAME
from . import VERSION
from .crypto import SEED, SIGNATURE, digest, is_signed, is_usable
from .identity import Certificate, decoded
from .quantize import Lattice

MAX_MEMBERS = 64
MIN_MEMBERS = 3
SEALED = 80  # bytes: two shares and the tag of AES-GCM
MASKED = "masked"
"""The codec of a masked update: integers modulo 2^8 or 2^16, little-endian, without a header."""
HEX = 32  # digits of a group's name
MIN, MAX = 1e-3, 1e3
"""Limits of the clients' noise, in units of the clip, beyond which nothing can be computed."""
LARGEST_CLIP = 1e30


def threshold(members: int) -> int:
    """Members of a group without which there is no sum: more than two thirds. It is no choice of
    the hub, and two sets of so many members have an honest one in common even if a third lies.
    """
    return 2 * members // 3 + 1


def settings_of(task: Mapping[str, Any]) -> str:
    """The settings of training, as lines of the context. All members must train with the same ones.
    Otherwise a hub could give all but one a learning rate of 0 and read that one's update from the
    sum.

    Args:
        task: {config, seed, part}; an audit, whose texts the hub knows, is for no sum.

    Raises:
        InputError: a setting is no number, or cannot be one of a sum.
    """
    config = task.get("config") or {}
    numbers = all(
        NAME.fullmatch(n) and type(x) in (int, float) and abs(x) <= 1e300 for n, x in config.items()
    )
    if task.get("audit") is not None or not numbers:
        raise InputError("its settings cannot be those of a secure sum", "task")
    lines = [f"config {n} {struct.pack('>d', config[n]).hex()}\n" for n in sorted(config)]
    more = [f"{n} {task[n]}\n" for n in ("seed", "part") if task.get(n) is not None]
    return "".join(lines + more)


@dataclass(frozen=True)
class Plan:
    """A group's task. All members sign its context.

    Attributes:
        run, number, base: of the round.
        codec: int8 or int4.
        group: name of the group, random: 32 hexadecimal digits.
        size: clients that got the task.
        clip: maximum L2 norm of an update.
        noise: standard deviation of the noise in the sum, in units of `clip`, that the members add
            together; 0: none.
        settings: of the training, see settings_of.
    """

    run: str
    number: int
    base: str
    codec: str
    group: str
    size: int
    clip: float
    noise: float = 0.0
    settings: str = ""

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
        given = task.get("secure")
        if not isinstance(given, Mapping) or given.get("version") != VERSION:
            raise InputError("it is of another version of secure aggregation", "task")
        group, size = given.get("group"), given.get("size")
        clip, noise = given.get("clip"), given.get("noise", 0.0)
        if (
            task.get("codec") in LEVELS
            and isinstance(group, str)
            and len(group) == HEX
            and set(group) <= set("0123456789abcdef")
            and isinstance(size, int)
            and MIN_MEMBERS <= size <= MAX_MEMBERS
            and isinstance(clip, (int, float))
            and isinstance(noise, (int, float))
            and 1 / LARGEST_CLIP <= clip <= LARGEST_CLIP
            and (noise == 0 or MIN <= noise <= MAX)
        ):
            names = (task["run"], task["round"], task["base"], task["codec"])
            return cls(*names, group, int(size), float(clip), float(noise), settings_of(task))
        raise InputError("its plan of secure aggregation cannot be used", "task")

    @property
    def context(self) -> bytes:
        """The digest of all fields, which every key and signature of the round depends on."""
        words = (self.run, self.number, self.base, self.codec, self.group, self.size)
        text = "".join(f"{word}\n" for word in words) + self.settings
        return digest("context", struct.pack(">dd", self.clip, self.noise), text.encode())

    def lattice(self, schema: Schema) -> Lattice:
        """How updates become integers."""
        noise = self.noise * math.sqrt(self.size / threshold(self.size))
        return Lattice.of(schema.count, self.codec, self.clip, self.context, self.size, noise)

    def bits(self, members: int) -> int:
        """Bits of the ring in which updates are summed."""
        few = members * LEVELS[self.codec] < 1 << 7
        return 8 if few and not self.noise else 16


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
        names = ("identity", "channel", "mask", "commitment")
        identity, channel, mask, commitment = (
            decoded(fields.get(n), SEED, f"{where}.{n}") for n in names
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
        for name in ("identity", "channel", "mask", "commitment"):
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
    def of(cls, entries: Collection[Entry], plan: Plan) -> Roster:
        """A roster, checked but for certificates.

        Raises:
            InputError: an identity or key is there twice, or there are too few or too many members.
        """
        if not MIN_MEMBERS <= len(entries) <= plan.size:
            raise InputError(
                f"it has {len(entries)} members, {MIN_MEMBERS} to {plan.size} are possible",
                "roster",
            )
        ordered = tuple(sorted(entries, key=lambda e: e.identity))
        for name in ("identity", "channel", "mask", "commitment"):
            if len({getattr(e, name) for e in ordered}) < len(ordered):
                raise InputError(f"two members have the same {name}", "roster")
        keys = b"".join(e.identity + e.channel + e.mask + e.commitment for e in ordered)
        return cls(ordered, digest("roster", plan.context, keys))

    @property
    def threshold(self) -> int:
        """Members without which there is no sum."""
        return threshold(len(self.entries))

    def certified(self, authority: bytes, now: float | None = None) -> None:
        """Raises InputError unless the authority knows all members, each as another user."""
        subjects = set()
        for entry in self.entries:
            if entry.certificate is None:
                raise InputError("a member has no certificate", "roster")
            entry.certificate.check(authority, now)
            subjects.add(entry.certificate.subject)
        if len(subjects) < len(self.entries):
            raise InputError("a user is two of its members", "roster")

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
        n = len(self.entries)
        if not isinstance(found, list) or not all(type(i) is int and 0 <= i < n for i in found):
            raise InputError("it is not a list of members", where)
        if found != sorted(set(found)):
            raise InputError("its members are not in order", where)
        needed = max(least, self.threshold)
        if len(found) < needed:
            raise InputError(f"it has {len(found)} members, {needed} are needed", where)
        return found


def ring(numbers: NDArray[Any], bits: int) -> NDArray[Any]:
    """Integers modulo 2^bits, as they are sent."""
    return numbers.astype(np.int64).astype("<u2" if bits == 16 else "u1")


def centred(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers of a ring as integers around 0."""
    return numbers.view(f"<i{numbers.itemsize}").astype(np.int64)
