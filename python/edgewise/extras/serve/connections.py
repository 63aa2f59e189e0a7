"""Connections of HTTP that take no more of a server than their share, before it asks for a key."""

from __future__ import annotations

from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 64  # without a request in progress
HEADERS = 16 << 10  # bytes of a request's headers
PATIENCE = 30.0  # seconds of a connection on which nothing goes on


class _Parser(h11.Connection):
    """h11's own limit is of what is incomplete: headers that arrive at once have none."""

    def next_event(self) -> Any:
        """The next event.

        Raises:
            RemoteProtocolError: the client does not speak HTTP, or its headers are too long.
        """
        event = super().next_event()
        size = sum(len(name) + len(value) + 4 for name, value in getattr(event, "headers", ()))
        if isinstance(event, h11.Request):
            size += len(event.target)
        if size > HEADERS:
            raise h11.RemoteProtocolError("headers too long", error_status_hint=431)
        return event


class Connection(H11Protocol):
    """A connection that is closed when the client sends half of a request's headers, or does not
    take its answer, or when there are too many that wait for a request: such connections would else
    fill the server. Of those that wait, the oldest of the address with the most is closed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Parser(h11.SERVER, HEADERS)

    def connection_made(self, transport: Any) -> None:
        """Begins to watch it."""
        super().connection_made(transport)
        self._seen: Any = None
        self._since = self.loop.time()
        self._watch()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends that."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Waits for the next request."""
        self._since = self.loop.time()
        super().on_response_complete()

    @property
    def waits(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> None:
        waiting = [
            c
            for c in self.connections
            if isinstance(c, Connection) and c.waits and not c.transport.is_closing()
        ]
        if len(waiting) > CONNECTIONS:
            addresses = Counter(c.client and c.client[0] for c in waiting)
            ((most, _),) = addresses.most_common(1)
            own = [c for c in waiting if (c.client and c.client[0]) == most]
            min(own, key=lambda c: c._since).transport.abort()

    def _watch(self) -> None:
        seen: Any = None
        if unsent := self.transport.get_write_buffer_size():
            seen = ("unsent", unsent)
        elif self.waits:
            seen = ("no request", self.cycle)
        self._timer = self.loop.call_later(PATIENCE, self._watch)
        if seen is not None and seen == self._seen:
            self.transport.abort()
        self._seen = seen
