"""The server of clients: WebSocket sessions, tasks, downloads and verified updates.

It runs in a thread of its own and knows neither strategies nor Flower. A client that loses its
connection, or whose page is reloaded, comes back with its token within `grace` seconds and finds
its task again. Every task ends: with a verified update, or with a Refusal that gives the reason, at
its deadline at the latest.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import hashlib
import hmac
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from websockets.asyncio.server import Server, ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from ...errors import InputError
from ...logic.federated.tasks import CHUNK, MASKED, MAX_TEXT, SUBPROTOCOL
from .admission import Counted, HubOptions, Silent, admit
from .codec import Schema
from .last import Last
from .protocol import VERSION, Refusal, check, decode, encode
from .secure.group import Group, Summed
from .sessions import Session, Task, Upload, Work
from .verify import Verified, check_announcement, verify

TAKEN_OVER, SLOW, REFUSED = 4001, 4002, 4003  # codes with which connections are closed
STRIKES = 8  # refused messages after which a connection is closed
ENDING = 2.0  # seconds in which a client must take the hub's bye
STRAY = 8  # chunks that may be on their way when a task ends
GROUP_KINDS = ("keys", "shares", "consent", "unmask")  # messages that belong to a group
SILENCE = 60  # seconds after which a client gives an unanswered `state`, and so us, up


class Hub:
    """The server of clients.

        with Hub(schema, "int4") as hub:
            futures = {node: hub.assign(node, task) for node in hub.nodes()}

    Args:
        schema: of what is trained; clients with another one are turned away.
        codec: of the updates; clients must have it.
        options: see HubOptions.
        secret: key of the receipts.
        part: of the parameters that updates change, see codec.Schema.part.
    """

    def __init__(
        self,
        schema: Schema,
        codec: str,
        options: HubOptions = HubOptions(),  # noqa: B008 (immutable)
        secret: bytes | None = None,
        part: str | None = None,
    ) -> None:
        self.changing = schema.part(part)
        self.schema, self.codec, self.options = schema, codec, options
        self.secret = secret or secrets.token_bytes(32)
        self.sessions: dict[int, Session] = {}
        self._tokens: dict[str, Session] = {}
        self._tickets: dict[str, Session] = {}  # by SHA-256
        self._numbers = itertools.count(1)
        self.barred: dict[str, str] = {}  # why, by SHA-256 of tickets: who was shut out
        self._silent = Silent(self.options.silent)
        self._last: Last | None = None
        self._lock = threading.Lock()  # of `sessions`, which other threads read
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hub", daemon=True)
        self._server: Server | None = None

    # ---- for other threads ----
    def start(self) -> Hub:
        """Begins to listen.

        Raises:
            InputError: the address cannot be used.
        """
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except OSError as e:
            self.stop()
            where = f"{self.options.host}:{self.options.port}"
            raise InputError(e.strerror or str(e), where, "Choose another port.") from None
        return self

    def stop(self) -> None:
        """Says bye to all clients and ends the thread."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def __enter__(self) -> Hub:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        assert self._server is not None
        return int(next(iter(self._server.sockets)).getsockname()[1])

    def nodes(self) -> list[int]:
        """Clients that can get a task."""
        with self._lock:
            return [s.node for s in self.sessions.values() if s.ready]

    def assign(self, node: int, task: Task) -> concurrent.futures.Future[Verified]:
        """As `assign_all`, for one client."""
        return self.assign_all({node: task})[node]

    def assign_all(
        self, tasks: Mapping[int, Task]
    ) -> dict[int, concurrent.futures.Future[Verified]]:
        """Gives tasks to clients, to all at once.

        Returns:
            The update of each. A future raises Refusal if there will be none.
        """
        outcomes: dict[int, concurrent.futures.Future[Verified]] = {
            node: concurrent.futures.Future() for node in tasks
        }
        self._loop.call_soon_threadsafe(self._assign, dict(tasks), outcomes)
        return outcomes

    def assign_group(self, nodes: Sequence[int], task: Task) -> concurrent.futures.Future[Summed]:
        """Gives a task with a plan to clients that are summed together.

        Returns:
            Their sum. The future raises Refusal if there will be none.
        """
        assert task.secure is not None
        outcome: concurrent.futures.Future[Summed] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._assign_group, list(nodes), task, outcome)
        return outcome

    def announce(self, nodes: Iterable[int], fields: Callable[[int], Mapping[str, Any]]) -> None:
        """Sends the message `result` with fields(node) to clients."""
        told = {node: dict(fields(node)) for node in nodes}
        texts = {node: encode("result", **result) for node, result in told.items()}
        counted = {n: (str(r["run"]), int(r["round"])) for n, r in told.items() if r["counted"]}
        self._loop.call_soon_threadsafe(self._announce, texts, counted)

    def tickets(self, nodes: Iterable[int]) -> dict[int, str]:
        """SHA-256 of the tickets of those nodes whose clients are here; empty without tickets."""
        with self._lock:
            return {n: self.sessions[n].ticket for n in nodes if n in self.sessions}

    def shut_out(self, node: int, why: Refusal, ticket: str = "") -> None:
        """Ends a client's part in the run.

        Args:
            ticket: of `tickets`, when the client was here: it may have left to come back as another
                one. Empty: it can come back.
        """
        if ticket:
            self.barred[ticket] = why.what
        self._loop.call_soon_threadsafe(self._shut_out, node, why, ticket)

    def publish(self, last: Last, seconds: float) -> None:
        """Gives all clients the weights after the last round; waits until they have them, for
        `seconds` at most.
        """
        asyncio.run_coroutine_threadsafe(self._publish(last, seconds), self._loop).result()

    def receipt(self, run: str, number: int, sha256: str) -> str:
        """The proof that an update was accepted."""
        text = f"{run}\n{number}\n{sha256}".encode()
        return hmac.new(self.secret, text, hashlib.sha256).hexdigest()

    # ---- in the hub's thread ----
    async def _listen(self) -> None:
        options = self.options
        self._server = await serve(
            self._connection,
            options.host,
            options.port,
            origins=cast(Any, options.accepted_origins),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,  # updates are packed; no small message becomes a large one
            max_size=max(CHUNK, MAX_TEXT),
            max_queue=4,
            create_connection=functools.partial(Counted, self._silent),
            open_timeout=options.greeting,
            ping_interval=20,
            ping_timeout=20,
        )

    async def _close(self) -> None:
        sessions = list(self.sessions.values())
        for session in sessions:
            if session.work is not None:
                session.work.refuse(Refusal("end", "the server ends"))
        bye = encode("bye", reason="the server ends")
        await asyncio.gather(*(self._tell(s.node, bye, ENDING) for s in sessions))
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _tell(self, node: int, text: str, seconds: float | None = None) -> None:
        session = self.sessions.get(node)
        if session is not None and session.socket is not None:
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                await asyncio.wait_for(
                    session.socket.send(text), self.options.stall if seconds is None else seconds
                )

    async def _publish(self, last: Last, seconds: float) -> None:
        self._last = last
        told = [self._tell(s.node, last.message(s)) for s in self.sessions.values()]
        for telling in told:
            asyncio.ensure_future(telling)
        await last.arrived(self.sessions, seconds)

    def _announce(self, texts: Mapping[int, str], counted: Mapping[int, tuple[str, int]]) -> None:
        for node in counted.keys() & self.sessions.keys():
            self.sessions[node].counted = counted[node]
        sockets: dict[str, list[ServerConnection]] = {}
        for node, text in texts.items():
            session = self.sessions.get(node)
            if session is not None and session.socket is not None:
                sockets.setdefault(text, []).append(session.socket)
        for text, some in sockets.items():
            broadcast(some, text)

    def _shut_out(self, node: int, why: Refusal, ticket: str) -> None:
        for session in (self.sessions.get(node), self._tickets.get(ticket)):
            if session is None or session.shut_out is not None:
                continue
            session.shut_out = why
            if session.work is not None:
                session.work.refuse(why)
                session.work = None
            if session.socket is not None:
                broadcast([session.socket], encode("refused", code=why.code, reason=str(why)))
                asyncio.ensure_future(session.socket.close(REFUSED, why.code))

    def _forget(self, session: Session, left: float) -> None:
        """Drops a session whose client did not come back since."""
        if session.socket is None and session.left == left:
            self._drop(session, Refusal("gone", "the client did not come back"))

    def _drop(self, session: Session, reason: Refusal) -> None:
        with self._lock:
            self.sessions.pop(session.node, None)
        self._tokens.pop(session.token, None)
        if self._tickets.get(session.ticket) is session:
            del self._tickets[session.ticket]
        if session.work is not None:
            session.work.refuse(reason)
            session.work = None

    # sessions
    async def _connection(self, socket: ServerConnection) -> None:
        try:
            async with asyncio.timeout(self.options.greeting):
                session = self._enter(socket, await socket.recv())
            self._silent.leave(socket)
        except Refusal as e:
            with contextlib.suppress(ConnectionClosed):
                await socket.send(encode("refused", code=e.code, reason=str(e)))
                await socket.close(REFUSED, e.code)
            return
        except (TimeoutError, ConnectionClosed):
            await socket.close(SLOW, "no hello")
            return
        try:
            await self._welcome(session)
            await self._read(session, socket)
        except ConnectionClosed:
            pass
        except TimeoutError:
            await socket.close(SLOW, "too slow")
        finally:
            if session.holds(socket):
                session.end_download()
                session.socket, session.left = None, time.monotonic()
                self._loop.call_later(self.options.grace, self._forget, session, session.left)

    def _enter(self, socket: ServerConnection, frame: str | bytes) -> Session:
        """The session of a new connection.

        Raises:
            Refusal: its first message is not a hello that can be accepted.
        """
        message = decode(frame)
        if message["kind"] != "hello":
            raise Refusal("hello", f"the first message is '{message['kind'][:40]}', not hello")
        hello = check(message)
        ticket = admit(hello, self.schema, self.codec, self.options)
        if ticket in self.barred:
            raise Refusal("audit", self.barred[ticket], "hello.ticket")
        session = self._tokens.get(hello["resume"] or "")
        if session is not None and session.shut_out is not None:
            raise session.shut_out
        if session is not None and session.ticket == ticket:
            old, session.socket = session.socket, socket
            session.greet(hello)
            if old is not None:
                asyncio.ensure_future(old.close(TAKEN_OVER, "the client connected again"))
            return session
        if ticket and (other := self._tickets.get(ticket)) is not None:
            if other.socket is not None:
                raise Refusal("ticket", "another client uses this ticket", "hello.ticket")
            self._drop(other, Refusal("gone", "another client came with its ticket"))
        if len(self.sessions) >= self.options.clients:
            raise Refusal("full", f"{self.options.clients} clients are connected", "", "Try later.")
        session = Session(next(self._numbers), hello, ticket)
        session.socket = socket
        self._tokens[session.token] = session
        if ticket:
            self._tickets[ticket] = session
        with self._lock:
            self.sessions[session.node] = session
        return session

    async def _welcome(self, session: Session) -> None:
        assert session.socket is not None
        await session.socket.send(
            encode(
                "welcome",
                protocol=VERSION,
                token=session.token,
                limits={
                    "chunk": CHUNK,
                    "text": MAX_TEXT,
                    "grace": self.options.grace,
                    "silence": SILENCE,
                },
                accepted=[sha256 for sha256, _ in session.receipts.values()],
                counted=session.counted,
                terms=dict(self.options.terms or {}),
            )
        )
        if session.work is not None:
            await self._send_task(session)
        elif self._last is not None:
            await session.socket.send(self._last.message(session))

    async def _read(self, session: Session, socket: ServerConnection) -> None:
        """Reads messages until the connection ends. Raises TimeoutError, ConnectionClosed."""
        while session.holds(socket):  # until another connection takes over
            upload = None if session.work is None else session.work.upload
            # other messages do not extend the time of a chunk
            left = None if upload is None else upload.moved + self.options.stall - time.monotonic()
            async with asyncio.timeout(left):
                frame = await socket.recv()
            try:
                if isinstance(frame, bytes):
                    await self._chunk(session, frame)
                else:
                    session.messages.count()
                    if await self._message(session, check(decode(frame))):
                        return
            except Refusal as e:
                await socket.send(encode("refused", code=e.code, reason=str(e)))
                session.strikes += 1
            if session.strikes >= STRIKES:
                await socket.close(REFUSED, "too many refused messages")
                return
            await asyncio.sleep(0)  # for others, where a client's messages have all arrived

    async def _message(self, session: Session, message: dict[str, Any]) -> bool:
        """Handles a message; returns whether the client leaves."""
        kind = message["kind"]
        if kind == "fetch":
            self._fetch(session, message)
        elif kind == "update":
            await self._update(session, message)
        elif kind == "decline":
            work = self._work(session, message)
            session.work = None
            work.refuse(Refusal("declined", f"the client declined: {message['reason']}"))
        elif kind == "state":
            session.available = message["available"]
            if session.socket is not None:  # the client sees that the connection lives
                await session.socket.send(encode("state", available=session.available))
        elif kind == "have":
            session.have = message["base"]
        elif kind == "progress":
            self._work(session, message).step = message["step"]
        elif kind in GROUP_KINDS:
            self._secure(session, message)
        elif kind == "bye":
            self._drop(session, Refusal("gone", "the client has left"))
            return True
        else:
            raise Refusal("order", "hello was said already", "message")
        return False

    def _work(self, session: Session, message: Mapping[str, Any]) -> Work:
        """The client's task, which a message is about. Raises Refusal if it has another."""
        work = session.work
        if work is None or (message["run"], message["round"]) != (work.task.run, work.task.number):
            raise Refusal(
                "stale",
                f"round {message['round']} of run {message['run'][:40]} is not the client's task",
                message["kind"],
            )
        return work

    # tasks
    def _assign(
        self, tasks: Mapping[int, Task], outcomes: Mapping[int, concurrent.futures.Future[Verified]]
    ) -> None:
        """Each message is written once for all who get it, and nobody waits for anybody's socket:
        a thousand clients have their tasks after milliseconds.
        """
        now = time.monotonic()
        messages: dict[tuple[int, int], tuple[str, list[ServerConnection]]] = {}
        for node, task in tasks.items():
            session = self.sessions.get(node)
            work = Work(task, outcomes[node], now + task.seconds)
            if session is None or session.work is not None or session.shut_out is not None:
                work.refuse(Refusal("gone", "the client is gone, or busy"))
                continue
            session.work = work
            session.end_download()  # of an earlier task
            work.timer = self._loop.call_later(task.seconds, self._expire, session, work)
            if session.socket is not None:
                file = session.file
                key = id(task), id(file)
                if key not in messages:
                    messages[key] = encode("task", **task.message(file, task.seconds)), []
                messages[key][1].append(session.socket)
        for text, sockets in messages.values():
            broadcast(sockets, text)  # who is gone meanwhile may come back for it

    def _expire(self, session: Session, work: Work) -> None:
        work.refuse(Refusal("deadline", f"no update within {work.task.seconds:g} seconds"))
        if session.work is work:
            session.work = None

    async def _try_task(self, session: Session) -> None:
        with contextlib.suppress(ConnectionClosed):  # the client may come back
            await self._send_task(session)

    async def _send_task(self, session: Session) -> None:
        work, socket = session.work, session.socket
        if work is None or socket is None:
            return
        left = work.deadline - time.monotonic()
        await socket.send(encode("task", **work.task.message(session.file, left)))

    def _fetch(self, session: Session, message: Mapping[str, Any]) -> None:
        last, socket = self._last, session.socket
        if last is not None and last.named(message):
            file = last.base.file_for(session.have)
        else:
            self._work(session, message)
            file = session.file
        if file is None or socket is None or message["offset"] > len(file.data):
            raise Refusal("fetch", "there is nothing to fetch at this offset", "fetch.offset")
        session.end_download()
        session.download = asyncio.create_task(
            self._download(socket, memoryview(file.data)[message["offset"] :])
        )

    async def _download(self, socket: ServerConnection, data: memoryview) -> None:
        with contextlib.suppress(ConnectionClosed):
            for at in range(0, len(data), CHUNK):
                try:
                    await asyncio.wait_for(socket.send(data[at : at + CHUNK]), self.options.stall)
                except TimeoutError:
                    await socket.close(SLOW, "too slow")
                    return

    # updates: announced, then in chunks, then checked as a whole
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

    # groups of clients that are summed together
    def _assign_group(
        self, nodes: list[int], task: Task, outcome: concurrent.futures.Future[Summed]
    ) -> None:
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
