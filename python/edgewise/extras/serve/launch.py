"""A server in this thread, or in one of its own."""

from __future__ import annotations

import socket
import threading

import uvicorn

from ...errors import InputError
from .app import Service
from .catalog import Catalog
from .connections import CONNECTIONS, Connection
from .options import ServeOptions


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
                http=Connection,
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=2 * CONNECTIONS + options.limits.waiting,
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
