"""TabGrid for rounds with secure aggregation or differential privacy, or both."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Error, Message

from ...logic.federated.plan import MAX_MEMBERS, MIN_MEMBERS, settings_of
from .codec import norm_of
from .grid import REFUSED, TabGrid
from .protocol import Refusal
from .secure.group import Lied
from .secure.plan import Plan
from .secure.privacy import Privacy
from .secure.quantize import mean_of
from .secure.suspects import Suspects
from .sessions import Task
from .verify import Verified, too_few


@dataclass(frozen=True)
class Secure:
    """Settings of secure aggregation.

    Attributes:
        group: fewest members of a group; a round has as many groups as it has clients for.
        stage: seconds of each stage.
    """

    group: int
    stage: float


@dataclass(frozen=True)
class Part:
    """The sum of some clients.

    Attributes:
        node: to whose message the sum is the reply.
        total: sum of their updates, float64 by name.
        members: nodes whose updates are in it.
        digests: of the files that they sent.
        lost: why the others' are not.
    """

    node: int
    total: dict[str, Any]
    members: list[int]
    digests: list[str]
    lost: dict[int, BaseException]


class PrivateGrid(TabGrid):
    """Gives a strategy one reply for each group, or one for all with the server's noise.

    Args:
        secure: of groups. None: updates come as they are.
        privacy: noise. None: there is none.
        population: clients of which `privacy.rate` are drawn for a round.
        begin: called before a round with noise begins, see RunFolder.spend; returns the number of
            rounds with this one.
        suspects: suspicions against members of groups. None: none.
        other arguments: as TabGrid's.
    """

    def __init__(
        self,
        *args: Any,
        secure: Secure | None,
        privacy: Privacy | None,
        population: int,
        begin: Callable[[], int],
        suspects: Suspects | None = None,
    ) -> None:
        super().__init__(*args)
        self.secure, self.privacy, self.begin = secure, privacy, begin
        self.population = population
        self.suspects = suspects or Suspects()

    @property
    def _central(self) -> Privacy | None:
        """The mechanism, if the noise is ours."""
        return self.privacy if self.privacy is not None and self.privacy.by == "server" else None

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        seconds = self.deadline if timeout is None else min(timeout, self.deadline)
        begun, everybody = time.monotonic(), list(messages)
        if not everybody:
            return []
        told = None
        if self.privacy is not None:
            told = self.privacy.told(self.privacy.spent(self.begin()))
        asked = self._draw(everybody)
        tasks = {
            m.metadata.dst_node_id: dataclasses.replace(
                self._task(m, self._cohort(len(asked)), seconds), privacy=told
            )
            for m in asked
        }
        parts = self._groups(tasks) if self.secure else self._updates(tasks)
        by_node = {m.metadata.dst_node_id: m for m in everybody}
        replies = self._answers(parts, by_node)
        if self.on_round is not None:
            record = self._told(parts, everybody[0], told)
            self.on_round({**record, "seconds": time.monotonic() - begun})
        return replies

    def _draw(self, messages: list[Message]) -> list[Message]:
        """Poisson's sample: each client for itself, by secure random numbers. If there are more
        clients than the population, each has a smaller chance.
        """
        if self._central is None or self._central.rate == 1:
            return messages
        rate = self._central.rate * min(1.0, self.population / len(messages))
        random = secrets.SystemRandom()
        return [m for m in messages if random.random() < rate]

    def _cohort(self, asked: int) -> int:
        """The cohort size that clients are told: the expected one, as the drawn one is private."""
        private = self._central
        return asked if private is None else max(1, round(private.rate * self.population))

    def _updates(self, tasks: dict[int, Task]) -> list[Part]:
        """The sum of updates that come as they are."""
        assert self._central is not None
        outcomes = self.hub.assign_all(tasks)
        concurrent.futures.wait(outcomes.values())
        lost = {n: e for n, o in outcomes.items() if (e := o.exception()) is not None}
        good = {n: o.result() for n, o in outcomes.items() if n not in lost}
        total = self._zeros()
        for update in good.values():
            # float32 and scaling may leave a norm a little above the clip
            norm = norm_of(update.delta)
            factor = min(1.0, self._central.clip / norm) if norm else 1.0
            for name in total:
                total[name] += update.delta[name].astype(np.float64) * factor
        digests = [u.sha256 for u in good.values()]
        return [Part(min(tasks, default=0), total, sorted(good), digests, lost)]

    def _zeros(self) -> dict[str, Any]:
        return {n: np.zeros(s) for n, s in self.broadcast.changing.shapes.items()}

    def _groups(self, tasks: dict[int, Task]) -> list[Part]:
        """The sums of groups, drawn anew in each round."""
        assert self.secure is not None
        tickets = self.hub.tickets(tasks)
        known = {n: tickets.get(n) or str(n) for n in tasks}
        nodes = self.suspects.order(known)
        count = max(1, len(nodes) // self.secure.group, -(-len(nodes) // MAX_MEMBERS))
        asked = []
        for members in (nodes[k::count] for k in range(count)):
            if len(members) >= MIN_MEMBERS:
                task = self._planned(tasks[members[0]], len(members))
                asked.append((members, task, self.hub.assign_group(members, task)))
        concurrent.futures.wait([outcome for _, _, outcome in asked])
        parts = [self._part(*group) for group in asked]
        out = {
            n: Refusal("suspect", why) for n in known if (why := self.suspects.out.get(known[n]))
        }
        self._suspect(asked, parts, known)
        if parts and out:
            parts[0] = dataclasses.replace(parts[0], lost={**parts[0].lost, **out})
        return parts

    def _suspect(self, asked: list[Any], parts: list[Part], known: dict[int, str]) -> None:
        """Learns who may have lied from the groups of a round."""
        succeeded, lost = [], []
        for (_, _, outcome), part in zip(asked, parts, strict=True):
            error = outcome.exception()
            if error is None:
                succeeded.append([known[n] for n in part.members])
            elif isinstance(error, Lied) and len(error.members) == 1:
                self.suspects.name(known[error.members[0]], str(error))
            elif isinstance(error, Lied):
                lost.append([known[n] for n in error.members])
        self.suspects.learn(succeeded, lost)

    def _planned(self, task: Task, size: int) -> Task:
        assert self.secure is not None and task.rules.clip is not None
        noise = 0.0
        if self.privacy is not None and self.privacy.by == "clients":
            noise = self.privacy.noise
        settings = settings_of({"config": task.config, "seed": task.seed, "part": task.part})
        names = (task.run, task.number, task.base.sha256, task.codec)
        plan = Plan.new(*names, size, task.rules.clip, noise, settings)
        return dataclasses.replace(task, secure=plan, stage=self.secure.stage)

    def _part(self, nodes: list[int], task: Task, outcome: Any) -> Part:
        error = outcome.exception()
        if error is not None:
            return Part(min(nodes), self._zeros(), [], [], dict.fromkeys(nodes, error))
        assert task.secure is not None
        schema, done = self.broadcast.changing, outcome.result()
        total = mean_of(done.total, 1, schema, task.secure.lattice(schema))
        return Part(done.members[0], total, done.members, done.digests, done.lost)

    def _answers(self, parts: list[Part], messages: dict[int, Message]) -> list[Message]:
        """The replies for the strategy."""
        private = self._central
        if private is not None:
            total = self._zeros()
            for part in parts:
                for name in total:
                    total[name] += part.total[name]
            mean = private.release(total, self.broadcast.changing, private.rate * self.population)
            return [self._reply(messages[min(messages)], self._mean(mean, 1))]
        good = {p.node: p for p in parts if p.members}
        refused = {n: e for p in parts for n, e in p.lost.items()}
        few = too_few(good.keys(), self.rules.least)
        out = [
            self._reply(
                messages[node],
                self._mean({n: x / len(p.members) for n, x in p.total.items()}, len(p.members)),
            )
            for node, p in sorted(good.items())
            if node not in few
        ]
        errors = {**refused, **few}
        return out + [
            Message(Error(REFUSED, str(errors[n])), reply_to=messages[n]) for n in sorted(errors)
        ]

    def _mean(self, delta: dict[str, Any], examples: int) -> Verified:
        return Verified(delta, examples, norm_of(delta), {}, "")

    def _told(self, parts: list[Part], message: Message, told: Any) -> dict[str, Any]:
        """What the log says about a round. With the server's noise, clients learn no number."""
        counted = {n for p in parts for n in p.members}
        if self._central is None and len([p for p in parts if p.members]) < self.rules.least:
            counted = set()
        errors = {n: str(e) for p in parts for n, e in p.lost.items()}
        digests = sorted(d for p in parts for d in p.digests)
        record = {
            "run": self.broadcast.run,
            "round": self._number(message),
            "participants": len(counted),
            "refused": len(errors),
            "updates": hashlib.sha256("".join(digests).encode()).hexdigest(),
            "loss": None,
        }
        shown = dict(record)
        if self._central is not None:
            shown.update(participants=self._cohort(0), refused=0)
        nodes = [*counted, *errors]
        self.hub.announce(nodes, lambda n: {**shown, "counted": n in counted})
        names = {n: s.name for n in nodes if (s := self.hub.sessions.get(n)) is not None}
        base = None if self._made is None else self._made[2].sha256
        more = {"base": base, "errors": errors, "names": names, "digests": digests}
        groups = [len(p.members) for p in parts] if self.secure else None
        out = len(self.suspects.out)
        return {**record, **more, "groups": groups, "left_out": out, "privacy": told}
