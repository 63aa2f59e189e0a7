"""Regular expressions of JSON Schema (ECMA-262) and grammars, without what is not regular."""

from __future__ import annotations

from .cursor import Cursor, Fault
from .nodes import (
    ANY,
    MAX_CHARACTER,
    Node,
    characters,
    choice,
    merged,
    never,
    nothing,
    others,
    repeat,
    sequence,
)

MAX_LENGTH = 20_000
"""Characters of a pattern."""
MAX_REPEATS = 100_000

DIGITS = [(48, 57)]
WORD = [(48, 57), (65, 90), (95, 95), (97, 122)]
SPACES = [
    (9, 13),
    (32, 32),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
]
LINES = [(10, 10), (13, 13), (0x2028, 0x2029)]
"""What a point does not take."""
_CONTROLS = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "0": 0}
_AFTER = "|)"


class Reader(Cursor):
    """Reads a regular expression.

    Args:
        source: its text.
        where: for errors.
        anchored: whether `^` and `$` say where the text begins and ends. Otherwise the expression
            is the whole text, and both are refused but at its ends.
        dot_all: whether a point takes ends of lines, too.
        ignores_case: whether letters of ASCII stand for both cases.
    """

    def __init__(
        self,
        source: str,
        where: str,
        anchored: bool,
        dot_all: bool = False,
        ignores_case: bool = False,
    ) -> None:
        what = f"the regular expression {source[:80]!r} cannot be used"
        remedy = "Write it without look-around, back-references and word borders."
        super().__init__(source, Fault(what, where, remedy, MAX_LENGTH, False))
        self.where, self.anchored = where, anchored
        self.dot_all, self.ignores_case = dot_all, ignores_case

    def whole(self) -> Node:
        """The expression. Unless it begins with `^`, any text may be before it where it is
        anchored, and so after it.
        """
        found = self.alternatives()
        if self.at < len(self.text):
            raise self.wrong("a group is closed that was not opened")
        return found

    def alternatives(self) -> Node:
        """Alternatives, up to the end of the group."""
        self.enter()
        found = [self.alternative()]
        while self.takes("|"):
            found.append(self.alternative())
        self.leave()
        return choice(found)

    def alternative(self) -> Node:
        """One alternative."""
        top = self.depth == 1
        parts: list[Node] = []
        begins = self.takes("^")
        ends = False
        while self.peek() and self.peek() not in _AFTER:
            if self.peek() == "$":
                self.at += 1
                ends = True
                if self.peek() and self.peek() not in _AFTER:
                    raise self.wrong("`$` is not at its end")
                break
            if self.peek() == "^":
                raise self.wrong("`^` is not at its beginning")
            parts.append(self.repeated(self.atom()))
        if (begins or ends) and not top:
            raise self.wrong("`^` and `$` are within a group")
        if self.anchored and top:
            around = repeat(characters(ANY), 0)
            if not begins:
                parts = [around, *parts]
            if not ends:
                parts = [*parts, around]
        return sequence(parts)

    def atom(self) -> Node:
        """A character, a class or a group."""
        c = self.take()
        if c == "(":
            return self.group()
        if c == "[":
            return self.characters_of(self.bracket())
        if c == ".":
            return characters(ANY if self.dot_all else others(LINES))
        if c == "\\":
            return self.characters_of(self.escape(False))
        if c in "*+?":
            raise self.wrong(f"{c!r} has nothing to repeat")
        if c == "{" and self.bounds_follow():
            raise self.wrong("'{' has nothing to repeat")
        return self.characters_of([(ord(c), ord(c))])

    def characters_of(self, ranges: list[tuple[int, int]]) -> Node:
        """One of some characters, in both cases if they are ignored."""
        found = list(ranges)
        if self.ignores_case:
            for low, high in ranges:
                found.append((max(low, 65) + 32, min(high, 90) + 32))
                found.append((max(low, 97) - 32, min(high, 122) - 32))
        return characters(found)

    def group(self) -> Node:
        """A group after its parenthesis."""
        if self.takes("?"):
            c = self.take()
            if c == "P" and self.peek() == "<":
                c = self.take()
            if c == "<" and self.peek() not in ("=", "!", ""):
                while self.take() != ">":
                    pass
            elif c != ":":
                raise self.wrong("groups with '?' other than '(?:' and named ones are not regular")
        found = self.alternatives()
        if not self.takes(")"):
            raise self.wrong("a group is not closed")
        return found

    # Repetitions

    def repeated(self, part: Node) -> Node:
        """A part with its number of times."""
        while True:
            c = self.peek()
            least, most = 1, 1
            if c == "*":
                least, most = 0, -1
            elif c == "+":
                least, most = 1, -1
            elif c == "?":
                least, most = 0, 1
            elif c != "{" or not self.bounds_follow():
                return part
            if c == "{":
                least, most = self.bounds()
            else:
                self.at += 1
            self.takes("?")  # lazy ones take the same texts
            if self.peek() == "+":
                raise self.wrong("possessive repetitions are not regular")
            part = repeat(part, least, most)

    def bounds_follow(self) -> bool:
        """Whether `{` begins a number of times: otherwise it stands for itself."""
        end = self.at + (1 if self.peek() == "{" else 0)
        digits = 0
        while end < len(self.text) and self.text[end] in "0123456789":
            end += 1
            digits += 1
        if not digits:
            return False
        if end < len(self.text) and self.text[end] == ",":
            end += 1
            while end < len(self.text) and self.text[end] in "0123456789":
                end += 1
        return end < len(self.text) and self.text[end] == "}"

    def bounds(self) -> tuple[int, int]:
        """`{least,most}`"""
        self.take()
        least = self.number()
        most = least
        if self.takes(","):
            most = -1 if self.peek() == "}" else self.number()
        self.take()
        if most >= 0 and most < least:
            raise self.wrong(f"{least} is above {most}")
        return least, most

    def number(self) -> int:
        """A number of times."""
        found = 0
        while self.peek() and self.peek() in "0123456789":
            found = 10 * found + int(self.take())
            if found > MAX_REPEATS:
                raise self.wrong(f"it repeats more than {MAX_REPEATS} times")
        return found

    # Classes

    def bracket(self) -> list[tuple[int, int]]:
        """A class after its bracket."""
        negated = self.takes("^")
        found: list[tuple[int, int]] = []
        while not self.takes("]"):
            low = self.member()
            if (
                self.peek() == "-"
                and self.at + 1 < len(self.text)
                and self.text[self.at + 1] != "]"
            ):
                self.at += 1
                high = self.member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1]:
                    raise self.wrong("a range has a class at its end")
                if low[0][0] > high[0][0] or high[0][0] != high[0][1]:
                    raise self.wrong("a range goes backwards")
                found.append((low[0][0], high[0][0]))
            else:
                found.extend(low)
        if negated:
            return others(self.characters_of(found).ranges)
        return merged(found)

    def member(self) -> list[tuple[int, int]]:
        """A character or an escape in a class."""
        c = self.take()
        return self.escape(True) if c == "\\" else [(ord(c), ord(c))]

    def escape(self, in_class: bool) -> list[tuple[int, int]]:
        """What a backslash stands for."""
        c = self.take()
        kinds = {"d": DIGITS, "w": WORD, "s": SPACES}
        if c in kinds:
            return kinds[c]
        if c.lower() in kinds:
            return others(kinds[c.lower()])
        if c in _CONTROLS and not (c == "0" and self.peek() and self.peek() in "0123456789"):
            return _one(_CONTROLS[c])
        if c == "b" and in_class:
            return _one(8)
        if c == "x":
            return _one(self.hexadecimal(2))
        if c in ("u", "U"):
            return _one(self.unicode(c))
        if c == "c":
            return _one(ord(self.take()) % 32)
        if c.isalnum():
            raise self.wrong(f"'\\{c}' is not supported")
        return _one(ord(c))

    def unicode(self, kind: str) -> int:
        """A code point after `u`."""
        if self.takes("{"):
            digits = 0
            found = 0
            while not self.takes("}"):
                found = 16 * found + self.hexadecimal(1)
                digits += 1
                if digits > 6:
                    break
            if found > MAX_CHARACTER or not digits:
                raise self.wrong("a code point is out of range")
            return found
        found = self.hexadecimal(8 if kind == "U" else 4)
        if 0xD800 <= found < 0xDC00 and self.takes("\\"):
            if not self.takes("u"):
                raise self.wrong("half of a surrogate pair stands alone")
            low = self.hexadecimal(4)
            return 0x10000 + 1024 * (found - 0xD800) + low - 0xDC00
        return found

    def hexadecimal(self, count: int) -> int:
        """A number of so many digits."""
        found = 0
        for _ in range(count):
            digit = "0123456789abcdef".find(self.take().lower())
            if digit < 0:
                raise self.wrong("a hexadecimal digit is missing")
            found = 16 * found + digit
        return found


def _one(c: int) -> list[tuple[int, int]]:
    return [(c, c)]


def pattern_of(source: str, where: str) -> Node:
    """The texts in which a pattern of JSON Schema is found."""
    return Reader(source, where, True).whole()


def expression_of(
    source: str, where: str, dot_all: bool = False, ignores_case: bool = False
) -> Node:
    """The texts that are a regular expression as a whole."""
    return Reader(source, where, False, dot_all, ignores_case).whole()


__all__ = ["Reader", "expression_of", "never", "nothing", "pattern_of"]
