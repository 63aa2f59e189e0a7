"""Groups of a hub's clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from websockets.exceptions import ConnectionClosed

from ..protocol import Refusal, encode
from .group import Group, Summed
from .plan import MASKED

if TYPE_CHECKING:
    from ..admission import HubOptions
    from ..codec import Schema
    from ..sessions import Session, Task, Upload, Work

KINDS = ("keys", "shares", "consent", "unmask")
"""Messages of clients that belong to a group."""


class SecureRounds:
    """The part of a Hub that runs groups; see Hub for the rest."""

    changing: Schema
    options: HubOptions
    sessions: dict[int, Session]
    _loop: asyncio.AbstractEventLoop

    if TYPE_CHECKING:

        async def _try_task(self, session: Session) -> None: ...
        async def _tell(self, node: int, text: str, seconds: float | None = None) -> None: ...
        async def _answer(
            self, session: Session, kind: str, update: Mapping[str, Any], **fields: Any
        ) -> None: ...
        async def _reject(
            self, session: Session, message: Mapping[str, Any], refusal: Refusal
        ) -> None: ...
        def _work(self, session: Session, message: Mapping[str, Any]) -> Work: ...
        def receipt(self, run: str, number: int, sha256: str) -> str: ...

    def assign_group(self, nodes: Sequence[int], task: Task) -> concurrent.futures.Future[Summed]:
        """Gives a task with a plan to clients that are summed together.

        Returns:
            Their sum. The future raises Refusal if there will be none.
        """
        assert task.secure is not None
        outcome: concurrent.futures.Future[Summed] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._assign_group, list(nodes), task, outcome)
        return outcome

    def _assign_group(
        self, nodes: list[int], task: Task, outcome: concurrent.futures.Future[Summed]
    ) -> None:
        from ..sessions import Work

        assert task.secure is not None
        group = Group(
            task.secure,
            task.secure.lattice(self.changing),
            nodes,
            task.seconds,
            task.stage,
            lambda node, kind, fields: self._say(node, task, kind, fields),
            self.options.authority,
            outcome,
        )
        outcome.add_done_callback(lambda _: self._end_group(group))
        group.start()
        for node in nodes:
            session = self.sessions.get(node)
            if session is None or session.work is not None:
                group.leave(node, Refusal("gone", "the client is gone, or busy"))
                continue
            own: concurrent.futures.Future[Any] = concurrent.futures.Future()
            own.add_done_callback(functools.partial(self._left, group, node))
            deadline = time.monotonic() + task.seconds
            session.work = Work(task, own, deadline, group=group)
            session.end_download()
            if session.socket is not None:
                asyncio.ensure_future(self._try_task(session))

    def _left(self, group: Group, node: int, outcome: concurrent.futures.Future[Any]) -> None:
        error = None if outcome.cancelled() else outcome.exception()
        if isinstance(error, Refusal):
            group.leave(node, error)

    def _end_group(self, group: Group) -> None:
        failed = group.outcome.exception() is not None
        for node in group.nodes:
            session = self.sessions.get(node)
            work = None if session is None else session.work
            if session is None or work is None or work.group is not group:
                continue
            session.work = None
            if not failed and node in group.replies[2]:
                session.have = work.task.base.sha256
                work.outcome.cancel()
            else:
                work.refuse(Refusal("few", "the group has ended without this client"))

    def _say(self, node: int, task: Task, kind: str, fields: Mapping[str, Any]) -> None:
        plan = task.secure
        assert plan is not None
        text = encode(kind, run=plan.run, round=plan.number, group=plan.group, **fields)
        asyncio.ensure_future(self._tell(node, text))

    def _secure(self, session: Session, message: Mapping[str, Any]) -> None:
        """A message of a member. Raises Refusal."""
        work = self._work(session, message)
        if work.group is None or message["group"] != work.group.plan.group:
            raise Refusal("stale", "it is of another group", message["kind"])
        work.group.receive(session.node, message["kind"], message)

    def _repeat(self, session: Session) -> None:
        """A member has announced its update again: it has lost what came afterwards."""
        work = session.work
        if work is not None and work.group is not None:
            work.group.repeat(session.node, 2)

    def _check_masked(self, group: Group, update: Mapping[str, Any]) -> None:
        """Checks the announcement of a masked update. Raises Refusal."""
        if group.roster is None:
            raise Refusal("order", "the group has no members yet", "update")
        size = group.update_bytes()
        if update["codec"] != MASKED or update["bytes"] != size:
            raise Refusal("size", f"a masked update of {size} bytes is expected", "update")

    async def _masked(self, session: Session, work: Work, group: Group, upload: Upload) -> None:
        """A masked update has arrived: the group counts it, and its task goes on."""
        update, data = upload.update, bytes(upload.data)
        sha256 = hashlib.sha256(data).hexdigest()
        try:
            if sha256 != update["sha256"]:
                raise Refusal("hash", "its bytes do not match the announced SHA-256", "update")
            group.receive(session.node, "update", data)
        except Refusal as e:
            await self._reject(session, update, e)
            return
        receipt = self.receipt(work.task.run, work.task.number, sha256)
        session.remember(work.task, sha256, receipt)
        session.strikes = session.stray = 0
        with contextlib.suppress(ConnectionClosed):  # it learns it when it comes back
            await self._answer(session, "accepted", update, receipt=receipt)
