"""Flower's Grid over the hub: a strategy asks clients as if they were Flower's nodes."""

from __future__ import annotations

import concurrent.futures
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ...errors import EdgewiseError
from .audit import Auditor
from .broadcast import Base, Broadcast
from .hub import Hub
from .protocol import Refusal
from .sessions import Task
from .verify import Rules, Verified, far_from_others, too_few

REFUSED = 1001  # code of Flower's Error


class Changed(Array):
    """Weights plus a client's difference, float64.

    Flower's own arrays hold serialized bytes. Within a process nothing needs to be: this one adds
    when a strategy reads it, so that of all clients' weights one array is in memory at a time.
    """

    def __init__(self, before: NDArray[np.float64], change: NDArray[Any]) -> None:
        self.before, self.change = before, change
        self.dtype, self.shape = "float64", before.shape
        self.stype = Array(before.reshape(-1)[:0]).stype

    def numpy(self) -> NDArray[np.float64]:
        """The sum."""
        return np.asarray(np.add(self.before, self.change, dtype=np.float64))

    @property
    def data(self) -> bytes:
        """The sum as Flower's own arrays have it."""
        return Array(self.numpy()).data


class TabGrid(Grid):
    """Sends a strategy's messages to the hub's clients.

    A reply contains weights: those that the strategy sent plus the client's difference, in float64,
    so that the strategy's mean is exact. Replies are ordered by the digest of their updates, which
    makes a round's result independent of the order in which they arrive. Updates whose norm is far
    from the others' of the round, and clients without an update, are replies with an error; so are
    all if fewer than `rules.least` are left.

    Args:
        hub: the server of clients.
        broadcast: makes the files that clients fetch.
        rules: of the updates.
        deadline: seconds of a round; the strategy's timeout may be shorter.
        seed: of the run.
        on_round: called after each round with a record for the log.
        auditor: audits clients; None: nobody does.
    """

    def __init__(
        self,
        hub: Hub,
        broadcast: Broadcast,
        rules: Rules,
        deadline: float,
        seed: int = 0,
        on_round: Callable[[dict[str, Any]], object] | None = None,
        auditor: Auditor | None = None,
    ) -> None:
        self.auditor = auditor
        self._audits: dict[int, Task] = {}  # of the present round, by node
        self._audited: dict[int, float] = {}  # difference to the server's update, by node
        self._tickets: dict[int, str] = {}  # of clients that got a task
        self.hub, self.broadcast, self.rules, self.deadline = hub, broadcast, rules, deadline
        self.seed, self.on_round = seed, on_round
        self._run: Any = None
        self._numbers = itertools.count()
        self._made: tuple[Any, int, Base] | None = None
        self._read: tuple[Any, dict[str, NDArray[np.float64]]] | None = None
        self._asked: dict[str, tuple[Message, concurrent.futures.Future[Verified]]] = {}

    # What strategies do not use, but the class Grid requires.
    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        """Flower's description of the run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        return self.hub.nodes()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return self._push(list(messages), self.deadline)

    def _push(self, messages: list[Message], seconds: float) -> list[str]:
        tasks: dict[int, Task] = {}
        made: dict[int, Task] = {}  # by content: that of a round is one for all
        for message in messages:
            if message.metadata.message_type == "train":
                content = id(message.content)
                if content not in made:
                    made[content] = self._task(message, len(messages), seconds)
                tasks[message.metadata.dst_node_id] = made[content]
        self._audits, self._audited = {}, {}
        if self.auditor is not None and tasks:
            task, self._tickets = next(iter(tasks.values())), self.hub.tickets(tasks)
            known = {node: ticket or str(node) for node, ticket in self._tickets.items()}
            if drawn := self.auditor.drawn(task, known):
                self._audits = dict.fromkeys(drawn, self.auditor.audit(task))
        outcomes = self.hub.assign_all({**tasks, **self._audits})
        ids = []
        for message in messages:
            outcome = outcomes.get(message.metadata.dst_node_id)
            if outcome is None:
                outcome = concurrent.futures.Future()
                outcome.set_exception(Refusal("kind", "clients do not evaluate"))
            ids.append(f"{next(self._numbers)}")
            self._asked[ids[-1]] = message, outcome
        return ids

    def _task(self, message: Message, cohort: int, seconds: float) -> Task:
        config = dict(_only(message.content.config_records))
        number = int(config.pop("server-round"))
        return Task(
            self.broadcast.run,
            number,
            self._base(message, number),
            self.broadcast.codec,
            config,
            seed_of(self.broadcast.run, number, self.seed),
            seconds,
            cohort,
            self.rules,
            part=self.broadcast.part,
        )

    def _number(self, message: Message) -> int:
        """The round of a message."""
        return int(_only(message.content.config_records)["server-round"])

    def _base(self, message: Message, number: int) -> Base:
        """The files of a round, made once for all of its messages."""
        record = _only(message.content.array_records)
        if self._made is None or self._made[0] is not record or self._made[1] != number:
            # also when a round has left the weights as they were, as after --resume
            self._made = record, number, self.broadcast.next(self._sent(message), number)
        return self._made[2]

    def _sent(self, message: Message) -> dict[str, NDArray[np.float64]]:
        """The weights that a message sends, read once for all messages of a round."""
        record = _only(message.content.array_records)
        if self._read is None or self._read[0] is not record:
            weights = {n: array.numpy().astype(np.float64) for n, array in record.items()}
            self._read = record, weights
        return self._read[1]

    def _reply(self, message: Message, update: Verified) -> Message:
        """The reply with the weights that a message sent plus an update."""
        arrays = ArrayRecord()
        for name, before in self._sent(message).items():
            arrays[name] = Changed(before, update.delta[name])
        metrics = MetricRecord({"num-examples": update.examples, "update-norm": update.norm})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        done = [i for i in message_ids if i in self._asked and self._asked[i][1].done()]
        return self._replies([self._asked.pop(i) for i in done])

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        seconds = self.deadline if timeout is None else min(timeout, self.deadline)
        begun = time.monotonic()
        ids = self._push(list(messages), seconds)
        asked = [self._asked.pop(i) for i in ids]
        concurrent.futures.wait([outcome for _, outcome in asked])  # each has its deadline
        replies = self._replies(asked)
        if asked and self.on_round is not None:
            self.on_round({**self._record(asked, replies), "seconds": time.monotonic() - begun})
        return replies

    def _replies(
        self, asked: list[tuple[Message, concurrent.futures.Future[Verified]]]
    ) -> list[Message]:
        """Replies with updates first, ordered by digest."""
        updates: dict[int, Verified] = {}
        refused: dict[int, BaseException] = {}
        for message, outcome in asked:
            node = message.metadata.dst_node_id
            if (error := outcome.exception()) is not None:
                refused[node] = error
            elif node in self._audits:
                refused[node] = self._judged(node, outcome.result())
            else:
                updates[node] = outcome.result()
        refused.update(far_from_others(updates))
        refused.update(too_few(updates.keys() - refused.keys(), self.rules.least))
        by_node = {m.metadata.dst_node_id: m for m, _ in asked}
        good = sorted(updates.keys() - refused.keys(), key=lambda n: (updates[n].sha256, n))
        return [self._reply(by_node[n], updates[n]) for n in good] + [
            Message(Error(REFUSED, str(refused[n])), reply_to=by_node[n]) for n in sorted(refused)
        ]

    def _passed(self, node: int) -> bool:
        """Whether a client was audited in this round and is honest."""
        found = self._audited.get(node)
        if self.auditor is None or found is None:
            return False
        return self.auditor.objection(found) is None

    def _judged(self, node: int, update: Verified) -> Refusal:
        """Why an audited client's update does not count; one that is not honest is shut out."""
        assert self.auditor is not None
        try:
            self._audited[node] = self.auditor.difference(self._audits[node], update)
        except Exception as e:  # the server could not train: nobody is to blame
            why = e if isinstance(e, EdgewiseError) else type(e).__name__
            return Refusal("audit", f"the server has no update to compare with: {why}")
        objection = self.auditor.objection(self._audited[node])
        if objection is None:
            return Refusal("audit", "the client was audited")
        self.hub.shut_out(node, objection, self._tickets[node])
        return objection

    def _record(
        self,
        asked: list[tuple[Message, concurrent.futures.Future[Verified]]],
        replies: list[Message],
    ) -> dict[str, Any]:
        """What the log says about a round; its clients get the message `result`."""
        nodes = {m.metadata.dst_node_id: o for m, o in asked}
        errors = {
            m.metadata.src_node_id: m.error.reason
            for m in replies
            if m.has_error() and not self._passed(m.metadata.src_node_id)
        }
        counted = [m.metadata.src_node_id for m in replies if not m.has_error()]
        digests = sorted(nodes[n].result().sha256 for n in counted)
        updates = hashlib.sha256("".join(digests).encode()).hexdigest()
        losses = [x for n in counted if (x := nodes[n].result().metrics.get("loss", math.nan)) == x]
        record = {
            "run": self.broadcast.run,
            "round": self._number(asked[0][0]),
            "participants": len(counted),
            "refused": len(errors),
            "updates": updates,
            "loss": sum(losses) / len(losses) if losses else None,
        }
        self.hub.announce(nodes, lambda n: {**record, "counted": n in counted})
        names = {n: s.name for n in nodes if (s := self.hub.sessions.get(n)) is not None}
        base = None if self._made is None else self._made[2].sha256
        more = {"base": base, "errors": errors, "names": names, "digests": digests}
        return {**record, **more, **({"audited": self._audited} if self._audits else {})}


def _only(records: Mapping[str, Any]) -> Any:
    """The only record of a kind in a message."""
    (record,) = records.values()
    return record


def seed_of(run: str, number: int, seed: int) -> int:
    """The seed of a round's local training, below 2^31."""
    digest = hashlib.sha256(f"{run}\n{number}\n{seed}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
