"""The hub's part of secure aggregation: one group, from the keys of its members to their sum.

Everything here runs in the hub's thread, but for the sum itself. Members are the hub's nodes; on
the wire they are the places in the roster.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import hmac
import itertools
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import InputError
from ....logic.federated import members
from ....logic.federated.crypto import SEED, SIGNATURE, decoded
from ....logic.federated.members import check_certificate, fields_of, own_key, pair_key
from ....logic.federated.plan import threshold
from ....logic.federated.tasks import SEALED
from ....logic.native import base64url as encoded
from ..protocol import Refusal
from .crypto import digest, is_signed, join, made, public_key
from .plan import Entry, Plan, Roster, centred, mask_of
from .quantize import Lattice

STAGES = ("keys", "shares", "update", "consent", "unmask")
ANSWERS = ("roster", "sealed", "survivors", "consents")
"""What the hub sends when a stage is complete; after the last one there is the sum."""
RENEWED = 3600.0  # seconds; clients renew certificates that expire so soon
ATTEMPTS = 500  # subsets of shares that are tried if some do not fit


class Lied(Refusal):
    """A group has lost its sum to one of its members.

    Attributes:
        members: nodes that may have been it; one alone is certain, unless more than n - t others,
            two at least, work together against it.
    """

    def __init__(self, code: str, what: str, members: list[int]) -> None:
        super().__init__(code, what, "group")
        self.members = members


class Unfit(InputError):
    """The shares of the secret of the member with this place in the roster do not fit."""

    def __init__(self, place: int) -> None:
        super().__init__(f"the shares of member {place}'s secret do not fit", "unmask")
        self.place = place


@dataclass(frozen=True)
class Summed:
    """The result of a group.

    Attributes:
        total: sum of the integers of all survivors.
        members: nodes of the survivors.
        digests: SHA-256 of the masked updates that they sent.
        lost: why the others of the group are not among them, by node.
    """

    total: NDArray[np.int64]
    members: list[int]
    digests: list[str]
    lost: dict[int, Refusal]


@dataclass
class Group:
    """A group of clients.

    Args:
        plan: agreed on by all.
        lattice: of the integers of an update.
        nodes: of its clients.
        seconds: of the training; the next stages have `stage` seconds each.
        stage: seconds of a stage.
        send: sends (node, kind, fields) to a client, if it is connected.
        authority: public key that must have certified all members, or None.
    """

    plan: Plan
    lattice: Lattice
    nodes: list[int]
    seconds: float
    stage: float
    send: Callable[[int, str, Mapping[str, Any]], object]
    authority: bytes | None = None
    outcome: concurrent.futures.Future[Summed] = field(default_factory=concurrent.futures.Future)

    def __post_init__(self) -> None:
        self.at = 0  # index of the stage
        self.replies: list[dict[int, Any]] = [{} for _ in STAGES]
        self.expected = set(self.nodes)
        self.lost: dict[int, Refusal] = {}
        self.answers: list[dict[int, dict[str, Any]]] = []  # by stage and node
        self.roster: Roster | None = None
        self.index: dict[int, int] = {}  # of nodes in the roster
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._final = False  # nobody is awaited any more
        self._fitting: tuple[int, ...] = ()  # members whose shares gave the last secret

    def start(self) -> None:
        """Begins the time of the first stage."""
        self._wait(self.seconds)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._late)

    def _late(self) -> None:
        missing = self.expected - self.replies[self.at].keys()
        for node in missing:
            why = f"nothing came in time in the stage '{STAGES[self.at]}'"
            self.lost.setdefault(node, Refusal("deadline", why))
        self._advance()

    @property
    def done(self) -> bool:
        """Whether there is a sum, or will be none."""
        return self.outcome.done()

    # ---- what clients do ----
    def leave(self, node: int, reason: Refusal) -> None:
        """A client is gone. What it has sent still counts."""
        if self.done or node not in self.nodes:
            return
        self.lost.setdefault(node, reason)
        self.expected.discard(node)
        self._try()

    def receive(self, node: int, kind: str, content: Any) -> None:
        """A message of a client.

        Args:
            content: the message; of an update, its bytes.

        Raises:
            Refusal: it is not what the stage needs, or differs from what the client has said.
        """
        stage = STAGES.index(kind)
        if self.done:
            raise Refusal("stale", "the round has ended", kind)
        known = self.replies[stage].get(node)
        if known is None and (stage != self.at or node not in self.expected):
            code = "stale" if stage < self.at else "order"
            raise Refusal(code, f"the group is in the stage '{STAGES[self.at]}'", kind)
        try:
            read = self._readers[stage](self, node, content)
        except InputError as e:
            raise Refusal("secure", e.what, e.where or kind) from None
        if known is None:
            self.replies[stage][node] = read
            self._try()
        elif known != read:
            raise Refusal("secure", "the client has said something else before", kind)
        else:  # it came back after a lost connection
            self.repeat(node, stage)

    def repeat(self, node: int, stage: int) -> None:
        """Sends the answer of a stage to a client again, if there is one."""
        if stage < len(self.answers) and node in self.answers[stage]:
            self.send(node, ANSWERS[stage], self.answers[stage][node])

    # ---- stages ----
    def _read_keys(self, node: int, fields: Any) -> Entry:
        entry = Entry.of(fields, self.plan.context)
        if self.authority is not None:
            if entry.certificate is None:
                raise InputError("the client has no certificate", "keys")
            made(check_certificate(entry.certificate, self.authority, time.time()))
            # later it would end the group for all
            left = min(RENEWED, self.seconds + (len(STAGES) - 1) * self.stage)
            if entry.certificate.expires <= time.time() + left:
                raise InputError("the certificate expires before the round ends", "keys")
        # one client that is here twice must not end the group for all
        for other, known in self.replies[0].items():
            if other == node:
                continue
            if (what := entry.same(known, self.authority is not None)) is not None:
                raise InputError(f"another member has the same {what}", "keys")
        return entry

    def _read_shares(self, node: int, fields: Any) -> list[bytes]:
        found = fields.get("sealed")
        if not isinstance(found, list) or len(found) != len(self._known.entries):
            raise InputError("it is not a list with a share for each member", "shares")
        own = self.index[node]
        return [b"" if i == own else decoded(s, SEALED, "shares") for i, s in enumerate(found)]

    def _read_update(self, node: int, data: Any) -> bytes:
        return bytes(data)  # its size was checked when it was announced

    def _read_consent(self, node: int, fields: Any) -> bytes:
        signature = decoded(fields.get("signature"), SIGNATURE, "consent")
        if not is_signed(self._entry(node).identity, signature, self._consented):
            raise InputError("it is not the member's signature of the survivors", "consent")
        return signature

    def _read_unmask(self, node: int, fields: Any) -> dict[int, bytes]:
        found = fields.get("shares")
        if not isinstance(found, dict) or len(found) > len(self._known.entries):
            raise InputError("it is not an object of shares", "unmask")
        senders = {str(i): i for i in self._senders}
        if not found.keys() <= senders.keys():
            raise InputError("it has shares of others than the senders", "unmask")
        return {senders[k]: decoded(share, SEED, "unmask") for k, share in found.items()}

    _readers = (_read_keys, _read_shares, _read_update, _read_consent, _read_unmask)

    @property
    def _known(self) -> Roster:
        assert self.roster is not None
        return self.roster

    def _entry(self, node: int) -> members.Entry:
        return self._known.entries[self.index[node]]

    @property
    def _senders(self) -> list[int]:
        return sorted(self.index[n] for n in self.replies[1])

    @property
    def _survivors(self) -> list[int]:
        return sorted(self.index[n] for n in self.replies[2])

    @property
    def _consented(self) -> bytes:
        return self._known.consent(self._senders, self._survivors)

    def update_bytes(self) -> int:
        """Size of a masked update."""
        return self.lattice.size * self.plan.bits(len(self._known.entries)) // 8

    def _try(self) -> None:
        """Goes on if nobody is awaited any more; the secrets may be known earlier."""
        here = self.replies[self.at].keys()
        enough = self.at == len(STAGES) - 1 and len(here) >= self._known.threshold
        if self.expected <= here:
            self._advance()
        elif enough and self._opening is None:
            self._open()

    def _advance(self) -> None:
        if self.done:
            return
        here = self.replies[self.at]
        n = len(self.nodes) if self.roster is None else len(self._known.entries)
        needed = 3 if self.roster is None else threshold(n)
        if len(here) < needed:
            self._fail(f"{len(here)} clients are left in the stage '{STAGES[self.at]}'", needed)
            return
        if self.at == len(STAGES) - 1:
            self._final = True
            if self._opening is None:
                self._open()
            return
        if self.roster is None:
            try:
                self._enrol()
            except InputError as e:
                self._fail(str(e), needed)
                return
        makers = (self._roster_for, self._sealed_for, self._survivors_for, self._consents_for)
        self.answers.append({node: makers[self.at](node) for node in here})
        self.expected = here.keys() - self.lost.keys()
        self.at += 1
        self._wait(self.stage)
        for node in here:
            self.repeat(node, self.at - 1)
        self._try()

    def _enrol(self) -> None:
        entries = self.replies[0]
        self.roster = Roster.of(sorted(entries.values(), key=lambda e: e.identity), self.plan)
        if self.authority is not None:
            self.roster.certified(self.authority)
        place = {e.identity: i for i, e in enumerate(self.roster.entries)}
        self.index = {node: place[e.identity] for node, e in entries.items()}

    def _roster_for(self, node: int) -> dict[str, Any]:
        return {"members": [fields_of(e) for e in self._known.entries]}

    def _sealed_for(self, node: int) -> dict[str, Any]:
        by_index = {self.index[n]: sealed for n, sealed in self.replies[1].items()}
        own = self.index[node]
        return {
            "senders": self._senders,
            "sealed": [encoded(by_index[i][own]) for i in self._senders],
        }

    def _survivors_for(self, node: int) -> dict[str, Any]:
        return {"survivors": self._survivors}

    def _consents_for(self, node: int) -> dict[str, Any]:
        return {"consents": {str(self.index[n]): encoded(s) for n, s in self.replies[3].items()}}

    # ---- the sum ----
    def _open(self) -> None:
        self._opening = asyncio.ensure_future(self._opened())

    async def _opened(self) -> None:
        given = {self.index[n]: dict(s) for n, s in self.replies[4].items()}
        try:
            total = await asyncio.to_thread(self._unmask, given)
        except Unfit as e:
            self._opening = None
            if len(given) < len(self.replies[4]):
                self._open()  # more came meanwhile
            elif self._final:
                self._refuse(self._unfit(e.place, len(given)))
            return
        except Exception as e:  # whatever hostile members may cause: the round ends
            self._fail(f"the sum cannot be computed ({type(e).__name__})", len(given))
            return
        members = sorted(self.replies[2])
        if (norm := math.sqrt(float(np.square(total, dtype=np.float64).sum()))) > self._most(
            len(members)
        ):
            clip = norm * self.lattice.step / len(members)
            self._refuse(
                Lied(
                    "sum",
                    f"the norm of the group's mean is {clip:.3g}, above the clip of"
                    f" {self.plan.clip:.3g}: a member has sent noise, or masks that do not cancel",
                    members,
                )
            )
            return
        lost = {n: self._reason(n) for n in self.nodes if n not in self.replies[2]}
        digests = [hashlib.sha256(data).hexdigest() for data in self.replies[2].values()]
        self._end()
        if not self.outcome.done():
            self.outcome.set_result(Summed(total, members, digests, lost))

    def _unfit(self, place: int, replies: int) -> Lied:
        """Why there is no sum: a member's shares do not fit. If all members have opened theirs and
        all subsets of t were tried, it has sealed wrong ones. Else a single other one may have
        opened a wrong share; in a group of three, in which all are needed, also then.
        """
        node = next(n for n, i in self.index.items() if i == place)
        n, t = len(self._known.entries), self._known.threshold
        known = replies == n > t and math.comb(n, t) <= ATTEMPTS
        return Lied(
            "shares",
            f"the shares of client {node}'s secret do not fit, of {replies} members",
            [node] if known else sorted(self.index),
        )

    def _most(self, members: int) -> float:
        """The largest norm of the sum of so many honest members, in integers.

        Each has at most `lattice.bound`. Noise has the norm of `size` normal numbers. Its square is
        above size + 2 sqrt(32 size) + 64 with a probability below exp(-32), one in 10^13 (Laurent
        and Massart, Annals of Statistics 28, 2000, lemma 1).
        """
        t = threshold(len(self._known.entries))
        sigma = self.plan.noise * self.lattice.bound * math.sqrt(members / t)
        size = self.lattice.size
        noise = sigma * math.sqrt(size + 2 * math.sqrt(32 * size) + 64)
        return (members * self.lattice.bound + noise) * (1 + 1e-9)

    def _reason(self, node: int) -> Refusal:
        return self.lost.get(node, Refusal("deadline", "it did not take part to the end"))

    def _unmask(self, given: Mapping[int, Mapping[int, bytes]]) -> NDArray[np.int64]:
        """The sum of the survivors' integers, from the members' shares."""
        roster, alive = self._known, self._survivors
        bits = self.plan.bits(len(roster.entries))
        updates = {self.index[n]: data for n, data in self.replies[2].items()}
        size = self.lattice.size
        dtype = "<u2" if bits == 16 else "u1"
        total = np.zeros(size, dtype)
        for data in updates.values():
            total += np.frombuffer(data, dtype)
        for i in self._senders:
            shares = {j: held[i] for j, held in given.items() if i in held}
            secret = self._secret(i, shares, i in updates)
            if i in updates:
                total -= mask_of(made(own_key(secret, roster)), size, bits)
                continue
            for j in alive:
                key = made(pair_key(secret, roster.entries[j].mask, roster))
                mask = mask_of(key, size, bits)
                total = total + mask if i < j else total - mask
        return centred(total)

    def _secret(self, i: int, shares: Mapping[int, bytes], own: bool) -> bytes:
        """A member's secret: the seed of its own mask, or its mask key.

        Raises:
            InputError: the shares that have come do not give it.
        """
        entry, t = self._known.entries[i], self._known.threshold
        for some in self._subsets(sorted(shares), t):
            secret = join({j: shares[j] for j in some})
            found = digest("commitment", secret) if own else public_key(secret)
            if hmac.compare_digest(found, entry.commitment if own else entry.mask):
                self._fitting = some
                return secret
        raise Unfit(i)

    def _subsets(self, holders: list[int], t: int) -> Iterator[tuple[int, ...]]:
        """Subsets of t members whose shares are tried: those that fitted before, then others by
        chance. In order, the first ones would all have a liar whose place is the first.
        """
        if set(self._fitting) <= set(holders) and len(self._fitting) == t:
            yield self._fitting
        if len(holders) < t:
            return
        if math.comb(len(holders), t) <= ATTEMPTS:
            yield from itertools.combinations(holders, t)
            return
        random = secrets.SystemRandom()
        for _ in range(ATTEMPTS):
            yield tuple(sorted(random.sample(holders, t)))

    def _fail(self, why: str, needed: int) -> None:
        self._refuse(Refusal("few", f"{why}, {needed} are needed", "group"))

    def _refuse(self, refusal: Refusal) -> None:
        """Ends the group without a sum."""
        self._end()
        if not self.outcome.done():
            self.outcome.set_exception(refusal)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
