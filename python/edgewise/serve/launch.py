"""A server in this thread, or in one of its own."""

from __future__ import annotations

import socket
import threading
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import InputError
from .app import Service
from .catalog import Catalog
from .options import ServeOptions

CONNECTIONS = 64  # besides those whose requests wait
HEADERS = 16 << 10  # bytes of a request's headers
PATIENCE = 30.0  # seconds of a connection on which nothing goes on


class _Connection(H11Protocol):
    """A connection that is closed when the client sends half of a request's headers, or does not
    take its answer: such connections would else fill the server, before it asks for a key.
    """

    def connection_made(self, transport: Any) -> None:
        """Begins to watch it."""
        super().connection_made(transport)
        self._seen: Any = None
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends that."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        seen: Any = None
        if unsent := self.transport.get_write_buffer_size():
            seen = ("unsent", unsent)
        elif self.cycle is None or self.cycle.response_complete:
            seen = ("no request", self.cycle)
        self._timer = self.loop.call_later(PATIENCE, self._watch)
        if seen is not None and seen == self._seen:
            self.transport.abort()
        self._seen = seen


class _Http(uvicorn.Server):
    """Ends the work when it is told to end: it waits for answers in progress."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends streams with an error in words, then the connections."""
        self.service.cancel()
        await super().shutdown(sockets)


class Server:
    """A server.

        with Server(Catalog({"stories": "model.edge"}), ServeOptions(port=0)) as server:
            print(server.url)

    Args:
        catalog: the models.
        options: where it listens, and who may use it.

    Attributes:
        port: on which it listens. url: of its API, such as http://127.0.0.1:8000/v1.

    Raises:
        InputError: the address cannot be used, or everybody could use the server.
    """

    def __init__(self, catalog: Catalog, options: ServeOptions) -> None:
        options.check()
        try:
            family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
            self._socket = socket.create_server((options.host, options.port), family=family)
        except OSError as e:
            where = f"{options.host}:{options.port}"
            raise InputError(e.strerror or str(e), where, "Choose another address.") from None
        self.port = int(self._socket.getsockname()[1])
        name = f"[{options.host}]" if family == socket.AF_INET6 else options.host
        self.url = f"http://{name}:{self.port}/v1"
        self.service = Service(catalog, options)
        self._server = _Http(
            uvicorn.Config(
                self.service.app(),
                http=_Connection,
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=CONNECTIONS + options.limits.waiting,
                h11_max_incomplete_event_size=HEADERS,
                timeout_graceful_shutdown=2,
            ),
            self.service,
        )
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serves until the process is interrupted."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self.service.end()
            self._socket.close()

    def __enter__(self) -> Server:
        self._thread = threading.Thread(target=self.run, name="edgewise-http", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        assert self._thread is not None
        self._thread.join()
