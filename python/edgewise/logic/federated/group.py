"""A client's way through a group of secure aggregation, after client.py has read its task."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError
from ..native import base64url
from .budget import epsilon_of
from .client import Client
from .crypto import digest
from .lattice import Grid
from .layout import part_of, product
from .members import Member, Own
from .plan import GroupPlan, context_of, grid_of_plan, plan_of
from .requests import Finished, Send, TakePart, Told
from .tasks import ENDS, MASKED


@dataclass(frozen=True)
class Identify:
    """Answer: the client's key, with a certificate if there is who gives one: Own."""

    kind: Literal["identify"] = "identify"


@dataclass(frozen=True)
class Spent:
    """Answer: the noise of the groups that got an update, without this one: whatever the server
    names its group, every update counts, but for one that is sent again.

    Attributes:
        context: of this group's plan.
        sha256: of this group's update, if it was made; else "".
    """

    context: bytes
    sha256: str
    kind: Literal["spent"] = "spent"


@dataclass(frozen=True)
class Integers:
    """Make integers of the changes of the last Train. Answer: Finished, with a new seed.

    Attributes:
        key: of the update.
        told: all that the server may know.
        grid: of the integers.
        context: of the group's plan.
        part: of the parameters that change.
    """

    key: str
    told: Told
    grid: Grid
    context: bytes
    part: str | None
    kind: Literal["integers"] = "integers"


def _budget(
    client: Client, plan: GroupPlan, context: bytes, finished: Finished | None
) -> Generator[Any, Any, float | None]:
    """Epsilon after a group. Raises InputError if the terms do not allow so much."""
    if plan.noise == 0:
        return None
    spent: list[float] = yield Spent(context, "" if finished is None else finished.sha256)
    epsilon = epsilon_of([*spent, plan.noise])
    terms = client.options.terms
    most = terms.max_epsilon
    if most is not None and not terms.trusts_server and epsilon > most:
        raise InputError(
            f"the round would spend epsilon {epsilon:.4g}, the terms allow {most:g}", "terms"
        )
    return epsilon


def take_part(client: Client, request: TakePart) -> Generator[Any, Any, None]:
    """Takes part in the sum of a group.

    Args:
        client: of the round.
        request: its task; the terms that need no members were checked.

    Raises:
        InputError: the server breaks the rules, or the terms are not met.
    """
    task = request.task
    plan = plan_of(task)
    context = yield from digest("context", [context_of(plan)])
    least = client.options.terms.minimum_cohort
    if plan.size < least:
        raise InputError(f"the group has {plan.size} members, the terms say {least}", "terms")
    # the whole plan: numbers that were made for another codec, clip or noise must not be sent
    key = f"{plan.run} {plan.number} {plan.base} {base64url(context)}"
    finished = client.state.finished
    if finished is not None and finished.key != key:
        finished = None
    epsilon = yield from _budget(client, plan, context, finished)
    own: Own = yield Identify()
    count = sum(product(shape) for _, shape in part_of(client.options.shapes, task.get("part")))
    grid = grid_of_plan(plan, count)
    if finished is None:
        yield from client.train(task, request.end)
        told = Told(1, 0, {})  # nothing about this client
        made: Finished = yield Integers(key, told, grid, context, task.get("part"))
        yield from client.keep(made)
        finished = made
    member = _member(client, plan, context, own, finished, grid.bound)
    more: dict[str, Any] = {"group": plan.group}
    if epsilon is not None:
        more = {**more, "noise": plan.noise, "epsilon": epsilon}
    yield from _stages(client, request, member, finished, more)


def _member(
    client: Client, plan: GroupPlan, context: bytes, own: Own, finished: Finished, bound: float
) -> Member:
    """The client in its group. Raises InputError if it has consented to another sum."""
    state, terms, secrets = client.state, client.options.terms, finished.secure
    assert secrets is not None
    last: int | None = state.summed.get(plan.run)
    if secrets.agreed.get("survivors") is None and last is not None and plan.number <= last:
        raise InputError("this client is in another sum of the round, or of a later one", "terms")
    least, authority = terms.minimum_cohort, terms.authority
    return Member(plan, context, own, secrets, finished.data, bound, authority, least, state)


def _stages(
    client: Client, request: TakePart, member: Member, finished: Finished, more: Mapping[str, Any]
) -> Generator[Any, Any, None]:
    """Answers the server until the group ends."""
    plan = member.plan
    names: dict[str, Any] = {"run": plan.run, "round": plan.number, "group": plan.group}
    keys = yield from member.keys()
    yield Send("keys", {**names, **keys})
    while True:
        message = yield from client.message(request.last)
        kind = message["kind"]
        if kind in ENDS:
            client.unread([message])
            return
        if kind == "refused":
            client.refuse(message)
        if message.get("group") != plan.group:
            yield from client.other(message)
            if kind == "result" and message.get("round") == plan.number:
                return
        elif kind == "roster":
            shares = yield from member.shares(message)
            yield Send("shares", {**names, **shares})
        elif kind == "sealed":
            data = yield from member.masked(message)
            yield from _upload(client, request, member, finished, data, more)
        elif kind == "survivors":
            consent = yield from member.consent(message)
            yield Send("consent", {**names, **consent})
        elif kind == "consents":
            opened = yield from member.unmask(message)
            yield Send("unmask", {**names, **opened})


def _upload(
    client: Client,
    request: TakePart,
    member: Member,
    finished: Finished,
    data: bytes,
    more: Mapping[str, Any],
) -> Generator[Any, Any, None]:
    """Sends the masked update."""
    finished.sha256 = yield from client.digest([data])
    yield from client.keep(finished)
    roster = member.roster
    members = 0 if roster is None else len(roster.entries)
    task: dict[str, Any] = {**request.task, "codec": MASKED}
    whole: dict[str, Any] = {**more, "members": members}
    yield from client.upload(task, finished, data, request.last, whole, member.context)
