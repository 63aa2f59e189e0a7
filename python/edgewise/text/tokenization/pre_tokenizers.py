"""Pre-tokenizers: functions that split a normalized text into words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from .bytes_of_text import to_byte_characters
from .characters import WHITESPACE, Cached, is_numeric, is_punctuation, is_word
from .component import Component, build
from .patterns import Literal, Pattern

# A word, and whether it begins the whole text.
Word = tuple[str, bool]
PreTokenizer = Callable[[list[Word]], list[Word]]
Part = tuple[int, int, bool]  # start, end, whether the pattern matched

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")

_numeric, _punctuation, _word = Cached(is_numeric), Cached(is_punctuation), Cached(is_word)


def pre_tokenizers(value: object) -> list[PreTokenizer]:
    """The pre-tokenizers of a tokenizer.json, in order.

    Args:
        value: member `pre_tokenizer` of the file.

    Raises:
        ValueError: it is malformed or not supported.
    """
    return build(value, "pre_tokenizer", "pretokenizers", MAKERS)


def split(
    words: Iterable[Word], find: Callable[[str], Iterator[tuple[int, int]]], behavior: str,
    invert: bool = False,
) -> list[Word]:  # fmt: skip
    """Splits words at the matches of a pattern.

    Args:
        words: what is to be split.
        find: function(text) that yields (start, end) of the matches.
        behavior: one of BEHAVIORS: what happens to the matches.
        invert: the text between the matches counts as matches.
    """
    result: list[Word] = []
    for text, first in words:
        parts: list[Part] = []
        before = 0
        for start, end in find(text):
            if start != before:
                parts.append((before, start, invert))
            parts.append((start, end, not invert))
            before = end
        if before != len(text):
            parts.append((before, len(text), invert))
        if behavior == "Removed":
            parts = [part for part in parts if not part[2]]
        elif behavior != "Isolated":
            parts = _merged(parts, behavior)
        result += [(text[a:b], first and a == 0) for a, b, _ in parts if a != b]
    return result


def _merged(parts: list[Part], behavior: str) -> list[Part]:
    merged: list[Part] = []
    previous = False  # whether the last part is a match
    backwards = behavior == "MergedWithNext"
    for start, end, match in reversed(parts) if backwards else parts:
        joins = match == previous if behavior == "Contiguous" else match and not previous
        if joins and merged:
            a, b, m = merged[-1]
            merged[-1] = (start, b, m) if backwards else (a, end, m)
        else:
            merged.append((start, end, match))
        previous = match
    return merged[::-1] if backwards else merged


def _character_runs(test: Cached) -> Callable[[str], Iterator[tuple[int, int]]]:
    """A function that finds each character with a property."""

    def find(text: str) -> Iterator[tuple[int, int]]:
        for i, c in enumerate(text):
            if test[c]:
                yield i, i + 1

    return find


def _behavior(component: Component, default: str | None = None) -> str:
    behavior = component.text("behavior", default)
    if behavior not in BEHAVIORS:
        raise ValueError(f"behavior of {component.where} is {behavior[:80]!r}")
    return behavior


def _byte_level(component: Component) -> PreTokenizer:
    prefix, use_regex = component.flag("add_prefix_space"), component.flag("use_regex", True)
    pattern = Pattern(GPT2)

    def pre_tokenize(words: list[Word]) -> list[Word]:
        if prefix:
            words = [(w if w.startswith(" ") else " " + w, first) for w, first in words]
        if use_regex:
            words = split(words, pattern.find, "Isolated")
        return [(to_byte_characters(w), first) for w, first in words]

    return pre_tokenize


def _metaspace(component: Component) -> PreTokenizer:
    mark = component.character("replacement", "▁")
    scheme, splits = prepend_scheme(component), component.flag("split", True)
    find = Literal(mark).find

    def pre_tokenize(words: list[Word]) -> list[Word]:
        marked: list[Word] = []
        for word, first in words:
            word = word.replace(" ", mark)
            if (scheme == "always" or (scheme == "first" and first)) and word[:1] != mark:
                word = mark + word
            marked.append((word, first))
        return split(marked, find, "MergedWithNext") if splits else marked

    return pre_tokenize


def prepend_scheme(component: Component) -> str:
    """When Metaspace prepends its character: "always", "never" or "first"."""
    before = component.value.get("add_prefix_space")  # files of before 2024
    scheme = component.text("prepend_scheme", "always" if before is not False else "never")
    if scheme not in ("always", "never", "first"):
        raise ValueError(f"prepend_scheme of {component.where} is {scheme[:80]!r}")
    if before is False and scheme == "first":
        raise ValueError(f"add_prefix_space and prepend_scheme of {component.where} contradict")
    return "never" if before is False else scheme


def _split(component: Component) -> PreTokenizer:
    pattern = Pattern.of(component.part("pattern"))
    behavior, invert = _behavior(component), component.flag("invert", False)
    return lambda words: split(words, pattern.find, behavior, invert)


def _digits(component: Component) -> PreTokenizer:
    behavior = "Isolated" if component.flag("individual_digits") else "Contiguous"
    find = _character_runs(_numeric)
    return lambda words: split(words, find, behavior)


def _punctuations(component: Component) -> PreTokenizer:
    behavior, find = _behavior(component, "Isolated"), _character_runs(_punctuation)
    return lambda words: split(words, find, behavior)


def _delimiter(component: Component) -> PreTokenizer:
    find = Literal(component.character("delimiter")).find
    return lambda words: split(words, find, "Removed")


def _whitespace_split(words: list[Word]) -> list[Word]:
    return _groups(words, lambda c: c not in WHITESPACE)


def _whitespace(words: list[Word]) -> list[Word]:
    """Runs of word characters, and of characters that are neither these nor white space."""
    return _groups(words, lambda c: 1 if _word[c] else 0 if c in WHITESPACE else 2)


def _groups(words: list[Word], kind: Callable[[str], Any]) -> list[Word]:
    """Runs of characters of one kind; those of kind 0 are removed."""
    result: list[Word] = []
    for text, first in words:
        start = 0
        for value, run in groupby(text, kind):
            end = start + sum(1 for _ in run)
            if value:
                result.append((text[start:end], first and start == 0))
            start = end
    return result


def _bert(words: list[Word]) -> list[Word]:
    return split(_whitespace_split(words), _character_runs(_punctuation), "Isolated")


def _fixed_length(component: Component) -> PreTokenizer:
    length = component.count("length", 5)
    if not length:
        raise ValueError("length of FixedLength is 0")
    return lambda words: [
        (text[i : i + length], first and i == 0)
        for text, first in words
        for i in range(0, len(text), length)
    ]


MAKERS: dict[str, Callable[[Component], PreTokenizer]] = {
    "BertPreTokenizer": lambda component: _bert,
    "ByteLevel": _byte_level,
    "CharDelimiterSplit": _delimiter,
    "Digits": _digits,
    "FixedLength": _fixed_length,
    "Metaspace": _metaspace,
    "Punctuation": _punctuations,
    "Split": _split,
    "Whitespace": lambda component: _whitespace,
    "WhitespaceSplit": lambda component: _whitespace_split,
}
