"""Calls as Python and Gemma write them, while they are written: `[f(a=1, b="x")]`,
`call:f{a:1,b:<escape>x<escape>}`.

What is told of the arguments is the beginning of `json_of` of them. Texts are told as they come,
other values when they are whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .bodies import GEMMA_QUOTES, is_text, properties_of, typed
from .values import QUOTES, Call, Reader, Unread, check_name, ends_text, is_of_name, json_of

_SPACE = " \t\r\n"
_EAGER = 2000
"""Characters of a value up to which each new one may end it; then it is tried more seldom."""

State = Literal["name", "key", "value", "text", "other", "after", "off"]


class PythonCalls:
    """Calls with arguments that are no JSON.

    Args:
        tools: as `tools_of` returns them.
        gemma: whether they are Gemma's.
        only_known: whether calls of other tools are none.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], gemma: bool, only_known: bool) -> None:
        self._tools, self._gemma, self._only_known = tools, gemma, only_known
        self._known: set[str] = set()
        for tool in tools:
            function: dict[str, Any] = tool["function"]
            self._known.add(function["name"])
        self._open, self._close, self._sign = ("{", "}", ":") if gemma else ("(", ")", "=")
        self._quotes: list[str] = [*(GEMMA_QUOTES if gemma else ()), *QUOTES]
        self._state: State = "name"
        self._held: list[str] = []
        self._at = 0  # what is held before it is read
        self._kinds: dict[str, Any] = {}
        self._schema: Any = None
        self._count = 0  # arguments of the call
        self._quote = ""
        self._tried = 0  # characters of a value that was not whole
        self._told: list[str] = []  # of the last call
        self._made: list[tuple[str, str]] = []

    def push(self, text: str) -> list[tuple[str, str]]:
        """As of written.Calls."""
        if self._state == "off":
            return []
        self._made = []
        self._held.extend(list(text))
        going = True
        while going:
            try:
                going = self._step()
            except Unread:
                self._state = "off"
                going = False
        self._held = self._held[self._at :]
        self._at = 0
        return self._made

    def end(self, call: Call) -> list[tuple[str, str]]:
        """What was not told of the last call. call: it, which is whole."""
        told = "".join(self._told)
        whole = json_of(call.arguments)
        rest = whole.removeprefix(told) if whole.startswith(told) else ""
        return [("", rest)] if rest != "" else []

    def _step(self) -> bool:
        """Reads a part. Returns whether there was enough of it. Raises Unread."""
        if self._state == "name":
            return self._name()
        if self._state == "text":
            return self._text()
        c = self._peek()
        if c == "":
            return False
        if self._state == "key":
            return self._key(c)
        if self._state == "value":
            return self._value()
        if self._state == "other":
            return self._other()
        return self._after(c)

    def _peek(self) -> str:
        """The next character that is no space; "" if there is none yet."""
        while self._at < len(self._held) and self._held[self._at] in _SPACE:
            self._at += 1
        return self._held[self._at] if self._at < len(self._held) else ""

    def _name(self) -> bool:
        while self._peek() in ("[", ",", ";", ")") and not self._gemma:
            self._at += 1  # what is out of place makes no calls at the end
        if self._gemma and self._peek() == ",":
            self._at += 1
        left = self._held[self._at :]
        if self._open not in left:
            return False
        end = left.index(self._open)
        name = "".join(left[:end]).strip()
        self._at += end + 1
        if self._gemma:
            kind, mark, name = name.partition(":")
            if kind.strip() != "call" or mark == "":
                raise Unread("it is no call")
            name = name.strip()
        elif name == "print":
            return True
        if name == "" or not all(is_of_name(c) for c in name):
            raise Unread("it is no name")
        if self._only_known and name not in self._known:
            raise Unread("there is no such tool")
        self._made.append((name, ""))
        self._kinds = properties_of(name, self._tools)
        self._count = 0
        self._told = []
        self._state = "key"
        return True

    def _key(self, c: str) -> bool:
        if c == self._close:
            self._at += 1
            self._tell("{}" if self._count == 0 else "}")
            self._state = "name"
            return True
        end = self._at
        while end < len(self._held) and is_of_name(self._held[end]):
            end += 1
        name = "".join(self._held[self._at : end])
        while end < len(self._held) and self._held[end] in _SPACE:
            end += 1
        if end == len(self._held):
            return False
        named = self._held[end] == self._sign and name != ""
        if named:
            self._at = end + 1
        else:
            names = list(self._kinds)
            if self._gemma or self._count >= len(names):
                raise Unread("an argument has no name")
            name = names[self._count]
        check_name(name)
        self._schema = self._kinds.get(name)
        self._tell(("{" if self._count == 0 else ", ") + json_of(name) + ": ")
        self._count += 1
        self._state = "value"
        return True

    def _value(self) -> bool:
        left = "".join(self._held[self._at : self._at + 8])
        if any(len(q) > len(left) and q.startswith(left) for q in self._quotes):
            return False  # it may be a longer one
        self._quote = next((q for q in self._quotes if left.startswith(q)), "")
        if self._quote != "" and (is_text(self._schema) or not self._gemma):
            self._at += len(self._quote)
            self._tell('"')
            self._state = "text"
        else:
            self._tried = 0
            self._state = "other"
        return True

    def _text(self) -> bool:
        """Reads a text, as Reader does, as far as it is there."""
        found: list[str] = []
        going = True
        ended = False
        escapes = self._quote[0] in "\"'"
        size = len(self._quote)
        while going and self._at < len(self._held):
            c = self._held[self._at]
            left = self._held[self._at : self._at + size]
            if self._quote.startswith("".join(left)):
                after = ends_text(self._held, self._at + size)
                going = len(left) == size and not (escapes and after == "open")
                ended = going and not (escapes and after == "goes on")
            elif c == "\\" and escapes:
                found_here, used = _escape(self._held[self._at :])
                going = used > 0
                self._at += used
                if going:
                    found.append(found_here)
                continue
            if ended or not going:
                break
            found.append(c)
            self._at += 1
        if len(found) > 0:
            self._tell(json_of("".join(found))[1:-1])
        if ended:
            self._at += size
            self._tell('"')
            self._state = "after"
        return ended

    def _other(self) -> bool:
        """Reads another value, when it is whole."""
        left = self._held[self._at :]
        if len(left) > _EAGER and len(left) < self._tried * 1.25:
            return False
        self._tried = len(left)
        reader = Reader("".join(left), GEMMA_QUOTES if self._gemma else ())
        try:
            value = reader.value()
        except Unread:
            return False
        if reader.peek() not in (",", self._close):
            return False
        self._at += reader.at
        self._tell(json_of(typed(value, self._schema) if isinstance(value, str) else value))
        self._state = "after"
        return True

    def _after(self, c: str) -> bool:
        if c not in (",", self._close):
            raise Unread("an argument has no end")
        if c == ",":
            self._at += 1
        self._state = "key"
        return True

    def _tell(self, text: str) -> None:
        self._told.append(text)
        self._made.append(("", text))


def _escape(chars: list[str]) -> tuple[str, int]:
    """A character after a backslash, and how many stand for it; 0: they are not all there. Raises
    Unread.
    """
    size = 2
    if len(chars) > 1:
        size = 4 if chars[1] == "x" else 6 if chars[1] == "u" else 2
    if len(chars) < size:
        return "", 0
    reader = Reader("".join(chars[:size]))
    reader.at = 1
    return reader.escape(), size
