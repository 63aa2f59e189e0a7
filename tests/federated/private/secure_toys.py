"""Members of a group without a network: a hub's Group and the clients' Members, call by call."""

import asyncio
import dataclasses
import secrets
from types import SimpleNamespace

import numpy as np
from edgewise.extras.federated.protocol import Refusal
from edgewise.extras.federated.secure.crypto import ANSWERS as CRYPTO
from edgewise.extras.federated.secure.crypto import made
from edgewise.extras.federated.secure.group import ANSWERS, STAGES, Group
from edgewise.extras.federated.secure.plan import Plan, masked
from edgewise.extras.federated.secure.quantize import Lattice
from edgewise.federated.secure.identity import Authority, Identity
from edgewise.host.drive import drive
from edgewise.logic.federated.members import Own, entry_of
from edgewise.logic.federated.plan import GroupPlan
from edgewise.logic.federated.requests import Secrets, State

from tests.logic.forms import module

AUTHORITY = Authority(bytes(range(32)))
SIZE = 40
SECONDS = 5.0


class Member:
    """A member, call by call, in one of the two forms of its logic."""

    def __init__(
        self, plan, identity, seed, numbers, bound, authority=None, least=1, form="python"
    ):
        self.plan, self.identity, self.numbers = plan, identity, numbers
        self.answers = {
            **CRYPTO,
            "sign": lambda r: identity.sign(r.text),
            "store": lambda r: None,
            "sum": self._sum,
        }
        fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(GroupPlan)}
        self.logic = module(form, "federated.members").Member(
            GroupPlan(**fields),
            plan.context,
            Own(identity.public, identity.certificate),
            Secrets(seed, {}),
            b"",
            bound,
            authority,
            least,
            State(None, None, None, {}),
        )
        self.entry = made(entry_of(self.keys(), plan.context, "keys"))

    def _sum(self, request):
        request.data = self.numbers.astype("<i2").tobytes()
        return masked(request)

    def drive(self, steps):
        def answer(request):
            given = request if isinstance(request, dict) else vars(request)
            return self.answers[given["kind"]](SimpleNamespace(**given))

        return drive(steps, answer)

    def keys(self):
        return self.drive(self.logic.keys())

    def shares(self, message):
        return self.drive(self.logic.shares(message))

    def masked(self, message):
        return self.drive(self.logic.masked(message))

    def consent(self, message):
        return self.drive(self.logic.consent(message))

    def unmask(self, message):
        return self.drive(self.logic.unmask(message))


def identity(subject, authority=AUTHORITY):
    private = secrets.token_bytes(32)
    key = Identity(private)
    return Identity(private, authority.certify(key.public, subject))


def plan_of(size, codec="int8", noise=0.0, number=1, run="run"):
    return Plan.new(run, number, "b" * 64, codec, size, 1.0, noise)


def members_of(plan, least=1, authority=AUTHORITY.public, form="python"):
    """Members of a plan, the first of them in a form."""
    rng = np.random.default_rng(plan.size)
    levels = 7 if plan.codec == "int4" else 127
    return [
        Member(
            plan,
            identity(f"user {k}".replace(" ", "-")),
            secrets.token_bytes(32),
            rng.integers(-levels, levels + 1, SIZE).astype(np.int16),
            500.0,
            authority=authority,
            least=least,
            form=form if k == 0 else "python",
        )
        for k in range(plan.size)
    ]


def wide(size, bound=1e6):
    """A lattice whose bound the toys' numbers keep."""
    return Lattice(size, 1, size, 127, 1.0, bound, b"")


class Room:
    """A group and what the hub has sent to each member."""

    def __init__(
        self, plan, members, seconds=SECONDS, authority=AUTHORITY.public, size=SIZE, bound=1e6
    ):
        self.plan, self.members = plan, members
        self.sent = {node: {} for node in range(len(members))}
        self.group = Group(
            plan,
            wide(size, bound),
            list(range(len(members))),
            seconds,
            seconds,
            lambda node, kind, fields: self.sent[node].__setitem__(kind, fields),
            authority,
        )
        self.group.start()

    def answer(self, node, stage):
        """What a member says in a stage."""
        member, sent = self.members[node], self.sent[node]
        if stage == "keys":
            return member.keys()
        work = {
            "shares": member.shares,
            "update": member.masked,
            "consent": member.consent,
            "unmask": member.unmask,
        }[stage]
        return work(sent[ANSWERS[STAGES.index(stage) - 1]])

    def say(self, node, stage):
        self.group.receive(node, stage, self.answer(node, stage))

    async def play(self, gone=None, until=None):
        """All stages. `gone`: {node: the stage before which it vanishes}."""
        gone, away = dict(gone or {}), set()
        for stage in STAGES:
            if stage == until:
                return None
            for node, at in gone.items():
                if at == stage:
                    away.add(node)
                    self.group.leave(node, Refusal("gone", "it has vanished"))
            for node in range(len(self.members)):
                if node not in away and not self.group.done:
                    self.say(node, stage)
        return await asyncio.wrap_future(self.group.outcome)


def total_of(members, nodes):
    return sum(members[n].numbers.astype(np.int64) for n in nodes)
