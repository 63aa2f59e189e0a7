"""Calls while they are written: the name as soon as it is known, and the arguments as they come.

What is told of a call's arguments makes JSON when the call is complete, though with other white
space than `json_of` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .bodies import ARGS, DEEPSEEK_CALL, DEEPSEEK_PART, Body, is_text, properties_of, typed
from .pythonic import PythonCalls
from .values import Call, Reader, Unread, check_name, json_of

_SPACE = " \t\r\n"
_ENDS = ("</parameter>", "<parameter=", "</function>")
_VALUE_ENDS = (*["\n" + end for end in _ENDS], *_ENDS)


@dataclass
class Chunk:
    """A part of a call.

    Attributes:
        number: of the call in the answer.
        order: among the calls of the answer that can be read, if it is one.
        name: of the tool, with the first part; else "".
        text: of the arguments.
    """

    number: int
    order: int
    name: str
    text: str
    kind: Literal["chunk"] = "chunk"


class Calls:
    """The calls in a part of an answer.

    Args:
        body: how they are written.
        tools: as `tools_of` returns them.

    Attributes:
        names: of the calls that were begun.
    """

    def __init__(self, body: Body, tools: Sequence[Mapping[str, Any]]) -> None:
        self.names: list[str] = []
        self._body: Body = body
        self._tools = tools
        self._reader: JsonCalls | NamedCalls | PythonCalls | XmlCalls | None = None
        self._start = ""  # before it is known how to read
        if body == "functools":
            self._reader = JsonCalls(tools, True, False)
        elif body == "function":
            self._reader = XmlCalls(tools, True)
        elif body == "deepseek":
            self._reader = NamedCalls(True)
        elif body == "gemma":
            self._reader = PythonCalls(tools, True, False)
        self._begun = self._reader is not None

    def push(self, text: str) -> list[tuple[str, str]]:
        """Takes text. Returns parts of calls: (the name, "") at a beginning, then ("", text)."""
        new = text
        if not self._begun:
            self._start += text
            self._begin(self._start.lstrip())
            new = self._start
        if self._reader is None:
            return []
        made = self._reader.push(new)
        self.names.extend([name for name, _ in made if name != ""])
        return made

    def end(self, calls: Sequence[Call]) -> list[tuple[str, str]]:
        """The part has ended, and has these calls. Returns the rest."""
        if isinstance(self._reader, XmlCalls):
            return self._reader.push("</function>")  # which may have been left out
        if isinstance(self._reader, PythonCalls) and 0 < len(self.names) <= len(calls):
            return self._reader.end(calls[len(self.names) - 1])
        return []

    def _begin(self, text: str) -> None:
        """Chooses how to read, by the first characters."""
        body = self._body
        if text == "" or (text.strip() == "[" and body == "python"):
            return
        self._begun = True
        is_json = text[0] == "{" or text.startswith("[{")
        if (body == "python" and not is_json) or (body == "bare" and text[0] == "["):
            self._reader = PythonCalls(self._tools, False, body == "bare")
        elif text[0] in "{[":
            self._reader = JsonCalls(self._tools, False, body == "bare")
        elif body == "mistral":
            self._reader = NamedCalls(False)
        elif text[0] == "<" and body in ("json", "llama"):
            self._reader = XmlCalls(self._tools, False)


class JsonCalls:
    """Calls as objects of JSON, or a list of them: {"name", "arguments" or "parameters"}.

    Args:
        tools: as `tools_of` returns them.
        is_list: whether the bracket of a list stands before the text.
        only_known: whether calls of other tools are none.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], is_list: bool, only_known: bool) -> None:
        self._known: set[str] = set()
        for tool in tools:
            function: dict[str, Any] = tool["function"]
            self._known.add(function["name"])
        self._only_known = only_known
        self._base = 1 if is_list else 0
        self._depth = self._base
        self._is_first = True
        self._off = False
        self._in_string = self._escaped = False
        self._string: list[str] = []  # at the level of a call's members
        self._key = self._name = ""
        self._is_key = self._inside = self._done = False
        self._text: list[str] = []
        self._made: list[tuple[str, str]] = []

    def push(self, text: str) -> list[tuple[str, str]]:
        """As of Calls."""
        self._made = []
        for c in text:
            if self._off:
                break
            if self._inside:
                self._text.append(c)
            if self._in_string:
                self._read_string(c)
            elif c == '"' and self._depth > self._base:
                self._in_string = True
                self._string = []
            elif c in "{[":
                self._open(c)
            elif c in "}]":
                self._close()
            else:
                self._sign(c)
        self._tell()
        return self._made

    def _tell(self) -> None:
        if len(self._text) > 0:
            self._made.append(("", "".join(self._text)))
        self._text = []

    def _read_string(self, c: str) -> None:
        if self._escaped:
            self._escaped = False
        elif c == "\\":
            self._escaped = True
            self._off = self._off or (self._is_key and not self._inside)
        elif c == '"':
            self._in_string = False
            if self._depth == self._base + 1:
                self._said("".join(self._string))
            return
        if self._depth == self._base + 1:
            self._string.append(c)

    def _said(self, text: str) -> None:
        """A string of a call's own members."""
        if self._is_key:
            self._key = text
        elif self._key == "name" and not self._done:
            self._name = text
            self._off = "\\" in text or (self._only_known and text not in self._known)

    def _open(self, c: str) -> None:
        self._depth += 1
        level = self._depth - self._base
        if level == 1 and c == "[" and self._is_first:
            self._base = 1
            self._is_first = False
        elif level == 1:
            self._is_first = False
            self._off = c == "["
            self._key = self._name = ""
            self._is_key = True
            self._done = False
        elif level == 2 and self._key == "function":
            self._off = True
        elif level == 2 and self._key in ("arguments", "parameters") and not self._done:
            self._off = c == "[" or self._name == ""
            if not self._off:
                self._tell()
                self._made.append((self._name, ""))
                self._inside = True
                self._text.append(c)

    def _close(self) -> None:
        self._depth -= 1
        level = self._depth - self._base
        if level == 1 and self._inside:
            self._inside = False
            self._done = True
        elif level == 0 and not self._done:
            self._off = True  # a call without arguments is told when all are whole

    def _sign(self, c: str) -> None:
        level = self._depth - self._base
        if level <= 0:
            self._off = c not in _SPACE and c not in ",;"
        elif level == 1 and c == ":":
            self._is_key = False
        elif level == 1 and c == ",":
            self._is_key = True


class NamedCalls:
    """Calls as names before objects of JSON, of Mistral and DeepSeek.

    Args:
        deepseek: whether they are DeepSeek's.
    """

    def __init__(self, deepseek: bool) -> None:
        self._deepseek = deepseek
        self._head: list[str] = []
        self._depth = 0
        self._in_string = self._escaped = self._off = False

    def push(self, text: str) -> list[tuple[str, str]]:
        """As of Calls."""
        made: list[tuple[str, str]] = []
        told: list[str] = []
        for c in text:
            if self._depth == 0 and c != "{":
                self._head.append(c)
                continue
            if self._depth == 0:
                name = self._name("".join(self._head))
                self._off = self._off or name == ""
                if not self._off:
                    made.append((name, ""))
                self._head = []
            if self._off:
                break
            told.append(c)
            self._read(c)
            if self._depth == 0:
                made.append(("", "".join(told)))
                told = []
        if len(told) > 0:
            made.append(("", "".join(told)))
        return made

    def _read(self, c: str) -> None:
        if self._escaped:
            self._escaped = False
        elif self._in_string and c == "\\":
            self._escaped = True
        elif c == '"':
            self._in_string = not self._in_string
        elif not self._in_string:
            self._depth += 1 if c in "{[" else -1 if c in "}]" else 0

    def _name(self, head: str) -> str:
        """The name of a call; "" if there is none. head: the text before its arguments."""
        if self._deepseek:
            parts = head.split(DEEPSEEK_CALL)
            first, mark, second = parts[len(parts) - 1].partition(DEEPSEEK_PART)
            if mark == "" or first.strip() != "function":
                return first.strip() if mark != "" else ""
            return second.partition("\n")[0].strip() if "\n" in second else ""
        reader = Reader(head)
        reader.take(",")
        try:
            name = reader.name()
            reader.chars.append("{")
            after = reader.until("{")
        except Unread:
            return ""
        rest = after.partition(ARGS)[2] if ARGS in after else after
        return name if rest.strip() == "" else ""


class XmlCalls:
    """<function=name><parameter=key>value</parameter></function>

    Args:
        tools: as `tools_of` returns them.
        begun: whether "<function=" stands before the text.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]], begun: bool) -> None:
        self._tools = tools
        self._held = "<function=" if begun else ""
        self._name = ""
        self._kinds: dict[str, Any] = {}
        self._count = 0  # parameters of the call
        self._inside = self._is_first = self._off = False
        self._value: list[str] = []
        self._schema: Any = None
        self._made: list[tuple[str, str]] = []

    def push(self, text: str) -> list[tuple[str, str]]:
        """As of Calls."""
        self._made = []
        self._held += text
        going = not self._off
        while going:
            going = self._step() and not self._off
        return self._made

    def _step(self) -> bool:
        """Reads up to the next mark. Returns whether there was one."""
        if self._inside:
            return self._parameter()
        if self._name == "":
            return self._function()
        at, mark = first_of(self._held, ("<parameter=", "</function>"))
        if mark == "":
            return False
        after = self._held.removeprefix(at + mark)
        if mark == "</function>":
            self._tell("{}" if self._count == 0 else "}")
            self._held = after
            self._name = ""
            return True
        key, close, rest = after.partition(">")
        if close == "":
            return False
        name = key.strip()
        try:
            check_name(name)
        except Unread:
            self._off = True
            return False
        self._tell(("{" if self._count == 0 else ", ") + json_of(name) + ": ")
        self._count += 1
        self._schema = self._kinds.get(name)
        self._inside = self._is_first = True
        self._value = []
        self._held = rest
        if is_text(self._schema):
            self._tell('"')
        return True

    def _function(self) -> bool:
        _, mark, after = self._held.partition("<function=")
        name, close, rest = after.partition(">")
        if mark == "" or close == "":
            return False
        self._name = name.strip()
        self._off = self._name == ""
        self._kinds = properties_of(self._name, self._tools)
        self._count = 0
        self._made.append((self._name, ""))
        self._held = rest
        return True

    def _parameter(self) -> bool:
        """Reads a value, as far as it is there."""
        if self._is_first and self._held != "":
            self._held = self._held.removeprefix("\n")
            self._is_first = False
        text, mark = first_of(self._held, _VALUE_ENDS)
        if mark == "":
            kept = held_back(self._held, _VALUE_ENDS)
            self._add(self._held.removesuffix(kept))
            self._held = kept
            return False
        self._held = self._held.removeprefix(text)
        self._held = self._held.removeprefix("\n").removeprefix("</parameter>")
        self._add(text)
        self._inside = False
        if is_text(self._schema):
            self._tell('"')
            return True
        try:
            self._tell(json_of(typed("".join(self._value), self._schema)))
        except Unread:
            self._off = True
        return True

    def _add(self, text: str) -> None:
        if is_text(self._schema):
            self._tell(json_of(text)[1:-1])
        else:
            self._value.append(text)

    def _tell(self, text: str) -> None:
        if text != "":
            self._made.append(("", text))


def first_of(text: str, marks: Sequence[str]) -> tuple[str, str]:
    """(the text before the first mark, the mark); "" if there is none."""
    found = ""
    before = text
    for mark in marks:
        if mark in before:
            before = before.partition(mark)[0]
            found = mark
    return before, found


def held_back(text: str, marks: Sequence[str]) -> str:
    """The end of a text with which a mark may begin."""
    longest = ""
    for mark in marks:
        for n in range(len(mark) - 1, len(longest), -1):
            if text.endswith(mark[:n]):
                longest = mark[:n]
                break
    return longest
