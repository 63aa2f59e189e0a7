"""The part of a Hub that receives updates: announced, then in chunks, then checked as a whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .protocol import Refusal, encode
from .sessions import Upload
from .verify import check_announcement, verify

if TYPE_CHECKING:
    from .codec import Schema
    from .secure.group import Group
    from .sessions import Session, Work

STRAY = 8  # chunks that may be on their way when a task ends


class Uploads:
    """Updates of clients; see Hub for the rest."""

    changing: Schema

    if TYPE_CHECKING:

        def _work(self, session: Session, message: Mapping[str, Any]) -> Work: ...
        def _repeat(self, session: Session) -> None: ...
        def _check_masked(self, group: Group, update: Mapping[str, Any]) -> None: ...
        async def _masked(
            self, session: Session, work: Work, group: Group, upload: Upload
        ) -> None: ...
        def receipt(self, run: str, number: int, sha256: str) -> str: ...

    async def _update(self, session: Session, message: dict[str, Any]) -> None:
        """An announced update: says from which offset on its bytes are expected."""
        receipt = session.receipts.get((message["run"], message["round"]))
        if receipt is not None and receipt[0] == message["sha256"]:
            await self._answer(session, "accepted", message, receipt=receipt[1])
            self._repeat(session)
            return
        try:
            work = self._work(session, message)
            if work.group is None:
                check_announcement(message, work.task.fields, self.changing)
            else:
                self._check_masked(work.group, message)
        except Refusal as e:
            session.strikes += 1
            await self._reject(session, message, e)
            return
        if work.upload is None or work.upload.update["sha256"] != message["sha256"]:
            work.upload = Upload(message)
        work.upload.update, work.upload.moved = message, time.monotonic()
        await self._answer(session, "ack", message, offset=len(work.upload.data))

    async def _chunk(self, session: Session, chunk: bytes) -> None:
        work = session.work
        if work is None or work.upload is None:
            session.stray += 1
            if session.receipts and session.stray <= STRAY:  # on their way when the task ended
                return
            raise Refusal("order", "bytes arrived that were not announced", "update")
        upload = work.upload
        try:
            complete = upload.add(chunk)
        except Refusal as e:
            await self._reject(session, upload.update, e)
            return
        if not complete:
            await self._answer(session, "ack", upload.update, offset=len(upload.data))
            return
        work.upload = None
        if work.group is not None:
            await self._masked(session, work, work.group, upload)
            return
        task = work.task
        try:
            verified = await asyncio.to_thread(
                verify, bytes(upload.data), upload.update, task.fields, self.changing, task.rules
            )
        except Refusal as e:
            await self._reject(session, upload.update, e)
            return
        except Exception as e:  # whatever a hostile file may cause: the round goes on
            broken = Refusal("file", f"it cannot be read ({type(e).__name__})", "update")
            await self._reject(session, upload.update, broken)
            return
        if session.work is not work:
            late = Refusal("deadline", "the update came too late", "update")
            await self._reject(session, upload.update, late)
            return
        receipt = self.receipt(task.run, task.number, verified.sha256)
        session.remember(task, verified.sha256, receipt)
        session.work, session.have = None, task.base.sha256
        session.strikes = session.stray = 0
        work.accept(verified)
        await self._answer(session, "accepted", upload.update, receipt=receipt)

    async def _reject(self, session: Session, message: Mapping[str, Any], refusal: Refusal) -> None:
        """Refuses an update. Unless it was of another round, this ends the client's task."""
        work = session.work
        if work is not None and (message["run"], message["round"]) == (
            work.task.run,
            work.task.number,
        ):
            session.work = None
            work.refuse(refusal)
        await self._answer(session, "rejected", message, code=refusal.code, reason=str(refusal))

    async def _answer(
        self, session: Session, kind: str, update: Mapping[str, Any], **fields: Any
    ) -> None:
        if session.socket is not None:
            await session.socket.send(
                encode(
                    kind,
                    run=update["run"],
                    round=update["round"],
                    sha256=update["sha256"],
                    **fields,
                )
            )
