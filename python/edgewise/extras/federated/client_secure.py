"""What a client demands of rounds, and its part in secure aggregation.

web/src/extras/federated/terms.ts and web/src/extras/federated/secure/index.ts are the same for
pages.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ...logic.federated.budget import epsilon_of
from ...logic.federated.tasks import MASKED, clip_of
from .client_state import ClientState, Finished
from .codec import Floats, Schema, Values, norm_of
from .secure.identity import Identity
from .secure.member import Member
from .secure.plan import Plan
from .secure.quantize import quantize


@dataclass(frozen=True)
class ClientTerms:
    """What a client demands; it declines tasks that do not meet it.

    Attributes:
        minimum_cohort: fewest clients of a round; with secure aggregation, fewest members of a
            group whose keys and consents it has seen.
        secure_aggregation: "required": only rounds whose server sees sums. It needs `authority`.
        authority: Ed25519 public key of who certifies members. Without it members are taken on the
            hub's word.
        maximum_epsilon: only rounds with differential privacy that spend at most this.
        noise_by: whom it trusts with the noise: "clients", the members of its group, each of which
            adds a share; or "server", whose word for epsilon it takes.
    """

    minimum_cohort: int = 1
    secure_aggregation: str = "optional"
    authority: bytes | None = None
    maximum_epsilon: float | None = None
    noise_by: str = "clients"

    def __post_init__(self) -> None:
        """Raises InputError if nothing could meet them."""
        if self.secure_aggregation == "required" and self.authority is None:
            raise InputError(
                "secure aggregation is required, but not who certifies its members",
                "authority",
                "Give the authority's public key: a hub could invent members.",
            )
        if self.noise_by not in ("clients", "server"):
            raise InputError(f"{self.noise_by!r} is neither clients nor server", "noise_by")

    def check(self, task: Mapping[str, Any], plan: Plan | None, state: ClientState) -> None:
        """Raises InputError at "terms" unless a task meets them."""
        cohort = task["cohort"] if plan is None else min(task["cohort"], plan.size)
        reason = None
        if cohort < self.minimum_cohort:
            reason = (
                f"the task is for {cohort} clients, this one takes part from"
                f" {self.minimum_cohort} on"
            )
        elif plan is None and task.get("audit") is not None:
            pass  # nothing of the client's data is in its update
        elif plan is None and self.secure_aggregation == "required":
            reason = "the terms require secure aggregation, which the task does not have"
        elif self.maximum_epsilon is not None:
            reason = self._over_budget(self.maximum_epsilon, task, plan, state)
        if reason is not None:
            raise InputError(reason, "terms")

    def _over_budget(
        self, most: float, task: Mapping[str, Any], plan: Plan | None, state: ClientState
    ) -> str | None:
        if self.noise_by == "server":
            claimed = (task.get("privacy") or {}).get("epsilon")
            if not isinstance(claimed, (int, float)) or not 0 <= claimed <= most:
                return f"the task spends epsilon {str(claimed)[:20]}, the terms allow {most:g}"
            return None
        if plan is None or not plan.noise:
            return "the terms require noise of the clients, which the task does not have"
        epsilon = epsilon_of([*{**state.spent, plan.context.hex(): plan.noise}.values()])
        if epsilon <= most:
            return None
        return f"the round would spend epsilon {epsilon:.4g}, the terms allow {most:g}"


def clipped(
    changes: dict[str, Floats], task: Mapping[str, Any], left: Values
) -> tuple[dict[str, Floats], Values]:
    """Changes and what is still to be added to them, whose sum has at most the norm that a task
    with differential privacy names.

    Args:
        changes: of this round.
        task: names the clip, or none.
        left: rounding errors of earlier updates.
    """
    clip = clip_of(task)
    if clip == math.inf:
        return changes, left
    whole = {n: x + left[n] if n in left else x for n, x in changes.items()}
    norm = norm_of(whole)
    if norm <= clip:
        return whole, {}
    return {n: x * np.float32(clip / norm) for n, x in whole.items()}, {}


def plan_of(task: Mapping[str, Any]) -> Plan | None:
    """The plan of a task with secure aggregation; None without. Raises InputError."""
    return None if task.get("secure") is None else Plan.of(task)


def key_of(task: Mapping[str, Any], plan: Plan | None) -> tuple[Any, ...]:
    """What an update is made for. With secure aggregation that is the whole plan: a hub that
    changes codec, clip or noise of a task would get numbers whose noise was measured for others.
    """
    base = task["base"]
    if (audit := task.get("audit")) is not None:  # of other data, which a hub may give twice
        texts = json.dumps(audit, sort_keys=True).encode()
        base = f"{base} audit {hashlib.sha256(texts).hexdigest()}"
    key = (task["run"], task["round"], base)
    return key if plan is None else (*key, plan.context.hex())


def make_update(
    plan: Plan, changes: Values, schema: Schema, state: ClientState
) -> tuple[Finished, dict[str, Floats]]:
    """An update of integers, and what they have rounded away."""
    numbers, left, _ = quantize(changes, state.left, schema, plan.lattice(schema))
    key = (plan.run, plan.number, plan.base, plan.context.hex())
    data = numbers.astype("<i2").tobytes()
    return Finished(key, data, 1, 0, {}, secrets.token_hex(32)), left


class SecureRound:
    """A client's way through the stages of a group.

    Args:
        plan: of the group.
        finished: the update.
        state: of the client; it is written before anything is answered.
        schema: of the parameters.
        identity: of the client.
        terms: of the client.

    Raises:
        InputError: the client has consented to another sum of this round.
    """

    def __init__(
        self,
        plan: Plan,
        finished: Finished,
        state: ClientState,
        schema: Schema,
        identity: Identity,
        terms: ClientTerms,
    ) -> None:
        self.plan, self.state = plan, state
        begun = "survivors" in finished.agreed
        if not begun and plan.number <= state.summed.get(plan.run, -1):
            raise InputError(
                "this client is in another sum of the round, or of a later one", "terms"
            )
        self.member = Member(
            plan,
            identity,
            bytes.fromhex(finished.seed),
            np.frombuffer(finished.data, "<i2"),
            plan.lattice(schema).bound,
            finished.agreed,
            terms.authority,
            terms.minimum_cohort,
            self._agreed,
        )

    def _agreed(self) -> None:
        agreed = self.member.agreed
        if "sealed" in agreed and self.plan.noise:
            self.state.spent[self.plan.context.hex()] = self.plan.noise
        if "survivors" in agreed:
            self.state.summed[self.plan.run] = self.plan.number
        self.state.save()

    def play(
        self,
        end: float,
        send: Callable[[str, Mapping[str, Any]], object],
        receive: Callable[[float], dict[str, Any]],
        upload: Callable[[bytes], object],
        other: Callable[[dict[str, Any]], object],
    ) -> dict[str, Any]:
        """Answers the hub until the group ends.

        Args:
            end: when to give up, by time.monotonic.
            send: sends (kind, fields).
            receive: the next message, within so many seconds.
            upload: sends the masked update.
            other: handles results of earlier rounds.

        Returns:
            The message that ended the stages.

        Raises:
            InputError: the hub breaks the rules. TimeoutError: `end` has passed.
        """
        plan, member = self.plan, self.member
        names = {"run": plan.run, "round": plan.number, "group": plan.group}
        send("keys", {**names, **member.keys()})
        while True:
            message = receive(max(0.1, end - time.monotonic()))
            kind = message["kind"]
            if kind == "result" and message.get("round") != plan.number:
                other(message)
            elif kind in ("result", "refused", "task", "weights", "bye"):
                return message
            elif message.get("group") != plan.group:
                continue
            elif kind == "roster":
                send("shares", {**names, **member.shares(message)})
            elif kind == "sealed":
                upload(member.masked(message))
            elif kind == "survivors":
                send("consent", {**names, **member.consent(message)})
            elif kind == "consents":
                send("unmask", {**names, **member.unmask(message)})


def announcement(task: Mapping[str, Any], finished: Finished, data: bytes) -> dict[str, Any]:
    """The message `update` for a file. A masked one says nothing about the client."""
    return {
        "run": task["run"],
        "round": task["round"],
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
        "codec": task["codec"] if len(finished.key) == 3 else MASKED,
        "examples": finished.examples,
        "steps": finished.steps,
        "metrics": finished.metrics,
    }
