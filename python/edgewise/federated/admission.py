"""Who may take part: the hub's options, and the check of a client's first message."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .codec import Schema
from .protocol import Refusal, choose_version
from .secure import VERSION

LOOPBACK = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
"""Origins of pages of this machine."""


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
        terms: what clients are told about the rounds.
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
