"""GBNF, the grammars of llama.cpp."""

from __future__ import annotations

from .cursor import Cursor, Fault
from .network import Network
from .nodes import ANY, Node, call, characters, choice, others, repeat, sequence
from .program import program_of

MAX_LENGTH = 200_000
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
_ESCAPES = {"n": 10, "r": 13, "t": 9}


class Gbnf(Cursor):
    """Reads a grammar.

    Args:
        source: its text.
    """

    def __init__(self, source: str) -> None:
        what = "the grammar cannot be read"
        remedy = "Write it as llama.cpp's GBNF: root ::= ..."
        super().__init__(source, Fault(what, "response_format, grammar", remedy, MAX_LENGTH, True))
        self.network = Network("response_format, grammar")
        self.defined: list[str] = []
        self.called: list[str] = []

    def space(self, lines: bool) -> None:
        """Skips white space and comments. lines: also the ends of lines."""
        while self.peek() and self.peek() in (" \t\r\n#" if lines else " \t#"):
            if self.peek() == "#":
                while self.peek() and self.peek() not in "\r\n":
                    self.at += 1
            else:
                self.at += 1

    def name(self) -> str:
        """The name of a rule."""
        start = self.at
        while self.peek() and self.peek() in _NAME:
            self.at += 1
        if start == self.at:
            raise self.wrong("the name of a rule is missing")
        return "".join(self.text[start : self.at])

    def program(self) -> list[int]:
        """The words for the engine."""
        self.space(True)
        while self.peek():
            self.rule()
            self.space(True)
        if "root" not in self.defined:
            raise self.wrong("there is no rule 'root'")
        for name in self.called:
            if name not in self.defined:
                raise self.wrong(f"there is no rule {name[:100]!r}")
        return program_of(self.network, "root", "no finite text fits the grammar")

    def rule(self) -> None:
        """A rule."""
        name = self.name()
        if name in self.defined:
            raise self.wrong(f"the rule {name[:100]!r} is defined twice")
        self.space(False)
        for c in "::=":
            if self.take() != c:
                raise self.wrong("'::=' is missing")
        self.space(True)
        self.defined.append(name)
        self.network.define(name, self.alternatives(False))
        if self.peek() and self.peek() not in "\r\n":
            raise self.wrong(f"{self.peek()!r} is not expected")

    def alternatives(self, nested: bool) -> Node:
        """Alternatives. nested: whether they are in parentheses."""
        self.enter()
        found = [self.sequence(nested)]
        while self.peek() == "|":
            self.at += 1
            self.space(True)
            found.append(self.sequence(nested))
        self.leave()
        return choice(found)

    def sequence(self, nested: bool) -> Node:
        """Symbols one after the other."""
        parts: list[Node] = []
        while True:
            found = self.symbol()
            if found is None:
                return sequence(parts)
            self.space(nested)
            parts.append(self.repeated(found, nested))

    def symbol(self) -> Node | None:
        """A symbol; None: there is none here."""
        c = self.peek()
        if c == '"':
            self.at += 1
            return sequence(self.string())
        if c == "[":
            self.at += 1
            return self.bracket()
        if c == ".":
            self.at += 1
            return characters(ANY)
        if c == "(":
            self.at += 1
            self.space(True)
            found = self.alternatives(True)
            if self.take() != ")":
                raise self.wrong("a parenthesis is not closed")
            return found
        if not c or c not in _NAME:
            return None
        name = self.name()
        if name not in self.called:
            self.called.append(name)
        return call(name)

    def string(self) -> list[Node]:
        """The characters up to a quote."""
        parts: list[Node] = []
        while self.peek() != '"':
            c = self.character()
            parts.append(characters([(c, c)]))
        self.at += 1
        return parts

    def bracket(self) -> Node:
        """A class of characters."""
        negated = self.peek() == "^"
        if negated:
            self.at += 1
        ranges: list[tuple[int, int]] = []
        while self.peek() != "]":
            low = self.character()
            high = low
            if (
                self.peek() == "-"
                and self.at + 1 < len(self.text)
                and self.text[self.at + 1] != "]"
            ):
                self.at += 1
                high = self.character()
                if high < low:
                    raise self.wrong("a range goes backwards")
            ranges.append((low, high))
        self.at += 1
        return characters(others(characters(ranges).ranges)) if negated else characters(ranges)

    def character(self) -> int:
        """A character of a string or a class."""
        c = self.take()
        if c != "\\":
            return ord(c)
        c = self.take()
        if c in _ESCAPES:
            return _ESCAPES[c]
        digits = {"x": 2, "u": 4, "U": 8}
        if c not in digits:
            if c not in '"\\[]-^/':
                raise self.wrong(f"there is no escape '\\{c}'")
            return ord(c)
        value = 0
        for _ in range(digits[c]):
            digit = "0123456789abcdef".find(self.take().lower())
            if digit < 0:
                raise self.wrong("a hexadecimal digit is missing")
            value = 16 * value + digit
        if value > 0x10FFFF:
            raise self.wrong("a code point is out of range")
        return value

    def repeated(self, node: Node, nested: bool) -> Node:
        """A symbol with its number of times."""
        while self.peek() and self.peek() in "*+?{":
            c = self.take()
            if c == "{":
                least, most = self.bounds()
            else:
                least, most = 1 if c == "+" else 0, 1 if c == "?" else -1
            node = repeat(node, least, most)
            self.space(nested)
        return node

    def bounds(self) -> tuple[int, int]:
        """`{least,most}` after its brace."""
        self.space(True)
        least = self.number()
        most = least
        self.space(True)
        if self.peek() == ",":
            self.at += 1
            self.space(True)
            most = -1 if self.peek() == "}" else self.number()
            self.space(True)
        if self.take() != "}":
            raise self.wrong("'}' is missing")
        if 0 <= most < least:
            raise self.wrong(f"{least} is above {most}")
        return least, most

    def number(self) -> int:
        """A number of times."""
        value, digits = 0, 0
        while self.peek() and self.peek() in "0123456789":
            value = 10 * value + int(self.take())
            digits += 1
            if value > 100_000:
                raise self.wrong("it repeats more than 100000 times")
        if not digits:
            raise self.wrong("a number is missing")
        return value


def gbnf_program(source: str) -> list[int]:
    """The words of a grammar for the engine.

    Raises:
        InputError: it cannot be read, or no text fits it.
    """
    return Gbnf(source).program()
