"""Members of a group of secure aggregation, and a client's part in it: its checks and its answers.

A member never answers two different messages of one stage. `agreed` says which it has answered; it
is written before an answer is sent. With the same seed, numbers and messages all answers are the
same, byte for byte: a client that was killed goes on where it was.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import base64url
from .crypto import (
    SEED,
    SIGNATURE,
    Agree,
    Clock,
    Derive,
    IsSigned,
    PublicKey,
    Seal,
    Sign,
    Split,
    Stream,
    Sum,
    Unseal,
    big_endian,
    decoded,
    digest,
    is_usable,
)
from .plan import (
    GroupPlan,
    check_keys,
    check_members,
    check_signed,
    check_subjects,
    indices_of,
    ring_bits,
    threshold,
)
from .requests import Secrets, State, Store
from .tasks import SEALED

LATE = "It may lie about who takes part: do not answer it."
MAX_SUBJECT = 64
LAST_TIME = 9_007_199_254_740_991  # that pages can tell from its neighbours
_SUBJECT = re.compile("[A-Za-z0-9_.:/-]+")


@dataclass(frozen=True)
class Certified:
    """An authority's word for a key.

    Attributes:
        identity: the Ed25519 public key of a member.
        subject: who it is: one name for each user, at most 64 letters, digits and ._:/-.
        expires: seconds since 1970.
        signature: the authority's.
    """

    identity: bytes
    subject: str
    expires: int
    signature: bytes


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
    certificate: Certified | None


@dataclass(frozen=True)
class Roster:
    """The members of a group, by identity; a member's index is its place.

    Attributes:
        entries: of the members.
        digest: of the context and all keys.
    """

    entries: Sequence[Entry]
    digest: bytes


@dataclass(frozen=True)
class Own:
    """A client's key.

    Attributes:
        public: the Ed25519 public key.
        certificate: for it, or None.
    """

    public: bytes
    certificate: Certified | None


# Certificates


def certificate_of(fields: Mapping[str, Any], where: str) -> Certified:
    """Reads the certificate of a message or file.

    Raises:
        InputError: a field is wrong.
    """
    subject: Any = fields.get("subject")
    expires: Any = fields.get("expires")
    if not (isinstance(subject, str) and len(subject) <= MAX_SUBJECT):
        raise InputError(f"it is not a text of at most {MAX_SUBJECT}", f"{where}.subject")
    if _SUBJECT.fullmatch(subject) is None:
        raise InputError("it has other characters than letters, digits, _.:/-", where)
    if not (type(expires) is int and 0 <= expires <= LAST_TIME):
        raise InputError("it is not a time in seconds", f"{where}.expires")
    identity = decoded(fields.get("identity"), SEED, f"{where}.identity")
    signature = decoded(fields.get("signature"), SIGNATURE, f"{where}.signature")
    return Certified(identity, subject, int(expires), signature)


def certificate_statement(
    identity: bytes, subject: str, expires: int
) -> Generator[Any, Any, bytes]:
    """The text that an authority signs."""
    text = yield from digest("certificate", [identity, big_endian(expires), subject.encode()])
    return text


def check_certificate(given: Certified, authority: bytes, now: float) -> Generator[Any, Any, None]:
    """Raises InputError unless the authority has signed a certificate and it is not expired.

    Args:
        given: the certificate.
        authority: Ed25519 public key.
        now: seconds since 1970.
    """
    text = yield from certificate_statement(given.identity, given.subject, given.expires)
    signed: bool = yield IsSigned(authority, given.signature, text)
    if not signed:
        raise InputError("the authority has not signed it", f"certificate of {given.subject}")
    if given.expires <= now:
        raise InputError("it has expired", f"certificate of {given.subject}")


# Rosters


def statement_of(
    context: bytes, channel: bytes, mask: bytes, commitment: bytes
) -> Generator[Any, Any, bytes]:
    """The text that a member signs."""
    text = yield from digest("keys", [context, channel, mask, commitment])
    return text


def entry_of(found: object, context: bytes, where: str) -> Generator[Any, Any, Entry]:
    """Reads and checks an entry.

    Raises:
        InputError: a field is wrong, or the signature.
    """
    if not isinstance(found, dict):
        raise InputError("it is no object", where)
    fields: dict[str, Any] = found
    identity = decoded(fields.get("identity"), SEED, f"{where}.identity")
    channel = decoded(fields.get("channel"), SEED, f"{where}.channel")
    mask = decoded(fields.get("mask"), SEED, f"{where}.mask")
    commitment = decoded(fields.get("commitment"), SEED, f"{where}.commitment")
    signature = decoded(fields.get("signature"), SIGNATURE, f"{where}.signature")
    text = yield from statement_of(context, channel, mask, commitment)
    signed: bool = yield IsSigned(identity, signature, text)
    if not signed:
        raise InputError("its keys are not signed by its identity, for this round", where)
    usable = yield from is_usable(channel)
    if usable:
        usable = yield from is_usable(mask)
    if not usable:
        raise InputError("a key of X25519 is not canonical, or gives no secret", where)
    given: Any = fields.get("certificate")
    certificate: Certified | None = None
    if given is not None:
        if not isinstance(given, dict):
            raise InputError("it is no object", f"{where}.certificate")
        whole: dict[str, Any] = {**given, "identity": fields["identity"]}
        certificate = certificate_of(whole, "certificate")
    return Entry(identity, channel, mask, commitment, signature, certificate)


def fields_of(entry: Entry) -> dict[str, Any]:
    """The entry of a message."""
    out: dict[str, Any] = {
        "identity": base64url(entry.identity),
        "channel": base64url(entry.channel),
        "mask": base64url(entry.mask),
        "commitment": base64url(entry.commitment),
        "signature": base64url(entry.signature),
    }
    own = entry.certificate
    if own is not None:
        signature = base64url(own.signature)
        certificate: dict[str, Any] = {"subject": own.subject, "expires": own.expires}
        certificate["signature"] = signature
        out["certificate"] = certificate
    return out


def keys_of(entry: Entry) -> list[bytes]:
    """Keys of a member, in the order of plan.KEYS."""
    return [entry.identity, entry.channel, entry.mask, entry.commitment]


def roster_of(
    entries: Sequence[Entry], plan: GroupPlan, context: bytes
) -> Generator[Any, Any, Roster]:
    """A roster, checked but for certificates.

    Args:
        entries: in the order of the identities.
        plan: of the group.
        context: of the plan.

    Raises:
        InputError: there are too few or too many, a key is there twice, or the order is another.
    """
    check_members(len(entries), plan)
    check_keys([[key.hex() for key in keys_of(e)] for e in entries])
    keys = [context]
    for entry in entries:
        keys += keys_of(entry)
    found = yield from digest("roster", keys)
    return Roster(entries, found)


def check_certificates(
    entries: Sequence[Entry], authority: bytes, now: float
) -> Generator[Any, Any, None]:
    """Raises InputError unless the authority knows all members, each as another user."""
    for entry in entries:
        if entry.certificate is not None:
            yield from check_certificate(entry.certificate, authority, now)
    known = [e.certificate for e in entries]
    check_subjects([None if c is None else c.subject for c in known])


def consent_of(
    roster: Roster, senders: Sequence[int], survivors: Sequence[int]
) -> Generator[Any, Any, bytes]:
    """The text that members sign before they give shares away: which secrets of which members.

    Args:
        roster: of the group.
        senders: indices of those whose shares were passed on.
        survivors: of those whose updates have arrived.
    """
    lists = bytes([*senders, 255, *survivors])
    text = yield from digest("survivors", [roster.digest, lists])
    return text


def pair_key(secret: bytes, public: bytes, roster: Roster) -> Generator[Any, Any, bytes]:
    """The key of the mask that two members share."""
    common: bytes = yield Agree(secret, public)
    key: bytes = yield Derive(common, roster.digest, b"mask")
    return key


def own_key(seed: bytes, roster: Roster) -> Generator[Any, Any, bytes]:
    """The key of a member's own mask.

    Args:
        seed: of the mask.
        roster: of the group.
    """
    key: bytes = yield Derive(seed, roster.digest, b"self")
    return key


class Member:
    """A client in a group.

    Args:
        plan: of the group.
        context: of the plan.
        own: its key, with its certificate.
        secrets: of this group alone, and the messages that were answered.
        data: its numbers, int16.
        bound: maximum norm of the numbers.
        authority: public key of who certifies members. None: members are taken on the hub's word.
        least: fewest members, of the client's terms.
        state: of the client.
    """

    def __init__(
        self,
        plan: GroupPlan,
        context: bytes,
        own: Own,
        secrets: Secrets,
        data: bytes,
        bound: float,
        authority: bytes | None,
        least: int,
        state: State,
    ) -> None:
        self.plan, self.context, self.own, self.data = plan, context, own, data
        self.seed, self.agreed = secrets.seed, secrets.agreed
        self.bound, self.authority, self.least, self.state = bound, authority, least, state
        self.channel = self.mask = self.self_seed = self.shamir = self.noise = b""
        self.entry: Entry | None = None
        self.roster: Roster | None = None
        self.index = -1
        self.senders: list[int] = []
        self.survivors: list[int] = []
        self.held: dict[int, bytes] = {}  # shares of others, for this member

    def keys(self) -> Generator[Any, Any, dict[str, Any]]:
        """The fields of the message `keys`."""
        self.channel = yield Derive(self.seed, self.context, b"channel")
        self.mask = yield Derive(self.seed, self.context, b"mask")
        self.self_seed = yield Derive(self.seed, self.context, b"self")
        self.shamir = yield Derive(self.seed, self.context, b"shares")
        self.noise = yield Derive(self.seed, self.context, b"noise")
        channel: bytes = yield PublicKey(self.channel)
        mask: bytes = yield PublicKey(self.mask)
        commitment = yield from digest("commitment", [self.self_seed])
        text = yield from statement_of(self.context, channel, mask, commitment)
        signature: bytes = yield Sign(text)
        own = self.own
        entry = Entry(own.public, channel, mask, commitment, signature, own.certificate)
        self.entry = entry
        return fields_of(entry)

    def _agree(self, stage: str, content: str) -> Generator[Any, Any, None]:
        """Raises InputError if another message of this stage was answered."""
        if self.agreed.get(stage) is None:
            self.agreed[stage] = content
        if self.agreed[stage] != content:
            raise InputError(f"the hub sends another message '{stage}'", "secure", LATE)
        if self.agreed.get("survivors") is not None:
            self.state.summed[self.plan.run] = self.plan.number
        yield Store()

    def _known(self) -> Roster:
        if self.roster is None:
            raise InputError("a message came before the roster", "secure")
        return self.roster

    def shares(self, message: Mapping[str, Any]) -> Generator[Any, Any, dict[str, Any]]:
        """The answer to `roster`: sealed shares of this member's secrets, one for each member.

        Raises:
            InputError: the roster must not be used.
        """
        found: Any = message.get("members")
        members: list[Any] = found if isinstance(found, list) else []
        check_members(len(members), self.plan)
        entries: list[Entry] = []
        for i, member in enumerate(members):
            entry = yield from entry_of(member, self.context, f"roster, member {i}")
            entries.append(entry)
        roster = yield from roster_of(entries, self.plan, self.context)
        index = self._place(entries)
        if index < 0:
            raise InputError("this member is not in it", "roster")
        if len(entries) < self.least:
            raise InputError(
                f"the group has {len(entries)} members, this client takes part from"
                f" {self.least} on",
                "terms",
            )
        if self.authority is not None:
            now: float = yield Clock()
            yield from check_certificates(entries, self.authority, now)
        yield from self._agree("roster", base64url(roster.digest))
        self.roster, self.index = roster, index
        sealed = yield from self._sealed(roster)
        return {"sealed": sealed}

    def _place(self, entries: Sequence[Entry]) -> int:
        """The index of this member; -1: it is not there."""
        own = self.entry
        for i, e in enumerate(entries):
            if own is not None and keys_of(e) == keys_of(own):
                return i
        return -1

    def _sealed(self, roster: Roster) -> Generator[Any, Any, list[str]]:
        n = len(roster.entries)
        t = threshold(n)
        size = SEED * (t - 1)
        random: bytes = yield Stream(self.shamir, 2 * size)
        mask: list[bytes] = yield Split(self.mask, random[:size], t, n)
        own: list[bytes] = yield Split(self.self_seed, random[size:], t, n)
        self.held[self.index] = mask[self.index] + own[self.index]
        out: list[str] = []
        for j in range(n):
            text = ""
            if j != self.index:
                key = yield from self._key(self.index, j)
                sealed: bytes = yield Seal(key, mask[j] + own[j])
                text = base64url(sealed)
            out.append(text)
        return out

    def _key(self, sender: int, receiver: int) -> Generator[Any, Any, bytes]:
        """The key of the sealed shares between this member and another."""
        roster = self._known()
        other = roster.entries[receiver if sender == self.index else sender]
        common: bytes = yield Agree(self.channel, other.channel)
        key: bytes = yield Derive(common, roster.digest, b"share" + bytes([sender, receiver]))
        return key

    def masked(self, message: Mapping[str, Any]) -> Generator[Any, Any, bytes]:
        """The answer to `sealed`: the file of the masked update.

        Raises:
            InputError: the message must not be used.
        """
        roster = self._known()
        senders = indices_of(message.get("senders"), len(roster.entries), self.least, "sealed")
        found: Any = message.get("sealed")
        texts: list[Any] = found if isinstance(found, list) else []
        if self.index not in senders or len(texts) != len(senders):
            raise InputError("it is not for this member", "sealed")
        yield from self._agree("sealed", ",".join([str(i) for i in senders]))
        self.senders = senders
        for i, text in zip(senders, texts):
            if i == self.index:
                continue
            key = yield from self._key(i, self.index)
            raw: bytes | None = yield Unseal(key, decoded(text, SEALED, "sealed"))
            if raw is not None:  # else this member cannot help to open that one's secrets
                self.held[i] = raw
        total = yield from self._sum(roster)
        return total

    def _sum(self, roster: Roster) -> Generator[Any, Any, bytes]:
        """The update with its noise, plus all masks."""
        members = len(roster.entries)
        sigma = self.plan.noise * self.bound / math.sqrt(threshold(members))
        key = yield from own_key(self.self_seed, roster)
        masks: list[tuple[bytes, int]] = [(key, 1)]
        for j in self.senders:
            if j != self.index:
                key = yield from pair_key(self.mask, roster.entries[j].mask, roster)
                masks.append((key, 1 if self.index < j else -1))
        bits = ring_bits(self.plan, members)
        total: bytes = yield Sum(self.data, bits, sigma, self.noise, masks)
        return total

    def consent(self, message: Mapping[str, Any]) -> Generator[Any, Any, dict[str, Any]]:
        """The answer to `survivors`: a signature of the list.

        Raises:
            InputError: the list must not be used.
        """
        roster = self._known()
        found = message.get("survivors")
        alive = indices_of(found, len(roster.entries), self.least, "survivors")
        if self.index not in alive or not all(i in self.senders for i in alive):
            raise InputError("it cannot be the list of this group's survivors", "survivors")
        yield from self._agree("survivors", ",".join([str(i) for i in alive]))
        self.survivors = alive
        text = yield from consent_of(roster, self.senders, alive)
        signature: bytes = yield Sign(text)
        return {"signature": base64url(signature)}

    def unmask(self, message: Mapping[str, Any]) -> Generator[Any, Any, dict[str, Any]]:
        """The answer to `consents`: of each sender one share, that of its own mask if its update
        has arrived, else that of its mask key. Never both: there is one list of survivors.

        Raises:
            InputError: too few members have signed the same list.
        """
        roster = self._known()
        found: Any = message.get("consents")
        if len(self.survivors) == 0 or not isinstance(found, dict):
            raise InputError("it came before the survivors", "consents")
        given: dict[str, Any] = found
        text = yield from consent_of(roster, self.senders, self.survivors)
        count = 0
        for i in self.survivors:
            signature: Any = given.get(str(i))
            if signature is not None:
                raw = decoded(signature, SIGNATURE, "consents")
                signed: bool = yield IsSigned(roster.entries[i].identity, raw, text)
                if not signed:
                    raise InputError(f"member {i} has signed something else", "consents", LATE)
                count += 1
        check_signed(count, len(roster.entries), self.least)
        opened: dict[str, Any] = {}
        for i in self.senders:
            share = self.held.get(i)
            if share is not None:
                half = share[SEED:] if i in self.survivors else share[:SEED]
                opened[str(i)] = base64url(half)
        return {"shares": opened}
