"""Patterns of tokenizer.json: a literal text or a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...logic.text.regex_limits import may_not_end
from ..limits import regex_width
from .component import Component, NotSupported
from .oniguruma import Translation


class Pattern:
    """A pattern to be found in texts.

    Args:
        source: a regular expression in Oniguruma's syntax.

    Raises:
        ValueError: it is malformed. NotSupported: it cannot be translated, or may take exponential
            time.
    """

    def __init__(self, source: str) -> None:
        if may_not_end(source):
            raise NotSupported(f"the regular expression {source[:80]!r} may take exponential time")
        self.source = source
        translation = Translation(source)
        self.alphabet = translation.alphabet
        try:
            self.compiled = re.compile(translation.source)
        except re.error as error:
            raise NotSupported(
                f"the regular expression {source[:80]!r} cannot be translated: {error.msg}"
            ) from None
        self.can_be_empty = regex_width(source) == 0

    @staticmethod
    def of(component: Component) -> Pattern | Literal:
        """The pattern of {"Regex": ...} or {"String": ...}."""
        if "String" in component.value:
            return Literal(component.text("String"))
        return Pattern(component.text("Regex"))

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of the matches in a text."""
        codes = text.translate(self.alphabet)
        if not self.can_be_empty:
            for match in self.compiled.finditer(codes):
                yield match.span()
            return
        position, last = 0, -1
        while position <= len(codes):
            found = self.compiled.search(codes, position)
            if found is None:
                return
            start, end = found.span()
            if start == end == last:  # an empty match right after a match does not count
                position += 1
                continue
            yield start, end
            position = last = end

    def replace(self, text: str, content: str) -> str:
        """The text with all matches replaced."""
        pieces, before = [], 0
        for start, end in self.find(text):
            pieces += [text[before:start], content]
            before = end
        return "".join([*pieces, text[before:]]) if pieces else text


class Literal:
    """A text to be found in texts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.compiled = re.compile(re.escape(text))

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of the matches in a text."""
        return (match.span() for match in self.compiled.finditer(text))

    def replace(self, text: str, content: str) -> str:
        """The text with all matches replaced."""
        return text.replace(self.text, content)
