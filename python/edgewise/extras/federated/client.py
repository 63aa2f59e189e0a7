"""A client of the hub: trains when it is asked to and sends what changed.

    client = FederatedClient("ws://127.0.0.1:8765", LocalTraining(trainer, texts))
    client.run()

It comes back after a lost connection. With a `folder`, it also comes back after its process was
killed: what it has finished for a round is sent again, byte for byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from ...errors import Aborted, EdgewiseError, InputError
from ...locks import locked
from ...logic.federated.layout import CODECS
from ...logic.federated.tasks import (
    CHUNK,
    ENDS,
    MASKED,
    MAX_TEXT,
    STAGES,
    SUBPROTOCOL,
    WINDOW,
    file_of,
    is_offset,
)
from .client_secure import (
    ClientTerms,
    SecureRound,
    announcement,
    clipped,
    key_of,
    make_update,
    plan_of,
)
from .client_state import ClientState, Finished
from .codec import Floats, Schema, Values, base_of, pack, unpack
from .protocol import VERSION, Refusal, decode, encode
from .secure import VERSION as SECURE
from .secure.identity import Identity
from .secure.plan import Plan

SILENCE = 60.0  # seconds after which an answer is no longer expected
WAITING = 256  # frames that may wait while the client trains
TRY_AGAIN = (408, 425, 429)  # of HTTP's 4xx, those that do not mean a wrong request


@dataclass(frozen=True)
class Trained:
    """The result of local training.

    Attributes:
        values: all parameters afterwards.
        examples: the weight that the update shall have.
        steps: updates made.
        metrics: numbers for the server, such as the loss.
        kept: for the next training, in its config; it stays with the client.
    """

    values: Values
    examples: int
    steps: int
    metrics: Mapping[str, float]
    kept: bytes = b""


SETTINGS = ("proximal-mu", "part", "audit", "keep-optimizer")
"""Settings of a task that change what is trained."""


class Training(Protocol):
    """What a client trains. Its attribute `settings`, if it has one, names those of SETTINGS that
    `train` applies; tasks with others are declined.
    """

    @property
    def schema(self) -> Schema:
        """Names and shapes of the parameters."""

    def train(
        self,
        weights: Values,
        config: Mapping[str, Any],
        seed: int,
        number: int,
        stop: Callable[[], bool],
    ) -> Trained:
        """Trains from weights.

        Args:
            weights: the parameters to begin with.
            config: of the task; `kept`: what the last update that counted has kept.
            seed: of the task; with the same arguments the result must be the same.
            number: of the round.
            stop: whether to give up, asked now and then.

        Raises:
            Aborted: `stop` said so.
            EdgewiseError: the task cannot be done. It is declined with the error's text.
        """


class FederatedClient:
    """A client.

    Args:
        url: of the hub, ws:// or wss://.
        training: the training that it runs.
        name: of the client, for the server's log.
        ticket: for a hub that needs one.
        folder: keeps the state of the client. None: it is kept in memory.
        minimum_cohort: tasks for fewer clients are declined.
        on_result: called with each message `result`.
        on_weights: called with the weights after the last round, {name: array}.
        on_decline: called when a task is declined, with the reason. The server is not told texts
            of errors, since they may quote data.
        attempts: connections that may fail one after the other.
        terms: what it demands of rounds. Default: `minimum_cohort` alone.
        identity: its key for secure aggregation. Default: a new one, without a certificate.
    """

    def __init__(
        self,
        url: str,
        training: Training,
        name: str = "",
        ticket: str | None = None,
        folder: str | None = None,
        minimum_cohort: int = 1,
        on_result: Callable[[dict[str, Any]], object] | None = None,
        attempts: int = 20,
        on_decline: Callable[[str], object] | None = None,
        terms: ClientTerms | None = None,
        identity: Identity | None = None,
        on_weights: Callable[[Values], object] | None = None,
    ) -> None:
        self.on_decline, self.on_weights = on_decline, on_weights
        self.url, self.training, self.name, self.ticket = url, training, name, ticket
        self.folder = folder
        self.on_result, self.attempts = on_result, attempts
        self.terms = terms or ClientTerms(minimum_cohort)
        self.identity = identity or Identity.new()
        self.state = ClientState(folder, training.schema)
        self.sent_bytes = self.received_bytes = self.rounds = 0
        self._partial: tuple[str, bytearray] = "", bytearray()
        self._socket: ClientConnection | None = None
        self._later: list[dict[str, Any]] = []
        self._leaving = False

    def leave(self) -> None:
        """Leaves: `run` returns soon. May be called by any thread."""
        self._leaving = True
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):
                self._send("bye", reason="left")
            self._socket.close()

    def run(self) -> None:
        """Takes part until the server says bye, or `leave` is called.

        Raises:
            Refusal: the server refuses this client.
            InputError: it cannot be reached.
            StorageError: another process uses the client's folder.
        """
        with self._alone():
            if self.folder is not None:  # another process may have gone on meanwhile
                self.state = ClientState.alone(self.folder, self.training.schema)
            self._run()

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """Two processes with one state would end with that of neither."""
        if self.folder is None:
            return contextlib.nullcontext()
        what = "another process takes part with the state in this folder"
        return locked(os.path.join(self.folder, "lock"), what, "Stop it, or give another folder.")

    def _run(self) -> None:
        failures = 0
        while not self._leaving:
            try:
                with connect(
                    self.url,
                    subprotocols=[Subprotocol(SUBPROTOCOL)],
                    compression=None,
                    max_size=max(CHUNK, MAX_TEXT),
                    max_queue=WAITING,
                ) as socket:
                    self._socket, self._later = socket, []
                    self._greet()
                    failures = 0
                    if self._serve():
                        return
            except InvalidURI as e:
                raise InputError(e.msg, self.url, "Give ws://HOST:PORT or wss://HOST.") from None
            except (ConnectionClosed, OSError, InvalidHandshake, TimeoutError) as e:
                failures += 1
                if self._leaving:
                    return
                status = e.response.status_code if isinstance(e, InvalidStatus) else 0
                if 400 <= status < 500 and status not in TRY_AGAIN:
                    failures = self.attempts + 1
                if failures > self.attempts:
                    raise InputError(
                        f"the server does not answer ({str(e)[:200]})",
                        self.url,
                        "Check the address, and whether `edgewise federate serve` is running.",
                    ) from None
                time.sleep(min(5.0, 0.1 * 2**failures) * random.uniform(0.5, 1))

    # messages
    def _send(self, kind: str, **fields: Any) -> None:
        assert self._socket is not None
        self._socket.send(encode(kind, **fields))

    def _receive(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message; those that were put aside come first."""
        if self._later:
            return self._later.pop(0)
        return self._next(timeout)

    def _next(self, timeout: float | None = None) -> dict[str, Any]:
        assert self._socket is not None
        while isinstance(frame := self._socket.recv(timeout), bytes):
            pass  # of a download that a new task has ended
        return decode(frame)

    def _greet(self) -> None:
        state = self.state
        self._send(
            "hello",
            protocols=[VERSION],
            engine="edgewise/python",
            schema=self.training.schema.sha256,
            codecs=list(CODECS),
            resume=state.token,
            have=state.have,
            name=self.name,
            ticket=self.ticket,
            secure=[SECURE],
        )
        answer = self._next(SILENCE)
        if answer["kind"] == "refused":
            raise Refusal(str(answer.get("code")), str(answer.get("reason")), self.url)
        state.welcome(answer)

    def _serve(self) -> bool:
        """Handles messages. Returns True after the server's bye."""
        while True:
            message = self._receive()
            kind = message["kind"]
            if kind == "bye":
                return True
            if kind == "result":
                self._result(message)
            elif kind in ("task", "weights"):
                try:
                    self._task(message) if kind == "task" else self._last(message)
                except Aborted:
                    pass  # the deadline has passed: the server knows
                except EdgewiseError as e:
                    self._decline(message, e)

    def _last(self, message: Mapping[str, Any]) -> None:
        """Takes the weights after the last round."""
        check_task(message, NAMES)
        self._download(message)
        self._send("have", base=self.state.have)
        if self.on_weights is not None:
            self.on_weights(self.state.values)

    def _result(self, message: dict[str, Any]) -> None:
        if type(message.get("round")) is not int or type(message.get("counted")) is not bool:
            return  # it says nothing
        self.rounds += 1
        self.state.result(message)
        if self.on_result is not None:
            self.on_result(message)

    def _decline(self, task: Mapping[str, Any], error: EdgewiseError) -> None:
        reason = "terms" if error.where == "terms" else "training failed"
        known = {n: task[n] for n in ("run", "round") if NAMES[n](task.get(n))}
        self._send("decline", **known, reason=reason)
        if self.on_decline is not None:
            self.on_decline(str(error))

    # rounds
    def _task(self, task: dict[str, Any]) -> None:
        check_task(task, TASK_FIELDS)
        end = time.monotonic() + float(task["deadline"])
        plan = plan_of(task)
        self.terms.check(task, plan, self.state)
        state = self.state
        finished = state.finished
        if finished is None or finished.key != key_of(task, plan):
            self._download(task)
            finished = self._train(task, plan, end)
        elif state.have != task["base"]:
            self._download(task)
        if plan is None:
            self._upload(announcement(task, finished, finished.data), finished.data)
        else:
            self._secure(task, plan, finished, end)

    def _secure(self, task: Mapping[str, Any], plan: Plan, finished: Finished, end: float) -> None:
        """Takes part in the sum of a group."""
        parts = SecureRound(
            plan, finished, self.state, self._changing(task), self.identity, self.terms
        )
        end += STAGES * float(task["secure"]["stage"])
        last = parts.play(
            end,
            lambda kind, fields: self._send(kind, **fields),
            self._receive,
            lambda data: self._upload(announcement(task, finished, data), data),
            self._result,
        )
        if last["kind"] == "refused":
            if last.get("code") != "stale":
                raise InputError(str(last.get("reason"))[:300], self.url)
        else:
            self._later.insert(0, last)

    def _download(self, task: Mapping[str, Any]) -> None:
        """Fetches the weights of a task, from where an earlier connection has ended."""
        if self.state.have == task["base"]:
            return
        schema = self.training.schema
        file = file_of(task, list(schema.shapes.items()))
        assert self._socket is not None
        if self._partial[0] != file.sha256:
            self._partial = file.sha256, bytearray()
        data = self._partial[1]
        if len(data) < file.size:
            self._send("fetch", run=task["run"], round=task["round"], offset=len(data))
        while len(data) < file.size:
            frame = self._socket.recv(SILENCE)
            if isinstance(frame, bytes):
                data += frame
                self.received_bytes += len(frame)
                continue
            message = decode(frame)
            if message["kind"] == "refused":
                if message.get("code") == "stale":
                    raise Aborted("the server has ended the task")
                raise Refusal(str(message.get("code")), str(message.get("reason")), self.url)
            self._later.append(message)
            if message["kind"] in ENDS:
                raise Aborted("the server has ended the task")
        self._partial = "", bytearray()
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise InputError("the downloaded weights do not match their SHA-256", "task")
        fields = {"run": task["run"]}
        if file.content != "weights" and self.state.have is None:
            raise InputError("it is a difference from weights that are not here", "task")
        if file.content == "weights":
            values = unpack(bytes(data), schema, "float32", fields, kind="weights")
        else:
            delta = unpack(
                bytes(data),
                schema.part(file.part),
                file.codec,
                {**fields, "base": self.state.have or ""},
            )
            values = {**self.state.values, **{n: self.state.values[n] + delta[n] for n in delta}}
        if base_of(values, schema) != task["base"]:
            raise InputError("the weights are not those that the task names", "task")
        self.state.receive(task["base"], values)

    def _changing(self, task: Mapping[str, Any]) -> Schema:
        """The parameters that a task changes."""
        return self.training.schema.part(task.get("part"))

    def _train(self, task: Mapping[str, Any], plan: Plan | None, end: float) -> Finished:
        state, schema = self.state, self._changing(task)
        config = dict(task["config"])
        for name in ("part", "audit"):  # fields of the task, which a config must not stand for
            config[name] = task.get(name)
        config["kept"] = state.kept.get(task["run"], b"")
        for name in SETTINGS:
            if config.get(name) and name not in getattr(self.training, "settings", ()):
                raise InputError("this client does not train with it", f"config '{name}'")
        trained = self.training.train(
            state.values,
            config,
            task["seed"],
            task["round"],
            lambda: self._leaving or time.monotonic() > end,
        )
        changes: dict[str, Floats] = {
            n: np.asarray(trained.values[n], np.float32) - state.values[n] for n in schema.shapes
        }
        kept = {task["run"]: trained.kept} if trained.kept else {}
        if plan is not None:
            state.finish(*make_update(plan, changes, schema, state), kept)
            assert state.finished is not None
            return state.finished
        # what was rounded away comes from the client's data: an audit's update is without it
        audit = task.get("audit") is not None
        changes, before = clipped(changes, task, {} if audit else state.left)
        fields = {"base": task["base"], "run": task["run"], "round": str(task["round"])}
        data, _, left = pack(changes, schema, task["codec"], fields, before)
        state.finish(
            Finished(
                key_of(task, None), data, trained.examples, trained.steps, dict(trained.metrics)
            ),
            state.left if audit else left,
            state.kept if audit else kept,
        )
        assert state.finished is not None
        return state.finished

    def _upload(self, update: dict[str, Any], data: bytes) -> None:
        """Announces and sends a file, until it is accepted or rejected."""
        assert self._socket is not None
        sha256 = update["sha256"]
        self._send("update", **update)
        sent, last = -1, 0
        while True:
            message = self._next(SILENCE)
            kind = message["kind"]
            if kind in ("ack", "accepted", "rejected") and message.get("sha256") == sha256:
                if kind == "accepted":
                    if update["codec"] != MASKED:
                        self.state.accepted()
                    return
                if kind == "rejected":
                    self.state.rejected()
                    return
                offset: Any = message.get("offset")
                if not is_offset(offset, last, len(data)):
                    raise InputError("it has acknowledged bytes that do not exist", self.url)
                last = offset
                sent = offset if sent < 0 else sent
                while sent < min(len(data), offset + WINDOW * CHUNK):
                    self._socket.send(data[sent : sent + CHUNK])
                    self.sent_bytes += len(data[sent : sent + CHUNK])
                    sent += CHUNK
            elif kind == "refused":
                if message.get("code") == "stale":
                    return  # the round has ended meanwhile
                raise Refusal(str(message.get("code")), str(message.get("reason")), self.url)
            else:
                self._later.append(message)
                if kind in ENDS:
                    return  # the round has ended meanwhile


NAMES: dict[str, Callable[[Any], bool]] = {
    "run": lambda x: isinstance(x, str),
    "round": lambda x: type(x) is int and x >= 0,
    "base": lambda x: isinstance(x, str),
}
TASK_FIELDS: dict[str, Callable[[Any], bool]] = {
    **NAMES,
    "codec": lambda x: x in CODECS,
    "config": lambda x: isinstance(x, dict),
    "seed": lambda x: type(x) is int,
    "cohort": lambda x: type(x) is int,
    "deadline": lambda x: _is_time(x),
    "secure": lambda x: x is None or isinstance(x, dict) and _is_time(x.get("stage")),
    "privacy": lambda x: x is None or isinstance(x, dict),
    "part": lambda x: x is None or isinstance(x, str),
    # an empty one would lift the terms, and train as if there were none
    "audit": lambda x: x is None or isinstance(x, dict) and isinstance(x.get("texts"), list),
}


def _is_time(x: object) -> bool:
    return isinstance(x, (int, float)) and 0 <= x < 1e9  # seconds


def check_task(task: Mapping[str, Any], fields: Mapping[str, Callable[[Any], bool]]) -> None:
    """Raises InputError unless a message of a server has these fields."""
    for name, right in fields.items():
        if not right(task.get(name)):
            raise InputError(f"its field '{name}' is missing or wrong", "task")
