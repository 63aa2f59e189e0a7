r"""Translates regular expressions from Oniguruma's syntax, which the `tokenizers` library uses, to
that of `re` over an alphabet of codes (character_sets.py).

Not supported, with an error that says so: back references to classes of characters, `\G`, `\K`,
`\X`, absent operators, calls of groups, scripts other than the Chinese, Japanese and Korean ones.
"""

from __future__ import annotations

import re
from typing import NoReturn

from .character_sets import (
    ANY,
    DIGIT,
    HEX,
    NEWLINE,
    SPACE,
    WORD,
    WORD_ALONE,
    Alphabet,
    Set,
    character,
    complement,
    ignoring_case,
    named,
    posix,
    ranges,
    union,
)
from .component import NotSupported

_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7, "e": 27}
_SHORT = {"d": DIGIT, "w": WORD, "s": SPACE, "h": HEX}
_BREAKS = ranges((0x0A, 0x0D), (0x85, 0x85), (0x2028, 0x2029))
_FLAGS = re.compile(r"\?([imx]*)(?:-([imx]*))?([:)])")
_INTERVAL = re.compile(r"\{(\d{1,6})?(,)?(\d{1,6})?\}")
_POSIX = re.compile(r"\[:(\^?)(\w{1,20}):\]")

Piece = str | Set  # text of the translated pattern, or a set
Pieces = list[Piece]


class Translation:
    """A pattern for `re` and the alphabet that texts are translated to before it is matched.

    Args:
        pattern: in Oniguruma's syntax.

    Attributes:
        source: in the syntax of `re`.
        alphabet: a table for str.translate.

    Raises:
        ValueError: the pattern is malformed. NotSupported: it cannot be translated.
    """

    def __init__(self, pattern: str) -> None:
        parser = _Parser(pattern)
        pieces = parser.parse()
        sets: dict[Set, int] = {}
        for piece in pieces:
            if not isinstance(piece, str):
                sets.setdefault(piece, len(sets))
        self.alphabet = Alphabet(list(sets), apart=bool(parser.references))
        self._check_references(parser, sets)
        self.source = "".join(
            piece if isinstance(piece, str) else self.alphabet.source(sets[piece])
            for piece in pieces
        )

    def _check_references(self, parser: _Parser, sets: dict[Set, int]) -> None:
        for number in parser.references:
            for piece in parser.groups.get(number, []):
                if isinstance(piece, str):
                    continue
                if not all(self.alphabet.single[c] for c in self.alphabet.members[sets[piece]]):
                    parser.refuse(f"a back reference \\{number} to a class of characters")


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.p, self.i = pattern, 0
        self.ignore_case = self.dot_all = self.extended = False
        self.count = 0  # of capturing groups
        self.groups: dict[int, Pieces] = {}
        self.references: list[int] = []

    def refuse(self, what: str) -> NoReturn:
        """Raises NotSupported for a construct."""
        raise NotSupported(f"the regular expression {self.p[:80]!r} has {what}")

    def broken(self, what: str) -> NoReturn:
        """Raises ValueError for a syntax error."""
        raise ValueError(f"the regular expression {self.p[:80]!r} {what}")

    def parse(self) -> Pieces:
        """The whole pattern."""
        pieces = self._branches()
        if self.i < len(self.p):
            self.broken("has a ')' without '('")
        return pieces

    def _branches(self) -> Pieces:
        """Alternatives up to ")" or the end. Flags that are set inside end with them."""
        flags = self.ignore_case, self.dot_all, self.extended
        pieces: Pieces = []
        closing = 0
        while self.i < len(self.p) and self.p[self.i] != ")":
            if self.p[self.i] == "|":
                self.i += 1
                pieces.append("|")
                continue
            found = _FLAGS.match(self.p, self.i + 1) if self.p[self.i] == "(" else None
            if found and found[3] == ")":  # for the rest, including its alternatives
                self._set_flags(found)
                pieces.append("(?:")
                closing += 1
                continue
            atom = self._atom()
            if atom is not None:
                pieces += self._quantified(atom)
        self.ignore_case, self.dot_all, self.extended = flags
        return pieces + [")"] * closing

    def _set_flags(self, found: re.Match[str]) -> None:
        for flags, value in ((found[1], True), (found[2] or "", False)):
            self.ignore_case = value if "i" in flags else self.ignore_case
            self.dot_all = value if "m" in flags else self.dot_all
            self.extended = value if "x" in flags else self.extended
        self.i = found.end()

    def _atom(self) -> Pieces | None:
        """One item without its quantifiers, or None for a comment."""
        c = self.p[self.i]
        if c == "(":
            return self._group()
        if c == "[":
            return [self._cased(self._class())]
        if c == "\\":
            return self._escape()
        self.i += 1
        if self.extended and c in " \t\n\r\f\v":
            return None
        if self.extended and c == "#":
            end = self.p.find("\n", self.i)
            self.i = len(self.p) if end < 0 else end + 1
            return None
        if c == ".":
            return [ANY if self.dot_all else complement(NEWLINE)]
        if c == "^":  # of a line
            return ["(?:\\A|(?<=", NEWLINE, ")(?!\\Z))"]
        if c == "$":
            return ["(?=\\Z|", NEWLINE, ")"]
        if c in "*+?":
            self.broken(f"repeats nothing by {c!r}")
        return [self._cased(character(ord(c)))]

    def _cased(self, inner: Set) -> Set:
        return ignoring_case(inner) if self.ignore_case else inner

    def _group(self) -> Pieces | None:
        self.i += 1
        rest = self.p[self.i : self.i + 3]
        flags = self.ignore_case, self.dot_all, self.extended
        opening, number = "(?:", 0
        if rest.startswith("?"):
            found = _FLAGS.match(self.p, self.i)
            if found:
                self._set_flags(found)
            elif rest[1:] in ("<=", "<!"):
                opening, self.i = "(" + rest, self.i + 3
            elif rest[1:2] in ("=", "!", ">"):
                opening, self.i = "(" + rest[:2], self.i + 2
            elif rest[1:2] == "#":
                end = self.p.find(")", self.i)
                self.i = len(self.p) if end < 0 else end + 1
                return None
            elif rest[1:2] == "<" and ">" in self.p[self.i :]:
                self.i = self.p.index(">", self.i) + 1
                number = self.count = self.count + 1
            else:
                self.refuse(f"the group ({rest}")
        else:
            number = self.count = self.count + 1
        inner = self._branches()
        self.ignore_case, self.dot_all, self.extended = flags
        if self.i >= len(self.p):
            self.broken("has a '(' without ')'")
        self.i += 1
        if number:
            self.groups[number] = inner
            opening = "("
        return [opening, *inner, ")"]

    def _escape(self) -> Pieces:
        c = self.p[self.i + 1 : self.i + 2]
        if not c:
            self.broken("ends with a backslash")
        if c in "AzZbBR123456789":
            self.i += 2
            return self._special(c)
        if c in "wW":
            self.i += 2
            return [WORD_ALONE if c == "w" else complement(WORD_ALONE)]
        if c in "GKXkgyY":
            self.refuse(f"\\{c}")
        return [self._cased(self._one_of())]

    def _special(self, c: str) -> Pieces:
        """An escape that is no set of characters."""
        if c in "123456789":
            while self.p[self.i : self.i + 1].isdecimal() and len(c) < 3:
                c += self.p[self.i]
                self.i += 1
            self.references.append(int(c))
            return [f"(?:\\{c})"]
        if c == "R":
            return ["(?>", character(13), NEWLINE, "|", _BREAKS, ")"]
        if c == "b":
            return [
                "(?:(?<=",
                WORD_ALONE,
                ")(?!",
                WORD_ALONE,
                ")|(?<!",
                WORD_ALONE,
                ")(?=",
                WORD_ALONE,
                "))",
            ]
        if c == "B":
            return [
                "(?:(?<=",
                WORD_ALONE,
                ")(?=",
                WORD_ALONE,
                ")|(?<!",
                WORD_ALONE,
                ")(?!",
                WORD_ALONE,
                "))",
            ]
        if c == "Z":
            return ["(?=", NEWLINE, "?\\Z)"]
        return ["\\A" if c == "A" else "\\Z"]

    def _one_of(self) -> Set:
        """An escape that is a set of characters, inside or outside of a class."""
        c = self.p[self.i + 1 : self.i + 2]
        if not c:
            self.broken("ends with a backslash")
        self.i += 2
        if c in "pP":
            return self._property(c)
        if c.lower() in _SHORT:
            return _SHORT[c] if c.islower() else complement(_SHORT[c.lower()])
        if c == "N":
            return complement(NEWLINE)
        if c == "O":
            return ANY
        return character(self._code(c))

    def _property(self, c: str) -> Set:
        end = self.p.find("}", self.i)
        if self.p[self.i : self.i + 1] != "{" or end < 0:
            self.broken(f"has \\{c} without a name in braces")
        name = self.p[self.i + 1 : end]
        self.i = end + 1
        inner = named(name.removeprefix("^"))
        return complement(inner) if (c == "P") != name.startswith("^") else inner

    def _code(self, c: str) -> int:
        """The code point of an escape whose letter has been read."""
        if c in _CONTROLS:
            return _CONTROLS[c]
        for letter, form in (
            ("x", r"\{([0-9a-fA-F]{1,8})\}|([0-9a-fA-F]{1,2})"),
            ("u", r"([0-9a-fA-F]{4})"),
            ("0", r"([0-7]{1,2})"),
        ):
            if c == letter:
                found = re.compile(form).match(self.p, self.i)
                if found is None:
                    if c == "0":
                        return 0
                    self.broken(f"has \\{c} without a number")
                self.i = found.end()
                code = int(found[found.lastindex or 1], 8 if c == "0" else 16)
                if code > 0x10FFFF:
                    self.broken(f"has a character {code:#x}")
                return code
        if c.isalnum() and c.isascii():
            self.refuse(f"\\{c}")
        return ord(c)

    def _class(self) -> Set:
        """[...], with nested classes and intersections."""
        self.i += 1
        negated = self.p[self.i : self.i + 1] == "^"
        self.i += negated
        operands: list[list[Set]] = [[]]
        start = self.i
        while True:
            if self.i >= len(self.p):
                self.broken("has a '[' without ']'")
            c = self.p[self.i]
            if c == "]" and self.i > start:
                self.i += 1
                break
            if self.p.startswith("&&", self.i):
                self.i += 2
                operands.append([])
                continue
            operands[-1].append(self._member())
        inner: Set = union(operands[0]) if operands[0] else complement(ANY)
        if len(operands) > 1:
            parts = [union(sets) if sets else complement(ANY) for sets in operands]
            inner = ("and", tuple(parts))
        return complement(inner) if negated else inner

    def _member(self) -> Set:
        """One member of a class: a nested class, a set, a character or a range."""
        if self.p[self.i] == "[":
            found = _POSIX.match(self.p, self.i)
            if found is None:
                return self._class()
            inner = posix(found[2])
            if inner is None:
                self.refuse(found[0])
            self.i = found.end()
            return complement(inner) if found[1] else inner
        first = self._single()
        if (
            first[0] != "ranges"
            or len(first[1]) != 1
            or self.p[self.i : self.i + 1] != "-"
            or self.p[self.i + 1 : self.i + 2] in ("]", "")
        ):
            return first
        before = self.i
        self.i += 1
        last = self._single() if self.p[self.i] != "[" else ANY
        if last[0] != "ranges" or len(last[1]) != 1 or last == ANY:
            self.i = before  # the hyphen is a character
            return first
        low, high = first[1][0][0], last[1][0][1]
        if low > high:
            self.broken("has a range whose end is before its beginning")
        return ranges((low, high))

    def _single(self) -> Set:
        if self.p[self.i] == "\\":
            if self.p[self.i + 1 : self.i + 2] == "b":
                self.i += 2
                return character(8)
            return self._one_of()
        self.i += 1
        return character(ord(self.p[self.i - 1]))

    def _quantified(self, atom: Pieces) -> Pieces:
        """An item with the quantifiers that follow it."""
        while self.i < len(self.p):
            c = self.p[self.i]
            interval = _INTERVAL.match(self.p, self.i) if c == "{" else None
            if interval is not None and (interval[1] or interval[3]):
                self.i = interval.end()
                quantifier = interval[0]
                after = self.p[self.i : self.i + 1]
                if after == "?" and interval[2]:  # x{n}? is x{n} or nothing
                    self.i += 1
                    quantifier += "?"
            elif c in "*+?":
                self.i += 1
                quantifier = c
                if self.p[self.i : self.i + 1] in ("?", "+") and self.i < len(self.p):
                    quantifier += self.p[self.i]
                    self.i += 1
            else:
                break
            atom = ["(?:", *atom, f"){quantifier}"]
        return atom
