"""A client of the hub: trains when it is asked to and sends what changed.

    client = FederatedClient("ws://127.0.0.1:8765", LocalTraining(trainer, texts))
    client.run()

It comes back after a lost connection. With a `folder`, it also comes back after its process was
killed: what it has finished for a round is sent again, byte for byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
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

from ...errors import InputError
from ...host.drive import drive
from ...locks import locked
from ...logic.federated.client import Client, Options
from ...logic.federated.group import take_part
from ...logic.federated.requests import (
    Announce,
    Finished,
    Receive,
    SendPart,
    Told,
    Train,
    Unpack,
    WriteUpdate,
)
from ...logic.federated.tasks import CHUNK, MAX_TEXT, SUBPROTOCOL
from ...logic.federated.terms import SETTINGS
from .client_secure import ClientTerms, Secure, clipped
from .client_state import ClientState
from .codec import Floats, Schema, Values, base_of, pack, unpack
from .protocol import decode, encode
from .secure.identity import Identity

__all__ = ["SETTINGS", "ClientTerms", "FederatedClient", "Trained", "Training"]

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
        self._socket: ClientConnection | None = None
        self._leaving = self._welcomed = False
        self._values: dict[str, Floats] = {}  # of the last Unpack
        self._trained: Trained | None = None
        self._kept: dict[str, bytes] = {}

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
        schema, failures = self.training.schema, 0
        settings = getattr(self.training, "settings", ())
        options = Options(
            self.url, schema.sha256, list(schema.shapes.items()), settings, self.terms.read, SILENCE
        )
        client = Client(self.state, options)
        answers = self._answers(client)
        while not self._leaving:
            try:
                with connect(
                    self.url,
                    subprotocols=[Subprotocol(SUBPROTOCOL)],
                    compression=None,
                    max_size=max(CHUNK, MAX_TEXT),
                    max_queue=WAITING,
                ) as socket:
                    self._socket = socket
                    drive(client.talk(), lambda request: answers[request.kind](request))
                    return
            except InvalidURI as e:
                raise InputError(e.msg, self.url, "Give ws://HOST:PORT or wss://HOST.") from None
            except (ConnectionClosed, OSError, InvalidHandshake, TimeoutError) as e:
                failures = 1 if self._welcomed else failures + 1
                self._welcomed = False
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

    def _answers(self, client: Client) -> dict[str, Callable[[Any], Any]]:
        """What requests of logic ask for, by kind."""
        state, schema = self.state, self.training.schema
        secure = Secure(self.identity, state, schema, self._changes, lambda: self._kept)
        answers: dict[str, Callable[[Any], Any]] = {
            **secure.answers,
            "hello": lambda _: {
                "engine": "edgewise/python",
                "name": self.name,
                "ticket": self.ticket,
            },
            "welcome": self._welcome,
            "send": lambda r: self._send(r.name, **r.fields),
            "send_part": self._send_part,
            "receive": self._receive,
            "expect": lambda _: None,
            "silent": self._silent,
            "now": lambda _: time.monotonic(),
            "allowed": lambda _: "",
            "fingerprint": lambda r: _fingerprint(r.value),
            "unpack": self._unpack,
            "keep": lambda _: state.receive(self._values),
            "train": self._train,
            "write_update": self._pack,
            "store": lambda _: state.save(),
            "counted": lambda _: state.accepted(),
            "announce": self._announce,
            "progress": lambda _: None,
            "result": self._result,
            "last": lambda _: self.on_weights and self.on_weights(state.values),
            "declined": lambda r: self.on_decline and self.on_decline(str(r.error)),
            "take_part": lambda r: drive(
                take_part(client, r), lambda inner: answers[inner.kind](inner)
            ),
        }
        return answers

    # the connection
    @property
    def _connected(self) -> ClientConnection:
        assert self._socket is not None
        return self._socket

    def _send(self, kind: str, **fields: Any) -> None:
        self._connected.send(encode(kind, **fields))

    def _welcome(self, _: object) -> None:
        self._welcomed = True

    def _silent(self, _: object) -> None:
        raise TimeoutError("no answer to hello")

    def _receive(self, request: Receive) -> dict[str, Any] | bytes | None:
        left = request.end - time.monotonic()
        if left <= 0:
            return None
        try:
            frame = self._connected.recv(None if left == math.inf else min(left, SILENCE))
        except TimeoutError:
            if left > SILENCE:
                raise  # the connection is lost
            return None
        if isinstance(frame, bytes):
            self.received_bytes += len(frame)
            return frame
        return decode(frame)

    def _send_part(self, request: SendPart) -> None:
        for at in range(request.begin, request.end, CHUNK):
            part = request.data[at : min(at + CHUNK, request.end)]
            self._connected.send(part)
            self.sent_bytes += len(part)

    def _announce(self, request: Announce) -> None:
        noise = request.more.get("noise")
        if request.context is not None and noise is not None:
            self.state.spent[request.context.hex()] = noise
            self.state.save()

    def _result(self, request: Any) -> None:
        self.rounds += 1
        if self.on_result is not None:
            self.on_result(request.message)

    # weights
    def _unpack(self, request: Unpack) -> str:
        state, schema, file = self.state, self.training.schema, request.file
        data, part = b"".join(request.parts), schema.part(file.part)
        if file.content == "weights":
            part = schema
        found = unpack(data, part, file.codec, request.metadata, kind=file.content)
        if file.content != "weights":
            found = {**state.values, **{n: state.values[n] + found[n] for n in found}}
        self._values = found
        return base_of(found, schema)

    def _train(self, request: Train) -> Told:
        state = self.state
        config = {**request.config, "kept": state.kept.get(request.run, b"")}
        self._trained = trained = self.training.train(
            state.values,
            config,
            request.seed,
            request.number,
            lambda: self._leaving or time.monotonic() > request.end,
        )
        self._kept = {request.run: trained.kept} if trained.kept else {}
        return Told(trained.examples, trained.steps, dict(trained.metrics))

    def _changes(self, schema: Schema) -> dict[str, Floats]:
        """The changes of the last training."""
        assert self._trained is not None
        after, before = self._trained.values, self.state.values
        return {n: np.asarray(after[n], np.float32) - before[n] for n in schema.shapes}

    def _pack(self, request: WriteUpdate) -> Finished:
        state, schema = self.state, self.training.schema.part(request.part)
        # what was rounded away comes from the client's data: an audit's update is without it
        changes, before = clipped(
            self._changes(schema), request.clip, {} if request.audit else state.left
        )
        data, _, left = pack(changes, schema, request.codec, request.metadata, before)
        if request.audit:
            state.next(state.left, state.kept)
        else:
            state.next(left, self._kept)
        told, sha256 = request.told, hashlib.sha256(data).hexdigest()
        return Finished(request.key, data, sha256, told.examples, told.steps, told.metrics, None)


def _fingerprint(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
