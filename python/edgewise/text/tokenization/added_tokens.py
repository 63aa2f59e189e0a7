"""Added tokens: found in a text before the model sees the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .alignment import Span, normalized_spans
from .characters import SPACES, is_word
from .component import Component
from .normalizers import Normalizers

Model = Callable[[str], int | None]  # the id of a token
Piece = tuple[str, int | None, bool]  # text, id of an added token, whether it begins the text


@dataclass(frozen=True)
class AddedToken:
    """An entry of `added_tokens`; the fields are those of the file."""

    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool

    @classmethod
    def of(cls, value: object) -> AddedToken:
        """Reads an entry.

        Raises:
            ValueError: it is malformed.
        """
        component = Component(value, "an added token")
        component.count("id")
        return cls(
            component.text("content"),
            *(
                component.flag(name)
                for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
            ),
        )


class AddedTokens:
    """The added tokens of a tokenizer.json.

    Args:
        values: member `added_tokens` of the file.
        vocabulary: of the model: {token: id}.
        normalizers: applied to the contents of tokens that are `normalized`.

    Attributes:
        ids: {content: id}. A token of the model keeps the id it has there; others follow the last
            id. (The ids of the file are not used, as in the `tokenizers` library.)
        contents: {id: content}.
        special: contents of special tokens.

    Raises:
        ValueError: an entry is malformed.
    """

    def __init__(
        self, values: list[object], vocabulary: dict[str, int], normalizers: Normalizers
    ) -> None:
        self.ids: dict[str, int] = {}
        tokens: dict[int, AddedToken] = {}
        self.special: set[str] = set()
        entries = [AddedToken.of(value) for value in values]
        self.special = {entry.content for entry in entries if entry.special and entry.content}
        largest = -1
        for entry in entries:
            known = self.ids.get(entry.content, vocabulary.get(entry.content))
            if not entry.content or (known is not None and tokens.get(known) == entry):
                continue
            if known is None:
                known = max(largest + 1, len(vocabulary))
            largest = max(largest, known)
            self.ids[entry.content] = known
            tokens[known] = entry
        self.contents = {number: token.content for number, token in tokens.items()}
        self.tokens = tokens
        order = [e for e in entries if e.content in self.special and e.special]
        order += [e for e in entries if e.content and e.content not in self.special]
        self.plain = _Finder([(e.content, self.ids[e.content]) for e in order if not e.normalized])
        self.normal = _Finder(
            [(normalizers(e.content)[0], self.ids[e.content]) for e in order if e.normalized]
        )
        self.normalizers = normalizers

    def split(self, text: str) -> list[Piece]:
        """The pieces of a text: added tokens, and normalized text between them."""
        pieces: list[Piece] = []
        for part, number, first in self._split(text, self.plain, True):
            if number is not None:
                pieces.append((part, number, first))
                continue
            normalized, kept = self.normalizers(part)
            pieces += self._split(normalized, self.normal, first and kept)
        return pieces

    def aligned(self, text: str) -> list[tuple[Piece, list[Span]]]:
        """As `split`, with the span in the text of each character of a piece."""
        found: list[tuple[Piece, list[Span]]] = []
        at = 0
        for part, number, first in self._split(text, self.plain, True):
            end = at + len(part)
            if number is not None:
                found.append(((part, number, first), [(i, i + 1) for i in range(at, end)]))
            else:
                normalized, kept = self.normalizers(part)
                spans = normalized_spans(self.normalizers, part, at)
                place = 0
                for piece in self._split(normalized, self.normal, first and kept):
                    found.append((piece, spans[place : place + len(piece[0])]))
                    place += len(piece[0])
            at = end
        return found

    def _split(self, text: str, finder: _Finder, first: bool) -> list[Piece]:
        pieces: list[Piece] = []
        before = 0
        for start, end, number in finder.find(text):
            token = self.tokens[number]
            if token.single_word and (
                (start and is_word(text[start - 1])) or (end < len(text) and is_word(text[end]))
            ):
                continue
            if token.lstrip:
                start = max(len(text[:start].rstrip(SPACES)), before)
            if token.rstrip:
                end = len(text) - len(text[end:].lstrip(SPACES))
            if before < start:
                pieces.append((text[before:start], None, first and not before))
            if start < end:
                pieces.append((text[start:end], number, False))
            before = end
        if before < len(text):
            pieces.append((text[before:], None, first and not before))
        return pieces


class _Finder:
    """Finds the leftmost and longest of some texts.

    Args:
        entries: (text, id); of equal texts, the first counts.
    """

    def __init__(self, entries: list[tuple[str, int]]) -> None:
        self.ids: dict[str, int] = {}
        lengths: dict[str, set[int]] = {}
        for text, number in entries:
            if text:
                self.ids.setdefault(text, number)
                lengths.setdefault(text[0], set()).add(len(text))
        self.lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        firsts = "".join(re.escape(first) for first in lengths)
        self.first = re.compile(f"[{firsts}]") if firsts else None

    def find(self, text: str) -> list[tuple[int, int, int]]:
        """(start, end, id) of the matches, which do not overlap."""
        found: list[tuple[int, int, int]] = []
        position = 0
        while self.first is not None:
            match = self.first.search(text, position)
            if match is None:
                break
            start = position = match.start()
            for length in self.lengths[match[0]]:
                number = self.ids.get(text[start : start + length])
                if number is not None and start + length <= len(text):
                    found.append((start, start + length, number))
                    position = start + length
                    break
            else:
                position = start + 1
        return found
