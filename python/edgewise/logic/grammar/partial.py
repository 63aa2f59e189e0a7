"""The value of JSON that is still being written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..native import number_of, written_json
from .cursor import Place

MAX_DEPTH = 500
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SPACE = " \t\r\n"


class PartialJson(Place):
    """Reads JSON that may end anywhere: a string that is not closed has what there is of it, names
    without values and numbers that may go on are left out, as are broken parts at the end.

    Args:
        text: its beginning.
    """

    def value(self, depth: int = 0) -> tuple[Any, bool]:
        """(the value, whether there is one)"""
        self.space()
        c = self.peek()
        if depth > MAX_DEPTH or not c:
            return None, False
        if c == "{":
            return self.members(depth), True
        if c == "[":
            return self.elements(depth), True
        if c == '"':
            return self.string()[0], True
        start = self.at
        while self.peek() and self.peek() not in ",]} \t\r\n":
            self.at += 1
        word = "".join(self.text[start : self.at])
        if word in ("true", "false"):
            return word == "true", True
        if word == "null":
            return None, True
        if c not in "-0123456789" or (self.at == len(self.text) and depth):
            return None, False
        return number_of(word)

    def space(self) -> None:
        """Skips white space."""
        while self.peek() and self.peek() in _SPACE:
            self.at += 1

    def members(self, depth: int) -> dict[str, Any]:
        """An object."""
        made: dict[str, Any] = {}
        self.at += 1
        while True:
            self.space()
            if self.peek() != '"':
                break
            name, closed = self.string()
            self.space()
            if not closed or self.peek() != ":":
                break
            self.at += 1
            value, known = self.value(depth + 1)
            if known:
                made[name] = value
            self.space()
            if self.peek() != ",":
                break
            self.at += 1
        if self.peek() == "}":
            self.at += 1
        return made

    def elements(self, depth: int) -> list[Any]:
        """An array."""
        made: list[Any] = []
        self.at += 1
        while True:
            self.space()
            if self.peek() == "]":
                break
            value, known = self.value(depth + 1)
            if known:
                made.append(value)
            self.space()
            if self.peek() != ",":
                break
            self.at += 1
        if self.peek() == "]":
            self.at += 1
        return made

    def string(self) -> tuple[str, bool]:
        """(a string, whether it is closed)"""
        made: list[str] = []
        self.at += 1
        while self.peek():
            c = self.text[self.at]
            self.at += 1
            if c == '"':
                return "".join(made), True
            if c == "\\":
                c = self.escape()
                if not c:
                    break
            made.append(c)
        return "".join(made), False

    def escape(self) -> str:
        """What a backslash stands for; "" where it is not complete."""
        c = self.peek()
        self.at += 1
        if c != "u":
            return _ESCAPES.get(c, c)
        code = self.code()
        if 0xD800 <= code < 0xDC00 and "".join(self.text[self.at : self.at + 2]) == "\\u":
            self.at += 2
            low = self.code()
            return "" if low < 0 else chr(0x10000 + 1024 * (code - 0xD800) + low - 0xDC00)
        return "" if code < 0 else chr(code)

    def code(self) -> int:
        """Four hexadecimal digits; -1: they are not complete."""
        value = 0
        for _ in range(4):
            c = self.peek()
            digit = "0123456789abcdef".find(c.lower()) if c else -1
            if digit < 0:
                return -1
            value = 16 * value + digit
            self.at += 1
        return value


def is_json(response_format: Any) -> bool:
    """Whether the texts of a format are JSON."""
    if not isinstance(response_format, dict):
        return False
    form: dict[str, Any] = response_format
    return form.get("type") not in ("text", "regex", "grammar", "choices")


class ParsedText:
    """The value of JSON that arrives in pieces.

    Args:
        take: called with the value when it has changed.
    """

    def __init__(self, take: Callable[[Any], object]) -> None:
        self.take = take
        self.text = ""
        self.last = ""

    def put(self, piece: str) -> None:
        """Takes a piece of the text."""
        if not piece:
            return
        self.text += piece
        value = parsed(self.text)
        now = written_json(value)
        if value is not None and now != self.last:
            self.last = now
            self.take(value)


def parsed(text: str) -> Any:
    """The value of JSON, as far as it is written; None: there is none yet."""
    return PartialJson(text).value()[0]
