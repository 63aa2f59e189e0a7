"""What the hub knows about a client: its session, its task and its upload."""

from __future__ import annotations

import asyncio
import concurrent.futures
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...logic.federated.tasks import CHUNK
from .admission import Messages
from .broadcast import Base, File
from .protocol import Refusal
from .secure import VERSION
from .verify import Rules, Verified

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    from .secure.group import Group
    from .secure.plan import Plan

REMEMBERED = 4  # finished rounds for which a repeated update is answered


@dataclass(frozen=True)
class Task:
    """What a client shall do in a round.

    Attributes:
        run, number: the run and its round.
        base: the weights to train from.
        codec: of the update.
        config: settings of the local training: numbers and texts by name.
        seed: of the local training; the same for all clients of the round.
        seconds: until the deadline, from `assign` on.
        cohort: clients that got this task.
        rules: of the updates.
        privacy: information for clients about differential privacy, or None.
        secure: the plan of the client's group, or None: updates are sent as they are.
        stage: seconds of each stage of secure aggregation.
        part: of the parameters that is trained, see codec.Schema.part.
        audit: {texts, batch, sequence}: train on these in place of the client's data.
    """

    run: str
    number: int
    base: Base
    codec: str
    config: Mapping[str, Any]
    seed: int
    seconds: float
    cohort: int
    rules: Rules = Rules()
    privacy: Mapping[str, Any] | None = None
    secure: Plan | None = None
    stage: float = 30.0
    part: str | None = None
    audit: Mapping[str, Any] | None = None

    def message(self, file: File | None, seconds: float) -> dict[str, Any]:
        """The message `task`.

        Args:
            file: that the client must fetch, or None.
            seconds: left for the training.
        """
        plan = self.secure
        return {
            "run": self.run,
            "round": self.number,
            "task": "train",
            "base": self.base.sha256,
            "file": file and file.announcement,
            "codec": self.codec,
            "config": dict(self.config),
            "seed": self.seed,
            "deadline": max(0.0, seconds),
            "cohort": self.cohort,
            "part": self.part,
            "audit": self.audit,
            "privacy": self.privacy,
            "secure": plan
            and {
                "version": VERSION,
                "group": plan.group,
                "size": plan.size,
                "clip": plan.clip,
                "noise": plan.noise,
                "stage": self.stage,
            },
        }

    @property
    def fields(self) -> dict[str, Any]:
        """What verify.check_announcement and verify.verify compare an update with."""
        return {
            "run": self.run,
            "round": self.number,
            "codec": self.codec,
            "base": self.base.sha256,
        }


@dataclass
class Upload:
    """An update that arrives in chunks."""

    update: dict[str, Any]
    data: bytearray = field(default_factory=bytearray)
    moved: float = field(default_factory=time.monotonic)  # when the last chunk came

    def add(self, chunk: bytes) -> bool:
        """Adds the next chunk; returns whether the file is complete.

        Raises:
            Refusal: all chunks but the last have CHUNK bytes.
        """
        expected = min(CHUNK, self.update["bytes"] - len(self.data))
        if len(chunk) != expected:
            raise Refusal(
                "chunk", f"a chunk has {len(chunk)} bytes, {expected} are expected", "update"
            )
        self.data += chunk
        self.moved = time.monotonic()
        return len(self.data) == self.update["bytes"]


@dataclass
class Work:
    """A task that a client has, and its outcome."""

    task: Task
    outcome: concurrent.futures.Future[Verified]
    deadline: float  # of time.monotonic
    timer: asyncio.TimerHandle | None = None
    upload: Upload | None = None
    step: int = 0
    group: Group | None = None

    def refuse(self, refusal: Refusal) -> None:
        """Ends the task without an update."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.outcome.done():
            self.outcome.set_exception(refusal)

    def accept(self, verified: Verified) -> None:
        """Ends the task with an update."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.outcome.done():
            self.outcome.set_result(verified)


class Session:
    """A client, over several connections.

    Attributes:
        node: its number.
        token: the secret with which it comes back.
        ticket: SHA-256 of its ticket; empty if none is needed.
        socket: its connection, or None.
        left: when it lost its connection, by time.monotonic.
        work: the task that it has, or None.
        have: identity of the weights that it has.
        counted: run and number of the last round that its update counted in, or None.
        shut_out: why it may not take part any more, or None.
        messages: the messages that it may send, over all its connections.
        strikes, stray: refused messages, and chunks without a task, of the present connection.
    """

    def __init__(self, node: int, hello: Mapping[str, Any], ticket: str = "") -> None:
        self.node, self.token, self.ticket = node, secrets.token_urlsafe(32), ticket
        self.socket: ServerConnection | None = None
        self.left = time.monotonic()
        self.work: Work | None = None
        self.counted: tuple[str, int] | None = None
        self.shut_out: Refusal | None = None
        self.download: asyncio.Task[None] | None = None
        self.receipts: OrderedDict[tuple[str, int], tuple[str, str]] = OrderedDict()
        self.messages = Messages()
        self.greet(hello)

    def greet(self, hello: Mapping[str, Any]) -> None:
        """Takes over what a client says when it connects."""
        self.name: str = hello["name"] or ""
        self.strikes = self.stray = 0
        self.have: str | None = hello["have"]
        self.available: bool = hello["available"] is not False

    def end_download(self) -> None:
        """Ends the download of an earlier task or connection."""
        if self.download is not None:
            self.download.cancel()
            self.download = None

    def holds(self, socket: object) -> bool:
        """Whether a connection is the session's present one."""
        return self.socket is socket

    @property
    def ready(self) -> bool:
        """Whether it can get a task."""
        free = self.available and self.work is None and self.shut_out is None
        return self.socket is not None and free

    @property
    def file(self) -> File | None:
        """The file that it needs for its task."""
        return self.work.task.base.file_for(self.have) if self.work is not None else None

    def remember(self, task: Task, sha256: str, receipt: str) -> None:
        """Keeps the receipt of an accepted update, for clients that send it again."""
        self.receipts[task.run, task.number] = sha256, receipt
        self.messages.renew()
        while len(self.receipts) > REMEMBERED:
            self.receipts.popitem(last=False)
