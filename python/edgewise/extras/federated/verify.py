"""What is checked before an update counts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...logic.federated.layout import CODECS
from .codec import Floats, Schema, norm_of, unpack
from .protocol import Refusal

FAR = 8.0
"""Updates whose norm is above `FAR` times the clip, or the round's median, are refused."""


@dataclass(frozen=True)
class Rules:
    """Limits of a round's updates.

    Attributes:
        clip: maximum L2 norm; longer updates are scaled to it, those of more than 8 times it are
            refused. None: no limit but the comparison with the other updates of the round.
        examples: maximum weight of an update.
        uniform: all updates have the weight 1.
        least: updates without which a round does not count.
    """

    clip: float | None = None
    examples: int = 10_000
    uniform: bool = False
    least: int = 1


@dataclass(frozen=True)
class Verified:
    """An update that counts.

    Attributes:
        delta: float32 by name.
        examples: its weight.
        norm: L2 norm before clipping.
        metrics: numbers that the client reported.
        sha256: of the file.
    """

    delta: dict[str, Floats]
    examples: int
    norm: float
    metrics: dict[str, float]
    sha256: str


def check_announcement(update: Mapping[str, Any], task: Mapping[str, Any], schema: Schema) -> None:
    """Checks an announced update before its first byte is read.

    Args:
        update: a checked message `update`.
        task: {run, round, codec} of the client's task.
        schema: of the model.

    Raises:
        Refusal: it is of another run or round, of another codec, empty, or too large.
    """
    if update["run"] != task["run"] or update["round"] != task["round"]:
        raise Refusal(
            "stale",
            f"it is of run {update['run']}, round {update['round']}; the task is of run"
            f" {task['run']}, round {task['round']}",
            "update",
        )
    if update["codec"] not in CODECS or update["codec"] != task["codec"]:
        raise Refusal(
            "codec", f"its codec is {update['codec'][:20]}, not {task['codec']}", "update"
        )
    most = schema.most_bytes(task["codec"])
    if not 8 < update["bytes"] <= most:
        raise Refusal("size", f"it has {update['bytes']} bytes, at most {most} are read", "update")
    if update["examples"] < 1:
        raise Refusal("examples", f"it was trained on {update['examples']} examples", "update")


def verify(
    data: bytes, update: Mapping[str, Any], task: Mapping[str, Any], schema: Schema, rules: Rules
) -> Verified:
    """Checks a whole update.

    Args:
        data: the file.
        update: the message that announced it, checked by check_announcement.
        task: {run, round, codec, base}.
        schema: of the model.
        rules: of the round.

    Raises:
        Refusal: it must not count.
    """
    digest = hashlib.sha256(data).hexdigest()
    if len(data) != update["bytes"] or digest != update["sha256"]:
        raise Refusal("hash", "its bytes do not match the announced SHA-256", "update")
    expected = {"run": task["run"], "round": str(task["round"]), "base": task["base"]}
    delta = unpack(data, schema, task["codec"], expected)
    norm = norm_of(delta)
    if not np.isfinite(norm):
        raise Refusal("update-norm", "its norm is not finite", "update")
    if rules.clip is not None and norm > rules.clip:
        if norm > FAR * rules.clip:
            raise Refusal(
                "update-norm",
                f"its norm is {norm:.3g}, at most {FAR * rules.clip:.3g} is taken",
                "update",
            )
        factor = np.float32(rules.clip / norm)
        delta = {name: x * factor for name, x in delta.items()}
    examples = 1 if rules.uniform else min(update["examples"], rules.examples)
    return Verified(delta, examples, norm, update["metrics"] or {}, digest)


def too_few(good: Collection[int], least: int) -> dict[int, Refusal]:
    """All updates of a round, if there are fewer than the strategy needs.

    Returns:
        {client: why its update must not count}
    """
    if len(good) >= least:
        return {}
    why = f"the round has {len(good)} updates that could count, the strategy needs {least}"
    return {node: Refusal("few", why, "round") for node in good}


def far_from_others(updates: Mapping[int, Verified]) -> dict[int, Refusal]:
    """Updates of a round whose norm is more than 8 times the median of all.

    With fewer than three updates nothing can be said.

    Returns:
        {client: why its update must not count}
    """
    if len(updates) < 3:
        return {}
    median = float(np.median([u.norm for u in updates.values()]))
    return {
        node: Refusal(
            "update-norm",
            f"its norm is {u.norm:.3g}, the median of the round is {median:.3g}",
            "update",
        )
        for node, u in updates.items()
        if u.norm > FAR * median > 0
    }
