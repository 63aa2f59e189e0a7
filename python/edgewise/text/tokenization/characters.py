"""Classes of characters as the `tokenizers` library defines them, from Python's Unicode tables."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable

category = unicodedata.category

# Unicode's White_Space. (str.isspace() and \s of `re` also accept U+001C to U+001F.)
WHITESPACE = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
SPACES = "".join(sorted(WHITESPACE))  # for str.strip
# Alphabetic characters that are neither letters nor marks: circled and squared letters.
ALPHABETIC_SYMBOLS = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
# Spacing marks that do not continue a grapheme cluster (Unicode Standard Annex 29).
_NOT_EXTENDING = frozenset(
    map(
        chr,
        [
            *(0x102B, 0x102C, 0x1038, *range(0x1062, 0x1065), *range(0x1067, 0x106E), 0x1083),
            *(*range(0x1087, 0x108D), 0x108F, *range(0x109A, 0x109D)),
            *(0x1A61, 0x1A63, 0x1A64, 0xAA7B, 0xAA7D, 0x11720, 0x11721),
        ],
    )
)
_EXTENDING = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f")
_PREPENDED = frozenset(
    map(
        chr,
        [
            *(*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0xD4E, 0x110BD, 0x110CD),
            *(0x111C2, 0x111C3, 0x1193F, 0x11941, 0x11A3A, *range(0x11A84, 0x11A8A), 0x11D46),
            0x11F02,
        ],
    )
)


def _table(text: str) -> tuple[list[int], list[int]]:
    """(first, last) of ranges of code points, given in hexadecimal."""
    pairs = [entry.partition("-") for entry in text.split()]
    return [int(a, 16) for a, _, _ in pairs], [int(b or a, 16) for a, _, b in pairs]


# The library's tables for BERT's normalizer and punctuation are those of Unicode 8: marks, formats
# and punctuation in these ranges are newer. Those for marks alone are of Unicode 11.
_RECENT = _table(
    "61d 7fd 890-8e2 9fd-9fe a76 afa-aff b55 c04-c3c c77 c84 d00 d3b-d3c d81 eba ece 180f-1886 "
    "1abf-1ace 1b4e-1b4f 1b7d-1b7f 1df6-1dfb 2e43-2e5d a82c a8c5 a8ff a9bd 10d24-10f89 "
    "11070-11074 110c2-110cd 111c9 111cf 1123e-11241 1133b 113bb-1145e 11660-1166c 116b9 "
    "1182f-11fff 12ff1-1612f 16d6d-16f4f 16fe2-16fe4 1cf00-1cf46 1e000-1e5ff 1e944-1e95f "
)
_RECENT_MARKS = _table(
    "7fd 897-8d3 9fe afa-aff b55 c04-c3c cf3-d00 d3b-d3c d81 eba ece 1715 180f 1abf-1ace 1cf7 "
    "1df6-1dfa a82c a8ff 10d24-10f85 11070-11074 110c2 11145-11146 111c9 111ce-111cf 11241 "
    "1133b 113b8-113e2 1145e 1182c-11a99 11d31-1612f 16f4f 16f7f-16f87 16fe4-16ff1 1cf00-1cf46 "
    "1e08f-1e5ef "
)


def _within(table: tuple[list[int], list[int]], character: str) -> bool:
    place = bisect_right(table[0], ord(character)) - 1
    return place >= 0 and ord(character) <= table[1][place]


class Cached(dict[str, bool]):
    """A predicate of characters that remembers its results: `cached[character]`."""

    def __init__(self, test: Callable[[str], bool]) -> None:
        super().__init__()
        self.test = test

    def __missing__(self, character: str) -> bool:
        self[character] = result = self.test(character)
        return result


def is_whitespace(character: str) -> bool:
    """Whether a character is White_Space."""
    return character in WHITESPACE


def is_numeric(character: str) -> bool:
    """Whether a character is in the categories N: digits, Roman numerals, fractions."""
    return category(character)[0] == "N"


def is_punctuation(character: str) -> bool:
    """Whether a character is in the categories P or is punctuation or a symbol of ASCII."""
    if character < "\x80":
        return character.isprintable() and not character.isalnum() and character != " "
    if character in "\u166d\U000111c9":  # of another category since
        return True
    return category(character)[0] == "P" and not _within(_RECENT, character)


def is_word(character: str) -> bool:
    r"""Whether a character is matched by \w in Rust's regex crate."""
    kind = category(character)
    return (
        kind[0] in "LM"
        or kind in ("Nd", "Nl", "Pc")
        or character in "\u200c\u200d"
        or is_alphabetic_symbol(ord(character))
    )


def is_alphabetic_symbol(code: int) -> bool:
    """Whether a code point is a circled or squared letter, a symbol that is Alphabetic."""
    return any(low <= code <= high for low, high in ALPHABETIC_SYMBOLS)


def is_mark(character: str) -> bool:
    """Whether a character is a mark of any kind."""
    if character in "\u1cf2\u1cf3":  # of another category since
        return True
    return category(character)[0] == "M" and not _within(_RECENT_MARKS, character)


def is_nonspacing(character: str) -> bool:
    """Whether BERT's normalizer takes a character for an accent."""
    if character in "\u1734\U0001171e":  # of another category since
        return True
    return category(character) == "Mn" and not _within(_RECENT, character)


def is_other(character: str) -> bool:
    """Whether a character is a control, a format character or for private use."""
    kind = category(character)
    return kind in ("Cc", "Co") or (kind == "Cf" and not _within(_RECENT, character))


def is_chinese(character: str) -> bool:
    """Whether BERT's normalizer surrounds a character by spaces."""
    code = ord(character)
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2B81F
        or 0x2B920 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


def _extends(character: str) -> bool:
    if character in _EXTENDING or 0x1F3FB <= ord(character) <= 0x1F3FF:
        return True
    return category(character)[0] == "M" and character not in _NOT_EXTENDING


def _is_control(character: str) -> bool:
    return category(character) in ("Cc", "Cf", "Zl", "Zp") and character not in _PREPENDED


_extends_cached, _control_cached = Cached(_extends), Cached(_is_control)


def short_clusters(text: str) -> list[str]:
    r"""Splits a text into extended grapheme clusters, exactly for those shorter than 6 bytes.

    Only these matter to the caller: longer ones, such as Hangul syllables of several letters and
    most emoji sequences, may come in parts.
    """
    clusters: list[str] = []
    open_ = False  # whether an extending character would continue the last cluster
    joins = False  # whether any character would, but for controls
    for character in text:
        control = _control_cached[character] and not _extends_cached[character]
        if clusters and (
            (open_ and _extends_cached[character])
            or (joins and not control)
            or (character == "\n" and clusters[-1] == "\r")
        ):
            clusters[-1] += character
        else:
            clusters.append(character)
        open_ = not control
        joins = character in _PREPENDED
    return clusters
