"""Where a server listens, who may use it, and its limits."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from ...errors import InputError
from ...logic.openai.requests import TextLimits


@dataclass(frozen=True)
class Limits(TextLimits):
    """What one request may ask for.

    Attributes:
        body: bytes of a request's body.
        tensors: bytes of a request's body with tensors, and of all tensors of its answer.
        seconds: in which a body must arrive.
        waiting: requests that wait for the engine; further ones are refused.
        inputs: texts of a request for embeddings.
        tokens, choices, stops, stop_chars, logprobs: of TextLimits.
    """

    body: int = 1 << 20
    tensors: int = 64 << 20
    seconds: float = 30.0
    waiting: int = 32
    inputs: int = 256


@dataclass(frozen=True)
class ServeOptions:
    """Options of a server.

    Attributes:
        host, port: address; port 0: a free one.
        api_key: what clients must send as `Authorization: Bearer KEY`; None: nothing.
        origins: origins of the pages that may send requests ("*": all). Programs that are no
            browsers send no origin, and are served.
        hosts: names under which a proxy passes requests on, without a port. A server that others
            than this machine reach is asked by any name, unless there are such names.
        limits: see Limits.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Raises InputError for options that would serve everybody, or that mean nothing."""
        if self.api_key is not None and not (
            self.api_key and self.api_key.isascii() and self.api_key.isprintable()
        ):
            raise InputError(
                "it is not of printable ASCII characters", "api_key", "Choose another."
            )
        for origin in self.origins:
            if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\s@A-Z]+", origin):
                raise InputError(
                    f"{origin[:80]!r} is no origin of a page",
                    "origin",
                    "Write it as browsers do: https://name or https://name:port, without a path.",
                )
        for name in self.hosts:
            if not re.fullmatch(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", name):
                raise InputError(
                    f"{name[:80]!r} is no name of a machine",
                    "allowed_host",
                    "Write it as in the address of pages: name or 192.0.2.1, without a port.",
                )
        if not self.loopback and self.api_key is None:
            raise InputError(
                f"without a key everybody who reaches {self.host} could use the models",
                "host",
                "Pass --api-key, or set EDGEWISE_API_KEY, or listen on 127.0.0.1.",
            )
        if not 0 <= self.port < 65536:
            raise InputError(f"{self.port} is not a port", "port", "Give 0 to 65535.")
