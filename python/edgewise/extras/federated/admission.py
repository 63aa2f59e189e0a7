"""Who may take part: the hub's options, the check of a client's first message, and how many
connections and messages there may be.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.server import ServerConnection

from .codec import Schema
from .protocol import Refusal, choose_version
from .secure import VERSION

LOOPBACK = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
"""Origins of pages of this machine."""


MESSAGES, BURST = 20.0, 200  # messages of a client: in each second, and at once


@dataclass(frozen=True)
class HubOptions:
    """Where the hub listens, and its limits.

    Attributes:
        host, port: address; port 0: a free one.
        origins: origins of the pages that may connect, "*" for all. None: all if there are
            tickets, else pages of this machine. Programs that are no browsers have no origin and
            may connect.
        tickets: texts of which a client must present one; each is good for one client at a time.
            None: none is needed.
        clients: maximum number of sessions.
        grace: seconds within which a client must come back.
        stall: seconds in which a chunk of 256 KiB must pass.
        greeting: seconds in which a connection must say hello.
        silent: connections that have not said hello. With more, the oldest of the address with
            the most is closed.
        terms: information for clients about the rounds.
        secure: whether clients must have secure aggregation.
        authority: public key of who certifies the members of groups. None: nobody need do so.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    origins: tuple[str, ...] | None = None
    tickets: frozenset[str] | None = None
    clients: int = 2000
    grace: float = 30.0
    stall: float = 30.0
    greeting: float = 10.0
    silent: int = 512
    terms: Mapping[str, Any] | None = None
    secure: bool = False
    authority: bytes | None = None

    @property
    def accepted_origins(self) -> list[str | re.Pattern[str] | None] | None:
        """What websockets compares the header Origin with; None in the list: no such header."""
        if self.origins is None:
            return None if self.tickets is not None else [None, LOOPBACK]
        return None if "*" in self.origins else [None, *self.origins]


def admit(hello: Mapping[str, Any], schema: Schema, codec: str, options: HubOptions) -> str:
    """Checks what a client says first.

    Args:
        hello: a checked message `hello`.
        schema: of what is trained.
        codec: of the updates.
        options: of the hub.

    Returns:
        The SHA-256 of its ticket; empty if none is needed.

    Raises:
        Refusal: the client cannot take part.
    """
    choose_version(hello["protocols"])
    ticket = (hello["ticket"] or "").encode()
    if options.tickets is not None and not any(
        hmac.compare_digest(t.encode(), ticket) for t in options.tickets
    ):
        raise Refusal("ticket", "no valid ticket was given", "hello.ticket")
    if hello["schema"] != schema.sha256:
        raise Refusal(
            "schema",
            "the client trains other parameters",
            "hello.schema",
            "Load the model of this server, compiled with the same adapters and rank.",
        )
    if codec not in hello["codecs"]:
        raise Refusal("codec", f"the client does not have {codec}", "hello.codecs")
    if options.secure and VERSION not in (hello["secure"] or []):
        raise Refusal(
            "secure",
            "the client does not have secure aggregation",
            "hello.secure",
            "Update it; pages need a secure context (https:).",
        )
    return "" if options.tickets is None else hashlib.sha256(ticket).hexdigest()


class Messages:
    """The messages that a client may still send: BURST, and MESSAGES more in each second."""

    def __init__(self) -> None:
        self.left, self.counted = float(BURST), time.monotonic()

    def count(self) -> None:
        """Counts a message.

        Raises:
            Refusal: there were too many.
        """
        now = time.monotonic()
        self.left = min(BURST, self.left + MESSAGES * (now - self.counted))
        self.counted = now
        if self.left < 1:
            raise Refusal("rate", f"more than {MESSAGES:g} messages in a second", "", "Send fewer.")
        self.left -= 1

    def renew(self) -> None:
        """Begins again, after work that was accepted."""
        self.left = float(BURST)


class Silent:
    """Connections that have not said hello. Descriptors are few, and whoever takes them without a
    word must not keep others out: beyond `most`, the oldest of the address with the most is closed.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.waiting: dict[ServerConnection, str] = {}  # addresses, oldest first

    def enter(self, connection: ServerConnection) -> None:
        """Counts a new connection."""
        address = connection.transport.get_extra_info("peername")
        self.waiting[connection] = str(address[0]) if address else ""
        if len(self.waiting) > self.most:
            ((most, _),) = Counter(self.waiting.values()).most_common(1)
            oldest = next(c for c, at in self.waiting.items() if at == most)
            self.leave(oldest)
            oldest.transport.abort()

    def leave(self, connection: ServerConnection) -> None:
        """Forgets a connection that has said hello, or ended."""
        self.waiting.pop(connection, None)


class Counted(ServerConnection):
    """A connection of websockets that is counted from its first byte on."""

    def __init__(self, silent: Silent, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.silent = silent

    def connection_made(self, transport: Any) -> None:
        """Begins to count it."""
        super().connection_made(transport)
        self.silent.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        self.silent.leave(self)
        super().connection_lost(exc)
