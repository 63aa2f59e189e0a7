"""A client's way through federated rounds: protocol 1, as docs/architecture/federated.md says.

Connections, weights, training and storage are the host's: extras/federated/client.py and
web/src/extras/federated/client.ts. Secure aggregation is in group.py, which pages load when a task
needs it.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import Aborted, EdgewiseError, InputError
from .crypto import Digest
from .layout import CODECS, part_of
from .plan import VERSION
from .requests import (
    Allowed,
    Announce,
    Counted,
    Declined,
    Expect,
    Fingerprint,
    Finished,
    Hello,
    Keep,
    Last,
    Now,
    Progress,
    Receive,
    Request,
    Result,
    Send,
    SendPart,
    SentToday,
    Silent,
    State,
    Store,
    TakePart,
    Told,
    Train,
    Unpack,
    Welcome,
    WriteUpdate,
)
from .tasks import (
    CHUNK,
    ENDS,
    PROTOCOL,
    STAGES,
    WINDOW,
    Refusal,
    TaskFile,
    clip_of,
    file_of,
    is_offset,
)
from .terms import (
    Terms,
    check_fields,
    config_of,
    epsilon_told,
    is_result,
    names_of,
    objection,
    texts_of,
)

MAX_ASIDE = 8  # messages of a group that come while its update is on its way


@dataclass(frozen=True)
class Options:
    """Of a client.

    Attributes:
        url: of the server, for errors.
        schema: identity of what is trained.
        shapes: (name, shape) of what is trained.
        settings: of terms.SETTINGS those that the trainer applies.
        terms: of the client.
        answer: seconds for the answer to `hello`.
    """

    url: str
    schema: str
    shapes: Sequence[tuple[str, Sequence[int]]]
    settings: Sequence[str]
    terms: Terms
    answer: float


class Ended(Aborted):
    """A server has ended the task."""


def counts(message: Mapping[str, Any], finished: Finished | None) -> bool:
    """Whether a message says that the finished update counts. A masked one that was accepted counts
    only if its group has a sum.
    """
    if finished is None:
        return False
    if finished.secure is None:
        return message.get("kind") == "accepted" and message.get("sha256") == finished.sha256
    run, number = message.get("run"), message.get("round")
    if message.get("kind") != "result" or message.get("counted") is not True:
        return False
    if not isinstance(run, str) or type(number) is not int:
        return False
    return finished.key.startswith(f"{run} {number} ")


def _text(found: object) -> str:
    """A text of a message, if it is one."""
    return found if isinstance(found, str) else ""


def _run(task: Mapping[str, Any]) -> str:
    run: str = task["run"]
    return run


def _number(task: Mapping[str, Any]) -> int:
    number: int = task["round"]
    return number


def _base(task: Mapping[str, Any]) -> str:
    base: str = task["base"]
    return base


class Client:
    """A client, over all its connections.

    Args:
        state: of the client; it is changed here, and written by Store.
        options: of the client.
    """

    def __init__(self, state: State, options: Options) -> None:
        self.state, self.options = state, options
        self.later: list[dict[str, Any]] = []  # messages that are read next
        self.parts: list[bytes] = []  # of a download that goes on after a lost connection
        self.size = 0
        self.sha256 = ""

    def talk(self) -> Generator[Request, Any, None]:
        """A connection, from `hello` to the server's `bye`.

        Raises:
            Refusal: the server refuses this client.
        """
        self.later = []
        yield from self._greet()
        while True:
            message = yield from self.message(math.inf)
            if message["kind"] == "bye":
                return
            if message["kind"] in ENDS:
                yield from self._work(message)
            else:
                yield from self.other(message)

    # Messages

    def message(self, end: float) -> Generator[Request, Any, dict[str, Any]]:
        """The next message; parts of a download that was given up are dropped.

        Args:
            end: when to give up.

        Raises:
            Aborted: it has passed.
        """
        if self.later:
            return self.later.pop(0)
        while True:
            frame: Any = yield Receive(end)
            if frame is None:
                raise Aborted("the time for an answer has passed")
            if not isinstance(frame, bytes):
                message: dict[str, Any] = frame
                return message

    def unread(self, messages: list[dict[str, Any]]) -> None:
        """Puts messages back, to be read next."""
        self.later = [*messages, *self.later]

    def refuse(self, answer: Mapping[str, Any]) -> None:
        """Raises the error for a message `refused`."""
        reason, code = _text(answer.get("reason")), _text(answer.get("code"))
        if code == "stale":
            raise Ended(reason)
        raise Refusal(code, reason, self.options.url)

    def other(self, message: dict[str, Any]) -> Generator[Request, Any, None]:
        """Handles messages that may come at any time."""
        if counts(message, self.state.finished):
            yield Counted()
            yield Store()
        if message["kind"] == "result" and is_result(message):
            yield Result(message)

    def _greet(self) -> Generator[Request, Any, None]:
        state = self.state
        own: dict[str, Any] = yield Hello()
        hello: dict[str, Any] = {
            **own,
            "protocols": [PROTOCOL],
            "schema": self.options.schema,
            "codecs": list(CODECS),
            "resume": state.token,
            "have": state.have,
            "secure": [VERSION],
        }
        yield Send("hello", hello)
        now: float = yield Now()
        answer: Any = b""
        while isinstance(answer, bytes):
            answer = yield Receive(now + self.options.answer)
        if answer is None:
            yield Silent()
            return
        welcome: dict[str, Any] = answer
        if welcome["kind"] == "refused":
            code, reason = _text(welcome.get("code")), _text(welcome.get("reason"))
            raise Refusal(code, reason, self.options.url, f"The server says: {code}.")
        state.token = _text(welcome.get("token"))
        accepted: Any = welcome.get("accepted")
        for sha256 in accepted if isinstance(accepted, list) else []:
            if counts({"kind": "accepted", "sha256": sha256}, state.finished):
                yield Counted()
        last: Any = welcome.get("counted")
        if isinstance(last, list) and len(last) == 2:
            pair: list[Any] = last
            result: dict[str, Any] = {"kind": "result", "run": pair[0], "round": pair[1]}
            result["counted"] = True
            if counts(result, state.finished):
                yield Counted()
        yield Store()
        yield Welcome(welcome)

    # Tasks

    def _work(self, message: dict[str, Any]) -> Generator[Request, Any, None]:
        """A task, or the weights after the last round."""
        try:
            if message["kind"] == "task":
                yield from self._task(message)
            else:
                yield from self._last(message)
        except Ended:
            pass  # the server knows
        except EdgewiseError as e:
            yield from self._decline(message, e)

    def _decline(self, message: dict[str, Any], e: EdgewiseError) -> Generator[Request, Any, None]:
        if message["kind"] != "task":
            yield Declined(e)
            return
        reason = "training failed"  # errors of this machine are not told: they may quote its data
        if isinstance(e, Aborted):
            if not self._is_long(message.get("deadline")):
                return  # the server knows
            reason = "too long"
        elif isinstance(e, InputError) and e.where in ("terms", "when"):
            reason = e.where
        yield Send("decline", {**names_of(message), "reason": reason})
        yield Declined(e)

    def _is_long(self, deadline: Any) -> bool:
        """Whether a deadline is later than the terms allow."""
        seconds: float = deadline
        return seconds > self.options.terms.max_seconds

    def _last(self, message: dict[str, Any]) -> Generator[Request, Any, None]:
        """Takes the weights after the last round, outside of a task."""
        check_fields(message, False)
        now: float = yield Now()
        yield from self._download(message, now + self.options.terms.max_seconds)
        yield Send("have", {"base": message["base"]})  # the server waits for it
        yield Last()

    def _task(self, task: dict[str, Any]) -> Generator[Request, Any, None]:
        check_fields(task, True)
        seconds: float = task["deadline"]
        state, most = self.state, self.options.terms.max_seconds
        now: float = yield Now()
        end = now + min(seconds, most)
        key = f"{_run(task)} {_number(task)} {_base(task)}"
        if task.get("audit") is not None:  # of other data, which a server may give twice
            digest: str = yield Fingerprint(task["audit"])
            key = f"{key} audit {digest}"
        begun = state.finished
        if begun is not None and begun.key != key:
            is_group = begun.secure is not None and begun.key.startswith(key + " ")
            begun = begun if is_group else None
        yield from self._agree(task, begun)
        if begun is None:
            yield from self._allowed("begin")
        yield from self._download(task, end)
        secure: dict[str, Any] | None = task.get("secure")
        if secure is not None:
            stage: float = secure["stage"]
            yield TakePart(task, end, end + min(STAGES * stage, most))
            return
        finished = state.finished
        if finished is None or finished.key != key:
            finished = yield from self._make(task, key, end)
        yield from self._agree(task, finished)
        # what was begun is finished, but never sent over a metered connection
        yield from self._allowed("send")
        more: dict[str, Any] = {"epsilon": epsilon_told(task)}
        yield from self.upload(task, finished, finished.data, end, more, None)

    def _allowed(self, what: Any) -> Generator[Request, Any, None]:
        reason: str = yield Allowed(what)
        if reason:
            raise InputError(reason, "when")

    def _agree(
        self, task: Mapping[str, Any], finished: Finished | None
    ) -> Generator[Request, Any, None]:
        """Raises InputError at "terms" if a task does not meet them."""
        terms = self.options.terms
        sent = 0.0
        if terms.max_bytes < math.inf:
            sent = yield SentToday("" if finished is None else finished.sha256)
        reason = objection(terms, task, sent, 0 if finished is None else len(finished.data))
        if reason:
            raise InputError(reason, "terms")

    # Weights

    def _download(self, task: dict[str, Any], end: float) -> Generator[Request, Any, None]:
        """Fetches the weights of a task, from where an earlier connection has ended."""
        state = self.state
        if state.have == task["base"]:
            return
        file = file_of(task, self.options.shapes)
        if file.content != "weights" and state.have is None:
            raise InputError("it is a difference from weights that are not here", "task")
        if self.sha256 != file.sha256:
            self._begin(file.sha256)
        if self.size < file.size:
            yield from self._fetch(task, file, end)
        parts = self.parts
        self._begin("")
        found = yield from self.digest(parts)
        if found != file.sha256:
            raise InputError("the weights do not match their SHA-256", "task")
        of = _base(task) if file.content == "weights" else state.have or ""
        fields: Mapping[str, str] = {"kind": file.content, "base": of, "run": _run(task)}
        base: str = yield Unpack(parts, file, fields)
        if base != task["base"]:
            raise InputError("the weights are not those that the task names", "task")
        state.have, state.finished = base, None
        yield Keep()
        yield Store()

    def _begin(self, sha256: str) -> None:
        """A download begins."""
        self.sha256, self.size = sha256, 0
        self.parts = []

    def _fetch(
        self, task: dict[str, Any], file: TaskFile, end: float
    ) -> Generator[Request, Any, None]:
        run, number = _run(task), _number(task)
        yield Expect(file.size - self.size)
        yield Send("fetch", {"run": run, "round": number, "offset": self.size})
        while self.size < file.size:
            frame: Any = self.later.pop(0) if self.later else (yield Receive(end))
            if frame is None:
                yield Expect(0)
                raise Aborted("the time for an answer has passed")
            if isinstance(frame, bytes):
                if len(frame) != min(CHUNK, file.size - self.size):
                    yield Expect(0)
                    self._begin("")
                    raise InputError("a part of the weights has a wrong size", "task")
                self.parts.append(frame)
                self.size += len(frame)
                yield Progress(run, number, "fetch", self.size, file.size)
                continue
            message: dict[str, Any] = frame
            kind = message["kind"]
            if kind in ENDS or kind == "refused":
                yield Expect(0)
                if kind == "refused":
                    self.refuse(message)
                self.unread([message])
                raise Ended("the server has ended the task")
            yield from self.other(message)
        yield Expect(0)

    # Updates

    def train(self, task: Mapping[str, Any], end: float) -> Generator[Request, Any, Told]:
        """Trains as a task says.

        Raises:
            Aborted: `end` has passed.
            InputError: the task cannot be done.
        """
        part_of(self.options.shapes, task.get("part"))
        config = config_of(task, self.options.settings)
        texts = texts_of(task.get("audit"))
        run, number = _run(task), _number(task)
        told: Told = yield Train(run, number, task["seed"], config, texts, end)
        return told

    def _make(
        self, task: dict[str, Any], key: str, end: float
    ) -> Generator[Request, Any, Finished]:
        """Trains, and writes the update."""
        told = yield from self.train(task, end)
        is_audit = task.get("audit") is not None
        names: Mapping[str, str] = {
            "base": _base(task),
            "run": _run(task),
            "round": f"{_number(task)}",
        }
        finished: Finished = yield WriteUpdate(
            key, told, task.get("part"), task["codec"], names, clip_of(task), is_audit
        )
        yield from self.keep(finished)
        return finished

    def keep(self, finished: Finished) -> Generator[Request, Any, None]:
        """The last update is this one."""
        self.state.finished = finished
        yield Store()

    def digest(self, parts: list[bytes]) -> Generator[Request, Any, str]:
        """The SHA-256 of parts, in hexadecimal."""
        found: bytes = yield Digest(parts)
        return found.hex()

    def upload(
        self,
        task: Mapping[str, Any],
        finished: Finished,
        data: bytes,
        end: float,
        more: Mapping[str, Any],
        context: bytes | None,
    ) -> Generator[Request, Any, None]:
        """Announces and sends a file, until it is accepted or rejected.

        Args:
            task: of the update, with its codec.
            finished: the update.
            data: its file, as it is sent.
            end: when to give up.
            more, context: of Announce.

        Raises:
            Aborted: `end` has passed. InputError: the server refuses.
        """
        run, number, sha256 = _run(task), _number(task), finished.sha256
        update: dict[str, Any] = {
            "run": run,
            "round": number,
            "sha256": sha256,
            "bytes": len(data),
            "codec": task["codec"],
            "examples": finished.examples,
            "steps": finished.steps,
            "metrics": finished.metrics,
        }
        yield Announce(task, update, finished, data, more, context)
        now: float = yield Now()
        if now >= end:
            raise Aborted("the deadline has passed")
        yield Send("update", update)
        aside: list[dict[str, Any]] = []  # of its group
        sent = -1
        last: int = 0
        while True:
            answer = yield from self.message(end)
            kind = answer["kind"]
            if kind in ENDS:
                self.unread([*aside, answer])
                return
            if kind == "refused":
                self.refuse(answer)
            if answer.get("group") is not None:
                aside = [*aside, answer][-MAX_ASIDE:]
            elif kind != "ack":
                yield from self.other(answer)
            if answer.get("sha256") != sha256:
                continue
            if kind != "ack":
                self.unread(aside)
                return
            offset: Any = answer.get("offset")
            if not is_offset(offset, last, len(data)):
                raise InputError("it has acknowledged bytes that do not exist", self.options.url)
            last = offset
            sent = last if sent < 0 else sent
            until = min(len(data), last + WINDOW * CHUNK)
            if sent < until:
                yield SendPart(data, sha256, sent, until)
                sent = until
            yield Progress(run, number, "send", last, len(data))
