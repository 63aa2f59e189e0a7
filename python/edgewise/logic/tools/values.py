"""Values in calls of tools: JSON, arguments as Python writes them, and Gemma's maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..native import digits_of, listed, number_of

MAX_DEPTH = 64
MAX_NUMBER = 1.7976931348623157e308

QUOTES = ('"""', "'''", '"', "'")
"""What texts of Python stand between."""
_ENDS = {"{": "}", "[": "]", "(": ")"}
_ESCAPES: dict[str, str] = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}


@dataclass
class Call:
    """A call of a tool.

    Attributes:
        name: of the tool.
        arguments: by their names.
    """

    name: str
    arguments: dict[str, Any]
    kind: Literal["call"] = "call"


class Unread(Exception):
    """A text is not what it should be."""


class Reader:
    """Reads a text from its beginning.

    Args:
        text: the text.
        quotes: what strings stand between, besides quotation marks.
    """

    def __init__(self, text: str, quotes: Sequence[str] = ()) -> None:
        self.chars = list(text)
        self.at = 0
        self.quotes = [list(q) for q in quotes]

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while self.at < len(self.chars) and self.chars[self.at] in " \t\r\n":
            self.at += 1
        return self.chars[self.at] if self.at < len(self.chars) else ""

    def take(self, char: str) -> bool:
        """Whether the next character is this one, which is then read."""
        if self.peek() != char:
            return False
        self.at += 1
        return True

    def need(self, char: str) -> None:
        """Reads this character. Raises Unread."""
        if not self.take(char):
            raise Unread(f"there is no {char}")

    def name(self) -> str:
        """Reads a name, with points and dashes. Raises Unread: there is none."""
        self.peek()
        start = self.at
        while self.at < len(self.chars) and is_of_name(self.chars[self.at]):
            self.at += 1
        if self.at == start:
            raise Unread("there is no name")
        return "".join(self.chars[start : self.at])

    def until(self, char: str) -> str:
        """Reads the text before a character. Raises Unread: it does not follow."""
        start = self.at
        while self.at < len(self.chars) and self.chars[self.at] != char:
            self.at += 1
        if self.at == len(self.chars):
            raise Unread(f"there is no {char}")
        return "".join(self.chars[start : self.at])

    def json(self) -> Any:
        """Reads a value of JSON. Raises Unread."""
        self.peek()
        start = self.at
        depth = 0
        while self.at < len(self.chars):
            c = self.chars[self.at]
            if c == '"':
                self._skip_string()
            else:
                self.at += 1
                depth += 1 if c in "{[" else -1 if c in "}]" else 0
            if depth > MAX_DEPTH:
                raise Unread("it is too deep")
            if depth <= 0:
                break
        value, is_json = number_of("".join(self.chars[start : self.at]))
        if not is_json:
            raise Unread("it is not JSON")
        return value

    def _skip_string(self) -> None:
        self.at += 1
        while self.at < len(self.chars) and self.chars[self.at] != '"':
            self.at += 2 if self.chars[self.at] == "\\" else 1
        self.at += 1

    def value(self, depth: int = 0) -> Any:
        """Reads a value as Python or Gemma writes it. Raises Unread."""
        if depth > MAX_DEPTH:
            raise Unread("it is too deep")
        c = self.peek()
        quote = self._quote()
        if len(quote) > 0:
            return self._between(quote)
        if c == "{":
            self.at += 1
            return self.fields("}", ":", depth + 1)
        if c in ("[", "("):
            self.at += 1
            return self._items(_ENDS[c], depth + 1)
        return self._word()

    def fields(self, end: str, sign: str, depth: int = 0) -> dict[str, Any]:
        """Reads names and values up to an end. sign: what stands between them. Raises Unread."""
        found: dict[str, Any] = {}
        while not self.take(end):
            self.peek()
            quote = self._quote()
            name = self._between(quote) if len(quote) > 0 else self.name()
            self.need(sign)
            check_name(name)
            found[name] = self.value(depth)
            if not self.take(","):
                self.need(end)
                break
        return found

    def _items(self, end: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self.take(end):
            found.append(self.value(depth))
            if not self.take(","):
                self.need(end)
                break
        return found

    def _quote(self) -> list[str]:
        """What a string begins with here; [] if there is none."""
        for quote in [*self.quotes, *[list(q) for q in QUOTES]]:
            if self._is_at(quote):
                return quote
        return []

    def _is_at(self, text: list[str]) -> bool:
        return self.chars[self.at : self.at + len(text)] == text

    def _between(self, quote: list[str]) -> str:
        self.at += len(quote)
        found: list[str] = []
        escapes = quote[0] in "\"'"
        while not (self._is_at(quote) and (not escapes or self._ends(len(quote)))):
            if self.at >= len(self.chars):
                raise Unread("a text has no end")
            c = self.chars[self.at]
            self.at += 1
            if c == "\\" and escapes and self.at < len(self.chars):
                c = self.escape()
            found.append(c)
        self.at += len(quote)
        return "".join(found)

    def _ends(self, size: int) -> bool:
        """Whether a quotation mark here ends a text."""
        return ends_text(self.chars, self.at + size) != "goes on"

    def escape(self) -> str:
        """The character that stands after a backslash. Raises Unread."""
        c = self.chars[self.at]
        self.at += 1
        count = 2 if c == "x" else 4 if c == "u" else 0
        if count == 0:
            return _ESCAPES.get(c, c if c in "\\\"'" else "\\" + c)
        digits = "".join(self.chars[self.at : self.at + count])
        if len(digits) < count or not all(d in "0123456789abcdefABCDEF" for d in digits):
            raise Unread("an escape is not complete")
        self.at += count
        return chr(int(digits, 16))

    def _word(self) -> Any:
        start = self.at
        while self.at < len(self.chars) and self.chars[self.at] not in ",)]}=(:\n":
            self.at += 1
        text = "".join(self.chars[start : self.at]).strip()
        if text in ("true", "True", "false", "False"):
            return text in ("true", "True")
        if text in ("null", "None"):
            return None
        digits = text.removeprefix("-").lstrip("0")
        zeros = len(text) > 1 and text.removeprefix("-").startswith("0")
        if zeros and digits != "" and digits[0] in "123456789":  # a day 05
            text = ("-" if text.startswith("-") else "") + digits
        value, is_number = number_of(text)
        if not is_number:
            raise Unread("it is no value")
        return value


def check_name(name: str) -> None:
    """Raises Unread for a name that objects of JavaScript have for something else."""
    if name == "__proto__":
        raise Unread("no argument has this name")


def ends_text(chars: Sequence[str], at: int) -> Literal["ends", "goes on", "open"]:
    """Whether a quotation mark before `at` ends a text. Models, and templates such as LFM2's, leave
    those within a text as they are: after the last one, a comma, a bracket or the end follows.
    `open`: nothing but spaces follows.
    """
    while at < len(chars) and chars[at] in " \t\r\n":
        at += 1
    if at >= len(chars):
        return "open"
    return "ends" if chars[at] in ",)]}:;" else "goes on"


def is_of_name(c: str) -> bool:
    """Whether names of tools and arguments have this character."""
    return c.isalnum() or c in "_.-"


_WRITTEN: dict[str, str] = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}


def json_of(value: Any, depth: int = 0) -> str:
    """A value as JSON, written alike in both hosts, with spaces after commas and colons.

    Raises:
        Unread: it is no JSON, or too deep.
    """
    if depth > MAX_DEPTH:
        raise Unread("it is too deep")
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _json_string(value)
    if isinstance(value, dict):
        fields: dict[str, Any] = value
        if not all(isinstance(k, str) for k in fields):
            raise Unread("a name is no text")
        inside = [_json_string(k) + ": " + json_of(v, depth + 1) for k, v in fields.items()]
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, (int, float)):
        number: float = value
        if not -MAX_NUMBER <= number <= MAX_NUMBER:  # integers of Python are longer
            raise Unread("it is no finite number")
        return digits_of(number) if number >= 0 else "-" + digits_of(-number)
    items = listed(value)
    if items is None:
        raise Unread("it is no JSON")
    return "[" + ", ".join([json_of(item, depth + 1) for item in items]) + "]"


def _json_string(text: str) -> str:
    found: list[str] = []
    for c in text:
        code = ord(c)
        if c in _WRITTEN:
            found.append(_WRITTEN[c])
        elif code < 32:
            found.append("\\u00" + "0123456789abcdef"[code // 16] + "0123456789abcdef"[code % 16])
        else:
            found.append(c)
    return '"' + "".join(found) + '"'
