"""Grammars in the syntax of Lark, as llguidance reads them: rules in small letters, terminals in
capitals, regular expressions between slashes.

There is no lexer: the text is read by the rules as they stand, and terminals are rules, too. Where
a lexer would choose the longest terminal, any reading counts here. `%ignore` is refused for that
reason, since it is about what a lexer drops.
"""

from __future__ import annotations

from ...errors import UnsupportedField
from .cursor import Cursor, Fault
from .network import Network
from .nodes import Node, call, characters, choice, repeat, sequence
from .program import program_of
from .regex import expression_of

WHERE = "response_format, grammar"
MAX_LENGTH = 200_000
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": "[0-9]+\\.[0-9]*|\\.[0-9]+",
    "FLOAT": "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "NUMBER": "[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\.[0-9]+(?:[eE][+-]?[0-9]+)?",
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": "[ \\t]+",
    "WS": "[ \\t\\f\\r\\n]+",
    "CR": "\\r",
    "LF": "\\n",
    "NEWLINE": "(?:\\r?\\n)+",
}


class Lark(Cursor):
    """Reads a grammar.

    Args:
        source: its text.
    """

    def __init__(self, source: str) -> None:
        what = "the grammar cannot be read"
        remedy = "Write it as Lark does: start: ..."
        super().__init__(source, Fault(what, WHERE, remedy, MAX_LENGTH, True))
        self.rules: dict[str, Node] = {}
        self.called: list[str] = []

    def blank(self) -> None:
        """Skips spaces and comments of a line."""
        while self.peek() and self.peek() in " \t\r":
            self.at += 1
        if self.peek() == "#" or (self.peek() == "/" and self.peek(1) == "/"):
            while self.peek() and self.peek() != "\n":
                self.at += 1

    def space(self) -> None:
        """Skips white space, comments and ends of lines."""
        self.blank()
        while self.peek() == "\n":
            self.at += 1
            self.blank()

    def goes_on(self, c: str) -> bool:
        """Whether this character begins a later line, which then belongs to this rule."""
        start = self.at
        self.space()
        if self.peek() == c:
            return True
        self.at = start
        return False

    def name(self) -> str:
        """A name."""
        start = self.at
        while self.peek() and self.peek() in _NAME:
            self.at += 1
        if start == self.at:
            raise self.wrong(f"{self.peek()!r} is not expected" if self.peek() else "it ends early")
        return "".join(self.text[start : self.at])

    def program(self) -> list[int]:
        """The words for the engine."""
        self.space()
        while self.peek():
            if self.peek() == "%":
                self.directive()
            else:
                self.rule()
            self.blank()
            if self.peek() and self.peek() != "\n":
                raise self.wrong(f"{self.peek()!r} is not expected")
            self.space()
        if "start" not in self.rules:
            raise self.wrong("there is no rule 'start'")
        for name in self.called:
            if name not in self.rules:
                raise self.wrong(f"there is no rule {name[:100]!r}")
        network = Network(WHERE)
        for name, node in self.rules.items():
            network.define(name, _without_left_recursion(name, node))
        return program_of(network, "start", "no finite text fits the grammar")

    def directive(self) -> None:
        """`%import`; others are refused."""
        self.at += 1
        kind = self.name()
        if kind == "llguidance":
            while self.peek() and self.peek() != "\n":
                self.at += 1
            return
        if kind != "import":
            raise UnsupportedField(
                f"%{kind[:40]} is not supported",
                WHERE,
                "Write the white space that is allowed into the rules.",
            )
        self.blank()
        path = self.name()
        while self.peek() == ".":
            self.at += 1
            path = self.name()
        self.blank()
        name = path
        if self.peek() == "-" and self.peek(1) == ">":
            self.at += 2
            self.blank()
            name = self.name()
        if path not in _COMMON:
            raise self.wrong(f"there is no {path[:100]!r} to import")
        self.rules[name] = expression_of(_COMMON[path], WHERE)

    def rule(self) -> None:
        """A rule or a terminal."""
        while self.peek() and self.peek() in "?!":
            self.at += 1
        name = self.name()
        if name in self.rules:
            raise self.wrong(f"the rule {name[:100]!r} is defined twice")
        self.blank()
        if self.peek() == "." or self.peek() == "[":
            raise self.wrong("priorities and attributes are not supported")
        if self.take() != ":":
            raise self.wrong("':' is missing")
        self.rules[name] = self.alternatives()

    def alternatives(self) -> Node:
        """Alternatives."""
        self.enter()
        if self.goes_on("|"):
            self.at += 1
        found = [self.sequence()]
        while self.goes_on("|"):
            self.at += 1
            found.append(self.sequence())
        self.leave()
        return choice(found)

    def sequence(self) -> Node:
        """Symbols one after the other."""
        parts: list[Node] = []
        self.blank()
        while True:
            found = self.symbol()
            if found is None:
                break
            self.blank()
            parts.append(self.repeated(found))
            self.blank()
        if self.peek() == "-" and self.peek(1) == ">":
            self.at += 2
            self.blank()
            self.name()
        return sequence(parts)

    def symbol(self) -> Node | None:
        """A symbol; None: there is none here."""
        c = self.peek()
        if c in ("(", "["):
            self.at += 1
            found = self.alternatives()
            self.space()
            if self.take() != (")" if c == "(" else "]"):
                raise self.wrong("a parenthesis is not closed")
            return found if c == "(" else repeat(found, 0, 1)
        if c == '"':
            return self.text_or_range()
        if c == "/" and self.peek(1) != "/":
            return self.expression()
        if c == "%":
            return self.schema()
        if c == "<":
            raise UnsupportedField("special tokens in grammars are not supported", WHERE)
        if not c or c not in _NAME:
            return None
        name = self.name()
        if name not in self.called:
            self.called.append(name)
        return call(name)

    def string(self) -> tuple[list[int], bool]:
        """The characters of a string, and whether case is ignored."""
        self.at += 1
        found: list[int] = []
        while self.peek() != '"':
            c = self.take()
            if c == "\\":
                source = "\\" + self.take()
                more = {"x": 2, "u": 4, "U": 8}.get(source[1:], 0)
                for _ in range(more):
                    source += self.take()
                found.append(expression_of(source, WHERE).ranges[0][0])
            else:
                found.append(ord(c))
        self.at += 1
        ignores = self.peek() == "i"
        if ignores:
            self.at += 1
        return found, ignores

    def text_or_range(self) -> Node:
        """`"text"` or `"a".."z"`"""
        found, ignores = self.string()
        if self.peek() == "." and self.peek(1) == ".":
            self.at += 2
            if self.peek() != '"':
                raise self.wrong("a range needs two characters")
            high, _ = self.string()
            if len(found) != 1 or len(high) != 1 or high[0] < found[0]:
                raise self.wrong("a range needs two characters in ascending order")
            return characters([(found[0], high[0])])
        parts: list[Node] = []
        for c in found:
            ranges = [(c, c)]
            if ignores and chr(c).isalpha():
                ranges.append((ord(chr(c).lower()), ord(chr(c).lower())))
                ranges.append((ord(chr(c).upper()), ord(chr(c).upper())))
            parts.append(characters(ranges))
        return sequence(parts)

    def expression(self) -> Node:
        """A regular expression between slashes."""
        self.at += 1
        source = ""
        while self.peek() != "/":
            c = self.take()
            if c == "\\":
                follows = self.take()
                source += follows if follows == "/" else c + follows
            else:
                source += c
        self.at += 1
        dot_all, ignores = False, False
        while self.peek() and self.peek() in "imslux":
            flag = self.take()
            dot_all = dot_all or flag == "s"
            ignores = ignores or flag == "i"
            if flag == "x":
                raise self.wrong("the flag x is not supported")
        return expression_of(source, WHERE, dot_all, ignores)

    def schema(self) -> Node:
        """`%json` within a rule, which is refused."""
        raise UnsupportedField(
            "%json and %regex within a grammar are not supported",
            WHERE,
            "Use the type json_schema for the whole text.",
        )

    def repeated(self, node: Node) -> Node:
        """A symbol with its number of times."""
        while True:
            c = self.peek()
            if c == "~" or c == "{":
                node = self.times(node)
            elif c and c in "*+?":
                self.at += 1
                node = repeat(node, 1 if c == "+" else 0, 1 if c == "?" else -1)
            else:
                return node
            self.blank()

    def times(self, node: Node) -> Node:
        """`~ 3`, `~ 3..5` or `{3,5}`"""
        brace = self.take() == "{"
        self.blank()
        least = self.number()
        most = least
        self.blank()
        if brace and self.peek() == ",":
            self.at += 1
            self.blank()
            most = -1 if self.peek() == "}" else self.number()
        elif not brace and self.peek() == "." and self.peek(1) == ".":
            self.at += 2
            self.blank()
            most = self.number()
        if brace:
            self.blank()
            if self.take() != "}":
                raise self.wrong("'}' is missing")
        if 0 <= most < least:
            raise self.wrong(f"{least} is above {most}")
        return repeat(node, least, most)

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


def _without_left_recursion(name: str, node: Node) -> Node:
    """`a: a x | y` as `a: y x*`."""
    options = node.parts if node.kind == "choice" else [node]
    again: list[Node] = []
    first: list[Node] = []
    for option in options:
        parts = option.parts if option.kind == "sequence" else [option]
        if len(parts) > 1 and parts[0].kind == "call" and parts[0].rule == name:
            again.append(sequence(parts[1:]))
        else:
            first.append(option)
    return sequence([choice(first), repeat(choice(again), 0)]) if again else node


def lark_program(source: str) -> list[int]:
    """The words of a grammar for the engine.

    Raises:
        InputError: it cannot be read, or no text fits it. UnsupportedField: it has what is not
            supported.
    """
    return Lark(source).program()
