"""The weights after the last round: clients fetch them outside of a task, before the hub's bye."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .broadcast import Base
from .protocol import encode
from .sessions import Session

AWAY = 5.0  # seconds in which a client without a connection may still come back for them
LOOK = 0.05  # seconds between looks at what is still missing


@dataclass(frozen=True)
class Last:
    """Weights that all clients shall have.

    Attributes:
        run: the run that has ended.
        number: of the round that would be next.
        base: the weights.
    """

    run: str
    number: int
    base: Base

    def message(self, session: Session) -> str:
        """The message `weights` for a client."""
        file = self.base.file_for(session.have)
        return encode(
            "weights",
            run=self.run,
            round=self.number,
            base=self.base.sha256,
            file=file and file.announcement,
        )

    def named(self, message: Mapping[str, Any]) -> bool:
        """Whether a message `fetch` asks for them."""
        return (message["run"], message["round"]) == (self.run, self.number)

    async def arrived(self, sessions: Mapping[int, Session], seconds: float) -> None:
        """Waits until all clients have them, for `seconds` at most."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._missing(sessions.values()):
            await asyncio.sleep(LOOK)

    def _missing(self, sessions: Collection[Session]) -> bool:
        now = time.monotonic()
        return any(
            s.have != self.base.sha256 and (s.socket is not None or now - s.left < AWAY)
            for s in sessions
        )
