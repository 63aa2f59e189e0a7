r"""Sets of characters in regular expressions, and their alphabet.

Python's `re` lacks \p{L} and its kind. A pattern is therefore matched with a translated text, in
which each character is replaced by a code: characters that all sets of the pattern contain, or all
do not contain, share a code. The sets become small classes of codes.

A set is a tuple: ("ranges", ((first, last), ...)) of code points; ("category", prefixes) of
Unicode's general categories; ("not", set); ("or", sets) and ("and", sets).
"""

from __future__ import annotations

import functools
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from .characters import ALPHABETIC_SYMBOLS, WHITESPACE
from .component import NotSupported

Set = tuple[str, Any]

CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn"
).split()
LAST = 0x10FFFF
MOST_WORK = 4_000_000  # sets times intervals times categories: about a second
MOST_CASED = 5000  # characters of a range whose other cases are added
MOST_KNOWN = 200_000  # characters whose codes are remembered


def ranges(*pairs: tuple[int, int]) -> Set:
    """The set of code points in ranges, both ends included."""
    return "ranges", tuple(sorted(pairs))


def character(code: int) -> Set:
    """The set of one character."""
    return "ranges", ((code, code),)


def category(*prefixes: str) -> Set:
    """The set of characters of categories, such as "L" or "Nd"."""
    return "category", tuple(sorted(prefixes))


def union(sets: Iterable[Set]) -> Set:
    """Characters of any of the sets."""
    unique = tuple(dict.fromkeys(sets))
    return unique[0] if len(unique) == 1 else ("or", unique)


def complement(inner: Set) -> Set:
    """Characters that are not in a set."""
    return "not", inner


ANY = ranges((0, LAST))
NEWLINE = character(0x0A)
SPACE = ranges(*((ord(c), ord(c)) for c in WHITESPACE))
DIGIT = category("Nd")
HEX = ranges((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
WORD = union([category("L", "M", "Nd", "Nl", "Pc"), ranges(*ALPHABETIC_SYMBOLS)])
# Oniguruma's \w and \b, but not [\w], also take the numbers of Latin-1 that are no digits.
WORD_ALONE = union([*WORD[1], ranges((0xB2, 0xB3), (0xB9, 0xB9), (0xBC, 0xBE))])

# Names in [:name:] and \p{name}. \p{punct} alone is another set than [:punct:].
CLASSES: dict[str, Set] = {
    "any": ANY,
    "ascii": ranges((0, 0x7F)),
    "blank": union([category("Zs"), character(9)]),
    "cntrl": category("Cc"),
    "digit": DIGIT,
    "punct": category("P", "S"),
    "space": SPACE,
    "word": WORD,
    "xdigit": HEX,
}
SCRIPTS: dict[str, Set] = {
    "han": ranges(
        *((0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005)),
        *((0x3007, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B), (0x3400, 0x4DBF)),
        *((0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3)),
        *((0x16FF0, 0x16FF1), (0x20000, 0x2A6DF), (0x2A700, 0x2B739), (0x2B740, 0x2B81D)),
        *((0x2B820, 0x2CEA1), (0x2CEB0, 0x2EBE0), (0x2EBF0, 0x2EE5D), (0x2F800, 0x2FA1D)),
        *((0x30000, 0x3134A), (0x31350, 0x323AF)),
    ),
    "hiragana": ranges(
        *((0x3041, 0x3096), (0x309D, 0x309F), (0x1B001, 0x1B11F), (0x1B132, 0x1B132)),
        *((0x1B150, 0x1B152), (0x1F200, 0x1F200)),
    ),
    "katakana": ranges(
        *((0x30A1, 0x30FA), (0x30FD, 0x30FF), (0x31F0, 0x31FF), (0x32D0, 0x32FE)),
        *((0x3300, 0x3357), (0xFF66, 0xFF6F), (0xFF71, 0xFF9D), (0x1AFF0, 0x1AFF3)),
        *((0x1AFF5, 0x1AFFB), (0x1AFFD, 0x1AFFE), (0x1B000, 0x1B000), (0x1B120, 0x1B122)),
        *((0x1B155, 0x1B155), (0x1B164, 0x1B167)),
    ),
    "hangul": ranges(
        *((0x1100, 0x11FF), (0x302E, 0x302F), (0x3131, 0x318E), (0x3200, 0x321E)),
        *((0x3260, 0x327E), (0xA960, 0xA97C), (0xAC00, 0xD7A3), (0xD7B0, 0xD7C6)),
        *((0xD7CB, 0xD7FB), (0xFFA0, 0xFFBE), (0xFFC2, 0xFFC7), (0xFFCA, 0xFFCF)),
        *((0xFFD2, 0xFFD7), (0xFFDA, 0xFFDC)),
    ),
}
_LONG = {
    "letter": "L", "uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt",
    "modifierletter": "Lm", "otherletter": "Lo", "mark": "M", "nonspacingmark": "Mn",
    "spacingmark": "Mc", "enclosingmark": "Me", "number": "N", "decimalnumber": "Nd",
    "letternumber": "Nl", "othernumber": "No", "punctuation": "P", "punct": "P", "symbol": "S",
    "separator": "Z", "spaceseparator": "Zs", "other": "C", "control": "Cc", "format": "Cf",
}  # fmt: skip


def posix(name: str) -> Set | None:
    """The set that [:name:] means, or None."""
    if name in ("upper", "lower"):
        return _cased(name)
    return CLASSES.get(name)


@functools.cache
def _cased(name: str) -> Set:
    test = str.isupper if name == "upper" else str.islower
    found: list[tuple[int, int]] = []
    for code in range(0x1F18A):  # the last character with a case
        if not test(chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1] = found[-1][0], code
        else:
            found.append((code, code))
    return ranges(*found)


def named(name: str) -> Set:
    r"""The set that \p{name} means.

    Raises:
        NotSupported: the name is unknown here.
    """
    key = name.lower().replace("_", "").replace(" ", "").replace("-", "")
    known = SCRIPTS.get(key) or (posix(key) if key != "punct" else None)
    if known is not None:
        return known
    short = _LONG.get(key, key.capitalize())
    if any(kind.startswith(short) for kind in CATEGORIES) and short:
        return category(short)
    if short == "Lc":
        return category("Lu", "Ll", "Lt")
    raise NotSupported(f"a regular expression has \\p{{{name[:80]}}}")


def ignoring_case(inner: Set) -> Set:
    """A set with the other cases of its characters. Categories stay as they are."""
    kind, value = inner
    if kind == "ranges":
        pairs = list(value)
        for first, last in value:
            if last - first < MOST_CASED:
                for code in range(first, last + 1):
                    pairs += [(other, other) for other in _other_cases(code)]
        return ranges(*dict.fromkeys(pairs))
    if kind == "not":
        return complement(ignoring_case(value))
    if kind in ("or", "and"):
        return kind, tuple(map(ignoring_case, value))
    return inner


def _other_cases(code: int) -> list[int]:
    text = chr(code)
    folded = _fold(text)
    others = {*_same_fold().get(folded, ()), folded, text.lower(), text.upper()}
    return [ord(c) for c in others if len(c) == 1 and _fold(c) == folded and c != text]


def _fold(text: str) -> str:
    """The folded form of a character, if that is one character."""
    folded = text.casefold()
    if len(folded) != 1:  # such as "ss" of a sharp s
        folded = text.lower()
    return folded if len(folded) == 1 else text


@functools.cache
def _same_fold() -> dict[str, list[str]]:
    """{folded: characters} of the characters beyond plain pairs, such as the long s."""
    table: dict[str, list[str]] = {}
    for code in range(0x80, 0x1E944):
        text = chr(code)
        folded = _fold(text)
        if folded != text:
            table.setdefault(folded, []).append(text)
    return table


def contains(inner: Set, code: int, kind: str) -> bool:
    """Whether a set has a code point, whose general category is `kind`."""
    name, value = inner
    if name == "ranges":
        place = bisect_right(value, (code, LAST + 1)) - 1
        return place >= 0 and value[place][0] <= code <= value[place][1]
    if name == "category":
        return kind.startswith(value)
    if name == "not":
        return not contains(value, code, kind)
    if name == "or":
        return any(contains(one, code, kind) for one in value)
    return all(contains(one, code, kind) for one in value)


def _edges(inner: Set) -> Iterator[int]:
    """Code points at which membership can change other than by category."""
    name, value = inner
    if name == "ranges":
        for first, last in value:
            yield first
            yield last + 1
    elif name == "not":
        yield from _edges(value)
    elif name in ("or", "and"):
        for one in value:
            yield from _edges(one)


def _size(inner: Set) -> int:
    name, value = inner
    if name == "not":
        return _size(value)
    return sum(map(_size, value)) if name in ("or", "and") else 1


class Alphabet(dict[int, str]):
    """The codes of characters for some sets, as a table for str.translate.

    Args:
        sets: the sets of a pattern.
        apart: give each single character of a pattern a code of its own, so that equal codes are
            equal characters (for back references).

    Raises:
        NotSupported: there are too many sets.
    """

    def __init__(self, sets: list[Set], apart: bool = False) -> None:
        super().__init__()
        self.edges = sorted({0, LAST + 1, *(edge for one in sets for edge in _edges(one))})
        if sum(map(_size, sets)) * len(self.edges) * 8 > MOST_WORK:
            raise NotSupported("a regular expression has too many characters and classes")
        self.members: list[list[int]] = [[] for _ in sets]  # codes by set
        self.single: list[bool] = []  # whether a code stands for one character
        self.codes: list[dict[str, int]] = []  # {category: code} by interval
        known: dict[tuple[object, ...], int] = {}
        for first, end in zip(self.edges, self.edges[1:]):
            one = end == first + 1
            kinds = [unicodedata.category(chr(first))] if one else CATEGORIES
            row = {}
            for kind in kinds:
                inside = tuple(contains(s, first, kind) for s in sets)
                key = (*inside, first if apart and one else None)
                code = known.setdefault(key, len(known))
                if code == len(self.single):
                    self.single.append(one)
                    for i, member in enumerate(inside):
                        if member:
                            self.members[i].append(code)
                row[kind] = code
            self.codes.append(row)

    def __missing__(self, code: int) -> str:
        row = self.codes[bisect_right(self.edges, code) - 1]
        if len(self) > MOST_KNOWN:
            self.clear()
        self[code] = result = chr(row[unicodedata.category(chr(code))])
        return result

    def source(self, i: int) -> str:
        """Set i as a class of codes in the syntax of `re`."""
        codes = self.members[i]
        if not codes:
            return "[^\\x00-\\U0010ffff]"
        if len(codes) == 1:
            return f"\\U{codes[0]:08x}"
        return "[" + "".join(f"\\U{code:08x}" for code in codes) + "]"
