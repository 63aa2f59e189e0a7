"""Flower's own Grid, for rounds between sites, with checks of their replies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from .codec import Schema
from .grid import REFUSED
from .verify import too_few

MAX_EXAMPLES = 10**9  # of a site


class SiteGrid(Grid):
    """Passes messages to Flower's nodes; replies that must not count become errors.

    Args:
        grid: of the ServerApp.
        schema: of the parameters.
        clip: maximum norm of a site's change; None: no limit.
        on_round: called after each round with a record for the log.
        least: replies without which a round does not count.
    """

    def __init__(
        self,
        grid: Grid,
        schema: Schema,
        clip: float | None,
        on_round: Callable[[dict[str, Any]], object],
        least: int = 1,
    ) -> None:
        self.grid, self.schema, self.clip, self.on_round = grid, schema, clip, on_round
        self.least = least

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """Flower's description of the run."""
        return self.grid.run

    def create_message(self, *given: Any, **named: Any) -> Message:
        return self.grid.create_message(*given, **named)

    def get_node_ids(self) -> list[int]:
        return list(self.grid.get_node_ids())

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return list(self.grid.push_messages(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return list(self.grid.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        asked, begun = list(messages), time.monotonic()
        replies = list(self.grid.send_and_receive(asked, timeout=timeout))
        if not asked or asked[0].metadata.message_type != "train":
            return replies
        sent = {(m.metadata.message_id, m.metadata.dst_node_id): m for m in asked}
        named = [((r.metadata.reply_to_message_id, r.metadata.src_node_id), r) for r in replies]
        checked = [self._checked(r, sent[key]) for key, r in named if key in sent]
        nodes = {m.metadata.dst_node_id: m for m in asked}
        few = too_few({m.metadata.src_node_id for m in checked if not m.has_error()}, self.least)
        checked = [m for m in checked if m.metadata.src_node_id not in few]
        checked += [Message(Error(REFUSED, str(few[n])), reply_to=nodes[n]) for n in few]
        # the order of a sum decides its last bits
        checked.sort(key=lambda m: m.metadata.src_node_id)
        (config,) = asked[0].content.config_records.values()
        good = {m.metadata.src_node_id for m in checked if not m.has_error()}
        counted = [m for m in replies if m.metadata.src_node_id in good]
        losses = [x for m in counted if (x := _number(m, "loss")) is not None]
        self.on_round(
            {
                "run": config["run"],
                "round": config["server-round"],
                "participants": len(good),
                "tabs": sum(int(_number(m, "participants") or 0) for m in counted),
                "refused": len(asked) - len(good),
                "errors": {
                    m.metadata.src_node_id: m.error.reason for m in checked if m.has_error()
                },
                "loss": sum(losses) / len(losses) if losses else None,
                "seconds": time.monotonic() - begun,
            }
        )
        return checked

    def _checked(self, reply: Message, asked: Message) -> Message:
        if reply.has_error():
            return reply
        try:
            why = self._objection(reply, asked)
        except Exception as e:  # whatever a hostile reply may cause: the round goes on
            why = f"it cannot be read ({type(e).__name__})"
        if why is not None:
            return Message(Error(REFUSED, why), reply_to=asked)
        # Flower gives a round up whose replies have different metrics
        (arrays,) = reply.content.array_records.values()
        metrics = MetricRecord({"num-examples": _metric(reply, "num-examples")})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=asked)

    def _objection(self, reply: Message, asked: Message) -> str | None:
        """Why a reply must not count, or None."""
        examples = _metric(reply, "num-examples")
        if type(examples) is not int or not 0 < examples <= MAX_EXAMPLES:
            return "its number of examples is not a positive integer"
        records = list(reply.content.array_records.values())
        if len(records) != 1 or set(records[0]) != set(self.schema.shapes):
            return "it has other parameters than the model"
        (before,) = asked.content.array_records.values()
        total = 0.0
        for name, array in records[0].items():
            x = array.numpy()
            if x.shape != self.schema.shapes[name] or x.dtype != np.float64:
                return f"'{name}' has another shape or type"
            total += float(np.square(x - before[name].numpy()).sum())
        if not math.isfinite(total):
            return "it contains NaN or infinity"
        if self.clip is not None and math.sqrt(total) > self.clip:
            return f"the norm of its change is {math.sqrt(total):.3g}, at most {self.clip:.3g}"
        return None


def _metric(message: Message, name: str) -> Any:
    found = [r[name] for r in message.content.metric_records.values() if name in r]
    return found[0] if found else None


def _number(message: Message, name: str) -> float | None:
    """A finite number that a site reports, or None."""
    if message.has_error():
        return None
    x = _metric(message, name)
    return float(x) if type(x) in (int, float) and math.isfinite(x) else None


def give_last(grid: Grid, arrays: ArrayRecord, config: dict[str, Any]) -> None:
    """Gives the tabs of all sites the weights after the last round.

    Args:
        grid: of the ServerApp.
        arrays: the weights.
        config: run, seed, round as `server-round`, and `seconds` in which tabs may fetch them.
    """
    content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
    messages = [Message(content, node, "query") for node in grid.get_node_ids()]
    grid.send_and_receive(messages, timeout=2 * float(config["seconds"]))
