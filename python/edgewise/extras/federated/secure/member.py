"""A client's part of secure aggregation: its checks and its answers.

A member never answers two different messages of one stage. `agreed` says which it has answered; it
must be written before an answer is sent. With the same `seed`, numbers and messages all answers are
the same, byte for byte: a client that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InputError
from ....logic.federated.plan import check_signed
from ....logic.federated.tasks import SEALED
from .crypto import (
    SEED,
    SIGNATURE,
    agree,
    derive,
    digest,
    is_signed,
    public_key,
    seal,
    split,
    unseal,
)
from .crypto import stream as stream_of
from .identity import Identity, decoded, encoded
from .noise import discrete_gaussian
from .plan import Entry, Plan, Roster, ring

LATE = "It may lie about who takes part: do not answer it."


class Member:
    """A client in a group.

    Args:
        plan: of the group.
        identity: its key, with its certificate.
        seed: 32 random bytes, of this group alone.
        numbers: its update, of quantize.quantize.
        bound: maximum norm of the numbers: lattice.bound.
        agreed: {stage: digest of the message that was answered}.
        authority: public key of who certifies members. None: members are taken on the hub's word.
        least: fewest members, of the client's terms.
        on_agreed: called before an answer is given, when `agreed` has changed.
    """

    def __init__(
        self,
        plan: Plan,
        identity: Identity,
        seed: bytes,
        numbers: NDArray[np.int16],
        bound: float,
        agreed: dict[str, str] | None = None,
        authority: bytes | None = None,
        least: int = 1,
        on_agreed: Callable[[], object] = lambda: None,
    ) -> None:
        self.plan, self.identity, self.numbers, self.bound = plan, identity, numbers, bound
        self.agreed = {} if agreed is None else agreed
        self.authority, self.least, self.on_agreed = authority, least, on_agreed
        context = plan.context
        self._channel, self._mask, self._own, self._shamir = (
            derive(seed, context, info) for info in (b"channel", b"mask", b"self", b"shares")
        )
        self._noise = derive(seed, context, b"noise")
        channel, mask = public_key(self._channel), public_key(self._mask)
        commitment = digest("commitment", self._own)
        statement = Entry.statement(context, channel, mask, commitment)
        signature = identity.sign(statement)
        self.entry = Entry(
            identity.public, channel, mask, commitment, signature, identity.certificate
        )
        self._roster: Roster | None = None
        self._index = -1
        self._senders: list[int] = []
        self._survivors: list[int] = []
        self._shares: dict[int, bytes] = {}  # of others, for this member

    def _agree(self, stage: str, content: object) -> None:
        """Raises InputError if another message of this stage was answered."""
        text = json.dumps(content, separators=(",", ":"), sort_keys=True)
        found = hashlib.sha256(text.encode()).hexdigest()
        if self.agreed.setdefault(stage, found) != found:
            raise InputError(f"the hub sends another message '{stage}'", "secure", LATE)
        self.on_agreed()

    def _known(self) -> Roster:
        if self._roster is None:
            raise InputError("a message came before the roster", "secure")
        return self._roster

    def keys(self) -> dict[str, Any]:
        """The message `keys`."""
        return self.entry.fields

    def shares(self, roster: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `roster`: sealed shares of this member's secrets, one for each member.

        Raises:
            InputError: the roster must not be used.
        """
        members = roster.get("members")
        if not isinstance(members, list):
            raise InputError("it has no members", "roster")
        context = self.plan.context
        entries = [Entry.of(m, context, f"roster, member {i}") for i, m in enumerate(members)]
        found = Roster.of(entries, self.plan)
        if self.entry not in entries:
            raise InputError("this member is not in it", "roster")
        if len(entries) < self.least:
            raise InputError(
                f"the group has {len(entries)} members, this client takes part from"
                f" {self.least} on",
                "terms",
            )
        if self.authority is not None:
            found.certified(self.authority)
        self._agree("roster", encoded(found.digest))
        self._roster, self._index = found, entries.index(self.entry)
        return {"sealed": self._sealed(found)}

    def _sealed(self, roster: Roster) -> list[str]:
        t, n = roster.threshold, len(roster.entries)
        size = SEED * (t - 1)
        random = stream_of(self._shamir, 2 * size)
        mask = split(self._mask, random[:size], t, n)
        own = split(self._own, random[size:], t, n)
        self._shares[self._index] = mask[self._index] + own[self._index]
        return [
            "" if j == self._index else encoded(seal(self._key(self._index, j), mask[j] + own[j]))
            for j in range(n)
        ]

    def _key(self, sender: int, receiver: int) -> bytes:
        """The key of the sealed shares between this member and another."""
        roster = self._known()
        other = roster.entries[receiver if sender == self._index else sender]
        info = b"share" + bytes([sender, receiver])
        return derive(agree(self._channel, other.channel), roster.digest, info)

    def masked(self, sealed: Mapping[str, Any]) -> bytes:
        """The answer to `sealed`: the file of the masked update.

        Raises:
            InputError: the message must not be used.
        """
        roster = self._known()
        senders = roster.indices(sealed.get("senders"), self.least, "sealed")
        texts = sealed.get("sealed")
        if self._index not in senders or not isinstance(texts, list) or len(texts) != len(senders):
            raise InputError("it is not for this member", "sealed")
        self._agree("sealed", senders)
        self._senders = senders
        for i, text in zip(senders, texts, strict=True):
            if i == self._index:
                continue
            raw = unseal(self._key(i, self._index), decoded(text, SEALED, "sealed"))
            if raw is not None:  # else this member cannot help to open that one's secrets
                self._shares[i] = raw
        return self._sum(roster, senders).tobytes()

    def _sum(self, roster: Roster, senders: Sequence[int]) -> NDArray[Any]:
        """The update with its noise, plus all masks."""
        bits = self.plan.bits(len(roster.entries))
        numbers = self.numbers.astype(np.int64)
        if self.plan.noise:
            share = self.plan.noise * self.bound / roster.threshold**0.5
            numbers = numbers + discrete_gaussian(len(numbers), share, self._noise)
        total = ring(numbers, bits)
        total += mask_of(derive(self._own, roster.digest, b"self"), len(total), bits)
        for j in senders:
            if j != self._index:
                key = pair_key(self._mask, roster.entries[j].mask, roster)
                mask = mask_of(key, len(total), bits)
                total = total + mask if self._index < j else total - mask
        return total

    def consent(self, survivors: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `survivors`: a signature of the list.

        Raises:
            InputError: the list must not be used.
        """
        roster = self._known()
        alive = roster.indices(survivors.get("survivors"), self.least, "survivors")
        if self._index not in alive or not set(alive) <= set(self._senders):
            raise InputError("it cannot be the list of this group's survivors", "survivors")
        self._agree("survivors", alive)
        self._survivors = alive
        return {"signature": encoded(self.identity.sign(roster.consent(self._senders, alive)))}

    def unmask(self, consents: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `consents`: of each sender one share, that of its own mask if its update
        has arrived, else that of its mask key. Never both: there is one list of survivors.

        Raises:
            InputError: too few members have signed the same list.
        """
        roster = self._known()
        given = consents.get("consents")
        if not self._survivors or not isinstance(given, dict):
            raise InputError("it came before the survivors", "consents")
        text = roster.consent(self._senders, self._survivors)
        signed = 0
        for i in self._survivors:
            signature = given.get(str(i))
            if signature is not None:
                raw = decoded(signature, SIGNATURE, "consents")
                if not is_signed(roster.entries[i].identity, raw, text):
                    raise InputError(f"member {i} has signed something else", "consents", LATE)
                signed += 1
        check_signed(signed, len(roster.entries), self.least)
        opened = {}
        for i in self._senders:
            if i in self._shares:
                share = self._shares[i]
                opened[str(i)] = encoded(share[SEED:] if i in self._survivors else share[:SEED])
        return {"shares": opened}


def mask_of(key: bytes, count: int, bits: int) -> NDArray[Any]:
    """A mask of `count` numbers modulo 2^bits."""
    return np.frombuffer(stream_of(key, count * bits // 8), "<u2" if bits == 16 else "u1")


def pair_key(private: bytes, public: bytes, roster: Roster) -> bytes:
    """The key of the mask that two members share."""
    return derive(agree(private, public), roster.digest, b"mask")
