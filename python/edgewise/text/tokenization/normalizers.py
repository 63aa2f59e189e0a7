"""Normalizers: functions from text to text that run before a text is split into words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from .bytes_of_text import to_byte_characters
from .characters import SPACES, WHITESPACE, Cached, is_chinese, is_mark, is_nonspacing, is_other
from .charsmap import Charsmap
from .component import Component, build
from .patterns import Pattern

# A text, and whether it still begins with the first character of the input.
State = tuple[str, bool]
Normalizer = Callable[[str], str]

_NMT_REMOVED = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")
_NMT_SPACES = re.compile("[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]")
_other, _chinese = Cached(is_other), Cached(is_chinese)
_marks, _accents = Cached(is_mark), Cached(is_nonspacing)


class Normalizers:
    """The normalizers of a tokenizer.json, in order.

    Args:
        value: member `normalizer` of the file.

    Raises:
        ValueError: it is malformed or not supported.
    """

    def __init__(self, value: object) -> None:
        self.steps = build(value, "normalizer", "normalizers", MAKERS)

    def __call__(self, text: str) -> State:
        """The normalized text, and whether its first character comes from the input's first. (A
        pre-tokenizer that prepends a character to the beginning of a text asks for this.)
        """
        kept = True
        for step in self.steps:
            if not text:
                break
            kept = kept and not (getattr(step, "drops", None) or _keeps)(text)
            text = step(text)
        return text, kept


def _keeps(text: str) -> bool:
    return False


class _Strip:
    """Removes white space at the ends."""

    def __init__(self, component: Component) -> None:
        self.left, self.right = component.flag("strip_left"), component.flag("strip_right")

    def __call__(self, text: str) -> str:
        text = text.lstrip(SPACES) if self.left else text
        return text.rstrip(SPACES) if self.right else text

    def drops(self, text: str) -> bool:
        """Whether the first character goes."""
        return self.left and text[0] in WHITESPACE


class _Bert:
    """BERT's normalizer."""

    def __init__(self, component: Component) -> None:
        self.clean = component.flag("clean_text", True)
        self.chinese = component.flag("handle_chinese_chars", True)
        self.lower = component.flag("lowercase", True)
        strip = component.value.get("strip_accents")
        self.strip = self.lower if strip is None else component.flag("strip_accents")

    def __call__(self, text: str) -> str:
        if self.clean:
            text = "".join(
                [
                    " " if c in WHITESPACE else c
                    for c in text
                    if c in "\t\n\r" or not (_other[c] or c == "\ufffd")
                ]
            )
        if not text.isascii():
            if self.chinese:
                text = "".join([f" {c} " if _chinese[c] else c for c in text])
            if self.strip:
                text = "".join([c for c in unicodedata.normalize("NFD", text) if not _accents[c]])
        return lower(text) if self.lower else text

    def drops(self, text: str) -> bool:
        """Whether the first character goes."""
        first = text[0]
        cleaned = self.clean and first not in "\t\n\r" and (_other[first] or first == "\ufffd")
        return cleaned or (self.strip and _accents[first])


def strip_marks(text: str) -> str:
    """Removes marks, such as accents of a decomposed text."""
    return text if text.isascii() else "".join([c for c in text if not _marks[c]])


def lower(text: str) -> str:
    """Lowercase of each character; the form of sigma does not depend on its place."""
    return text.lower() if "Σ" not in text else "".join([c.lower() for c in text])


def _nmt(text: str) -> str:
    return _NMT_SPACES.sub(" ", _NMT_REMOVED.sub("", text))


def _form(form: str) -> Callable[[Component], Normalizer]:
    def make(component: Component) -> Normalizer:
        return lambda text: unicodedata.normalize(form, text)  # type: ignore[arg-type]

    return make


class Replace:
    """Replaces the matches of a pattern."""

    def __init__(self, component: Component) -> None:
        self.pattern = Pattern.of(component.part("pattern"))
        self.content = component.text("content")

    def __call__(self, text: str) -> str:
        return self.pattern.replace(text, self.content)


def _prepend(component: Component) -> Normalizer:
    prefix = component.text("prepend")
    return lambda text: prefix + text


MAKERS: dict[str, Callable[[Component], Normalizer]] = {
    "BertNormalizer": _Bert,
    "ByteLevel": lambda component: to_byte_characters,
    "Lowercase": lambda component: lower,
    "NFC": _form("NFC"),
    "NFD": _form("NFD"),
    "NFKC": _form("NFKC"),
    "NFKD": _form("NFKD"),
    "Nmt": lambda component: _nmt,
    "Precompiled": lambda component: Charsmap(component.text("precompiled_charsmap")).normalize,
    "Prepend": _prepend,
    "Replace": Replace,
    "Strip": _Strip,
    "StripAccents": lambda component: strip_marks,
}
