"""Places in texts that are read from their beginning."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import InputError

MAX_DEPTH = 50
"""Groups within groups."""


class Place:
    """A place in a text.

    Args:
        source: the text.
    """

    def __init__(self, source: str) -> None:
        self.text = list(source)
        self.at = 0

    def peek(self, more: int = 0) -> str:
        """The next character, or one after it; "" at the end."""
        return self.text[self.at + more] if self.at + more < len(self.text) else ""

    def takes(self, c: str) -> bool:
        """Reads a character if it is this one."""
        if self.peek() != c:
            return False
        self.at += 1
        return True


@dataclass
class Fault:
    """How errors of a text are told.

    Attributes:
        what: the text is, before a colon.
        where: it stands. With `lines` also the line.
        remedy: for all of them.
        most: characters that are read.
    """

    what: str
    where: str
    remedy: str
    most: int
    lines: bool


class Cursor(Place):
    """A place in a grammar.

    Args:
        source: the text.
        fault: how errors are told.
    """

    def __init__(self, source: str, fault: Fault) -> None:
        super().__init__(source)
        self.fault = fault
        self.depth = 0
        if len(self.text) > fault.most:
            raise self.wrong(f"it has {len(self.text)} characters, at most {fault.most} are read")

    def wrong(self, what: str) -> InputError:
        """An error at the current place."""
        where = self.fault.where
        if self.fault.lines:
            line = 1 + sum(c == "\n" for c in self.text[: self.at])
            where += f", line {line}"
        return InputError(f"{self.fault.what}: {what}", where, self.fault.remedy)

    def take(self) -> str:
        """Reads a character."""
        c = self.peek()
        if not c:
            raise self.wrong("it ends too early")
        self.at += 1
        return c

    def enter(self) -> None:
        """A group begins."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.wrong(f"groups are nested more than {MAX_DEPTH} deep")

    def leave(self) -> None:
        """A group ends."""
        self.depth -= 1
