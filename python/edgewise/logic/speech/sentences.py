"""Sentences of texts that arrive in pieces."""

from __future__ import annotations

from collections.abc import Sequence

ENDS = ".!?…"  # before a space, with what closes quotations
CLOSING = "\"'”’)]"
WIDE_ENDS = "。！？"  # of Chinese and Japanese, which have no space after them
WIDE_CLOSING = "」』”’"
# What ends with a full stop and is no sentence.
SHORT = ("Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Jr", "Sr", "vs", "etc", "e.g", "i.e", "No")


class Sentences:
    """The sentences of a text, without spaces at their ends."""

    def __init__(self) -> None:
        self.rest: list[str] = []  # characters that are no sentence yet

    def feed(self, piece: str) -> list[str]:
        """The sentences that are known to have ended with the next piece of the text."""
        text = [*self.rest, *list(piece)]
        found: list[str] = []
        start = 0
        at = 0
        while at < len(text):
            end = _end(text, at)
            at = max(end, at + 1)
            if end < 0 or _is_short("".join(text[start:end])):
                continue
            sentence = "".join(text[start:end]).strip()
            if sentence:
                found.append(sentence)
            start = end
        self.rest = text[start:]
        return found

    def end(self) -> list[str]:
        """The sentence that is left."""
        sentence = "".join(self.rest).strip()
        self.rest = []
        return [sentence] if sentence else []


def _end(text: Sequence[str], at: int) -> int:
    """Where the end of a sentence that begins at a character ends; -1: there is none."""
    if text[at] == "\n":
        return at + 1
    if text[at] in WIDE_ENDS:
        return _after(text, _after(text, at, WIDE_ENDS), WIDE_CLOSING)
    if text[at] in ENDS:
        end = _after(text, _after(text, at, ENDS), CLOSING)
        if end < len(text) and text[end].isspace():
            return end
    return -1


def _after(text: Sequence[str], at: int, characters: str) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _is_short(sentence: str) -> bool:
    """Whether it ends with the full stop of an abbreviation."""
    if not sentence.endswith("."):
        return False
    word = list(sentence[:-1])
    first = len(word)
    while first > 0 and not (word[first - 1].isspace() or word[first - 1] in '("“'):
        first -= 1
    last = "".join(word[first:])
    return last in SHORT or (len(last) == 1 and "A" <= last <= "Z")
