"""A site: a hub of tabs that counts as one of Flower's nodes.

A SuperNode starts a process for each message, while tabs stay connected. So a site is a process of
its own, with a hub for its tabs and a socket of the file system for the ClientApp of its SuperNode:
`edgewise federate site`. Who may open the socket's file may use the site. On the socket, a request
and its answer are each a JSON text, followed by a safetensors file.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np

from ...compiler.declare.dtypes import DOUBLE
from ...compiler.training.safetensors import load_safetensors, safetensors_parts
from ...errors import EdgewiseError, EngineError, InputError
from ...json_text import parse_json
from .broadcast import Broadcast
from .codec import Schema
from .hub import Hub
from .last import Last
from .sessions import Task
from .verify import Rules, Verified, far_from_others, too_few

MAX_TEXT = 64 << 10  # bytes of a request's JSON
LOOK = 0.1  # seconds between looks for clients

Arrays = Mapping[str, Any]


def packed(arrays: Arrays) -> bytes:
    """Arrays as a safetensors file of float64."""
    tensors = {
        n: (DOUBLE, np.shape(x), np.ascontiguousarray(x, np.float64).tobytes())
        for n, x in arrays.items()
    }
    return b"".join(safetensors_parts(tensors))


def unpacked(data: bytes, schema: Schema | None = None) -> dict[str, Any]:
    """The arrays of a file of float64.

    Raises:
        ModelError, InputError: it is damaged, or not of the schema.
    """
    tensors, _ = load_safetensors(data)
    shapes = {n: tuple(t.shape) for n, t in tensors.items() if t.dtype == DOUBLE}
    if len(shapes) != len(tensors) or schema is not None and shapes != schema.shapes:
        raise InputError("it has other parameters than this site's model", "weights")
    return {n: np.frombuffer(t.bytes(), np.float64).reshape(t.shape) for n, t in tensors.items()}


class Site:
    """Answers requests for rounds and for the last weights with the clients of a hub.

    Args:
        hub: the server of the site's clients.
        path: of the socket; a file that is there is replaced.
        least: clients without which a round does not begin; updates without which it fails.
        rules: of the updates.
    """

    def __init__(self, hub: Hub, path: str, least: int = 1, rules: Rules | None = None) -> None:
        self.hub, self.path, self.least = hub, path, least
        self.rules = rules or Rules(least=least)
        self.broadcast: Broadcast | None = None
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        before = os.umask(0o177)  # for this user alone
        try:
            self.listener = Listener(path, "AF_UNIX")
        finally:
            os.umask(before)
        self._thread = threading.Thread(target=self._serve, name="site", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the service; the hub goes on."""
        self.listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)

    def _serve(self) -> None:
        while True:
            try:
                connection = self.listener.accept()
            except OSError:
                return  # closed
            with connection, contextlib.suppress(OSError, EOFError):
                self._answer(connection)

    def _answer(self, connection: Connection) -> None:
        try:
            request = parse_json(connection.recv_bytes(MAX_TEXT), "request", InputError)
            most = 8 * self.hub.schema.count + (1 << 20) + 300 * len(self.hub.schema.shapes)
            weights = unpacked(connection.recv_bytes(most), self.hub.schema)
            told: dict[str, Any]
            arrays: dict[str, Any] = {}
            if request.get("kind") == "last":
                told = self._last(request, weights)
            else:
                told, arrays = self._round(request, weights)
        except EdgewiseError as e:
            told, arrays = {"error": str(e)}, {}
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            told, arrays = {"error": f"the request cannot be read ({type(e).__name__})"}, {}
        connection.send_bytes(json.dumps(told).encode())
        connection.send_bytes(packed(arrays))

    def _base(self, request: Mapping[str, Any], weights: Arrays) -> Any:
        run = str(request["run"])
        if self.broadcast is None or self.broadcast.run != run:
            self.broadcast = Broadcast(self.hub.schema, self.hub.codec, run)
        return self.broadcast.next(weights, int(request["round"]))

    def _last(self, request: Mapping[str, Any], weights: Arrays) -> dict[str, Any]:
        base = self._base(request, weights)
        last = Last(str(request["run"]), int(request["round"]), base)
        self.hub.publish(last, float(request["seconds"]))
        return {"participants": len(self.hub.nodes())}

    def _round(
        self, request: Mapping[str, Any], weights: Arrays
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The mean of the clients' weights, as one client's."""
        end = time.monotonic() + float(request["seconds"])
        while len(self.hub.nodes()) < self.least:
            if time.monotonic() > end:
                raise EngineError(f"the site has fewer than {self.least} clients", self.path)
            time.sleep(LOOK)
        nodes = self.hub.nodes()
        task = Task(
            str(request["run"]),
            int(request["round"]),
            self._base(request, weights),
            self.hub.codec,
            dict(request["config"]),
            int(request["seed"]),
            end - time.monotonic(),
            len(nodes),
            self.rules,
        )
        outcomes = self.hub.assign_all(dict.fromkeys(nodes, task))
        concurrent.futures.wait(outcomes.values())
        return self._mean(weights, outcomes)

    def _mean(
        self, weights: Arrays, outcomes: Mapping[int, concurrent.futures.Future[Verified]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        updates = {n: o.result() for n, o in outcomes.items() if o.exception() is None}
        refused = {n: str(o.exception()) for n, o in outcomes.items() if n not in updates}
        refused.update({n: str(e) for n, e in far_from_others(updates).items()})
        good = sorted((updates[n] for n in updates if n not in refused), key=lambda u: u.sha256)
        if few := too_few(range(len(good)), max(1, self.least)):
            raise next(iter(few.values()))
        if not good:
            raise EngineError(f"no update counts: {sorted(refused.values())[:3]}", self.path)
        examples = sum(u.examples for u in good)
        arrays = {
            n: weights[n] + sum(u.examples * u.delta[n].astype(np.float64) for u in good) / examples
            for n in self.hub.schema.shapes
        }
        losses = [u.metrics["loss"] for u in good if "loss" in u.metrics]
        told: dict[str, Any] = {"examples": examples, "participants": len(good)}
        if losses:
            told["loss"] = sum(losses) / len(losses)
        return {**told, "refused": sorted(refused.values())}, arrays


def ask(path: str, request: Mapping[str, Any], weights: Arrays) -> tuple[dict[str, Any], Any]:
    """Sends a request to a site, and waits for its answer.

    Args:
        path: of its socket.
        request: {run, round, seconds}, and {config, seed} or {kind: "last"}.
        weights: of the round, by name.

    Returns:
        What it says ({examples, participants, refused}), and its weights in float64.

    Raises:
        InputError: there is no site. EngineError: it has no result.
    """
    try:
        with Client(path, "AF_UNIX") as connection:
            connection.send_bytes(json.dumps(dict(request)).encode())
            connection.send_bytes(packed(weights))
            told = json.loads(connection.recv_bytes())
            arrays = unpacked(connection.recv_bytes())
    except (OSError, EOFError) as e:
        raise InputError(
            f"the site does not answer ({e})", path, "Start it: `edgewise federate site`."
        ) from None
    if "error" in told:
        raise EngineError(told["error"], path)
    return told, arrays
