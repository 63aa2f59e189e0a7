"""Offsets of tokens: which characters of the text each comes from.

The components of a tokenizer are functions of texts. Here what they return is aligned with what
they were given: each character of the result has a span (start, end) of the original text.
Characters that are inserted have the span of the character before them, as in the `tokenizers`
library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher

from .bytes_of_text import to_byte_characters
from .characters import WHITESPACE, Cached, is_mark
from .normalizers import Normalizers, Replace

Span = tuple[int, int]

_marks = Cached(is_mark)
_BYTE = re.compile("<0x[0-9A-F]{2}>")
BYTE_SPACE = to_byte_characters(" ")


def normalized_spans(normalizers: Normalizers, text: str, start: int) -> list[Span]:
    """The span of each character of the normalized text.

    Args:
        normalizers: of the tokenizer.
        text: a part of the original text.
        start: where it begins in it.
    """
    spans = [(start + i, start + i + 1) for i in range(len(text))]
    for step in normalizers.steps:
        if not text:
            break
        text, spans = _step(step, text, spans)
    return spans


def _step(step: Callable[[str], str], text: str, spans: list[Span]) -> tuple[str, list[Span]]:
    """The result of one normalizer, with its spans."""
    new = step(text)
    if new == text:
        return new, spans
    if isinstance(step, Replace):
        return new, _replaced(step, text, spans)
    chunks = _chunks(text)
    made = [step(text[a:b]) for a, b in chunks]
    if "".join(made) == new:
        return new, [
            spans[min(a + j, b - 1)] for (a, b), out in zip(chunks, made) for j in range(len(out))
        ]
    if new in text:  # stripped
        at = text.index(new)
        return new, spans[at : at + len(new)]
    if new.endswith(text):  # prepended
        return new, [(spans[0][0], spans[0][0])] * (len(new) - len(text)) + spans
    return new, _compared(text, new, spans)


def _chunks(text: str) -> list[Span]:
    """Each character with the marks that follow it."""
    begins = [i for i, c in enumerate(text) if not i or not _marks[c]]
    return list(zip(begins, [*begins[1:], len(text)]))


def _replaced(step: Replace, text: str, spans: list[Span]) -> list[Span]:
    """The spans after a replacement: its text has that of the match."""
    found: list[Span] = []
    before = 0
    for start, end in step.pattern.find(text):
        found += spans[before:start]
        at = spans[min(start, len(spans) - 1)]
        whole = (at[0], spans[end - 1][1]) if end > start else (at[0], at[0])
        found += [whole] * len(step.content)
        before = end
    return found + spans[before:]


def _compared(text: str, new: str, spans: list[Span]) -> list[Span]:
    """The spans of a text that was changed in an unknown way."""
    found: list[Span] = []
    for kind, a, b, c, d in SequenceMatcher(None, text, new, autojunk=False).get_opcodes():
        if kind == "equal":
            found += spans[a:b]
        elif d > c:
            found += [spans[min(a + j, max(a, b - 1), len(spans) - 1)] for j in range(d - c)]
    return found


def word_spans(
    text: str, spans: Sequence[Span], words: Sequence[str], byte_level: bool, mark: str
) -> list[list[Span]]:
    """The spans of the characters of words.

    Args:
        text: the normalized text that was split.
        spans: of its characters.
        words: what the pre-tokenizers made of it, in order.
        byte_level: whether they replaced characters by those of bytes.
        mark: what they replaced spaces by, or "".
    """
    if byte_level:
        made = [to_byte_characters(c) for c in text]
        spans = [span for span, out in zip(spans, made) for _ in out]
        text = "".join(made)
    elif mark:
        text = text.replace(" ", mark)
    space = BYTE_SPACE if byte_level else mark
    at, found = 0, []
    for number, word in enumerate(words):
        inserted = not number and space and word.startswith(space) and not text.startswith(space)
        rest = word[len(space) :] if inserted else word
        place = text.find(rest, at)
        place = at if place < 0 else place
        own = list(spans[place : place + len(rest)])
        if inserted:
            begin = own[0][0] if own else (spans[0][0] if spans else 0)
            own = [(begin, begin)] * len(space) + own
        found.append(own)
        at = place + len(rest)
    return found


def token_spans(
    word: str,
    spans: Sequence[Span],
    ids: Sequence[int],
    tokens: Mapping[int, str],
    prefix: str,
    suffix: str,
) -> list[Span]:
    """The span of each token of a word.

    Args:
        word: the word.
        spans: of its characters.
        ids: its tokens.
        tokens: {id: token} of the model.
        prefix: of tokens that continue a word.
        suffix: of the token that ends one.
    """
    found: list[Span] = []
    at, pending = 0, 0  # bytes of the character at `at` that were seen
    for i, number in enumerate(ids):
        rest = len(ids) - i - 1
        size = _length(word, at, tokens.get(number, ""), prefix if i else "", suffix)
        if size is None and _BYTE.fullmatch(tokens.get(number, "")) and at < len(word):
            found.append(spans[at] if at < len(spans) else (0, 0))
            pending += 1
            if pending == len(word[at].encode("utf-8")):
                at, pending = at + 1, 0
            continue
        if size is None:  # unknown: up to the next token that is known
            size = _unknown(word, at, [tokens.get(n, "") for n in ids[i + 1 :]], prefix, suffix)
            size = len(word) - at if not rest else size
        own = spans[at : at + size]
        edge = spans[-1][1] if spans else 0
        found.append((own[0][0], own[-1][1]) if own else (edge, edge))
        at += size
    return found


def _length(word: str, at: int, token: str, prefix: str, suffix: str) -> int | None:
    """How many characters of a word a token stands for; None if it is not what follows."""
    if prefix and token.startswith(prefix) and word.startswith(token[len(prefix) :], at):
        return len(token) - len(prefix)
    if suffix and token.endswith(suffix) and word[at:] == token[: -len(suffix)]:
        return len(token) - len(suffix)
    return len(token) if token and word.startswith(token, at) else None


def _unknown(word: str, at: int, after: Sequence[str], prefix: str, suffix: str) -> int:
    """How many characters of a word an unknown token stands for that others follow."""
    for size in range(1, len(word) - at + 1):
        if after and _length(word, at + size, after[0], prefix, suffix) is not None:
            return size
    return 1


def trimmed(token: str, span: Span, is_first: bool, add_prefix_space: bool) -> Span:
    """The span of a token without the spaces at its ends, as ByteLevel's post-processor trims it.

    Args:
        token: as in the vocabulary.
        span: with spaces.
        is_first: whether it begins the text.
        add_prefix_space: whether the tokenizer put a space before the text.
    """
    start, end = span
    leading, trailing = _spaces(token), _spaces(token[::-1])
    if leading:
        if add_prefix_space and (is_first or start == 0):
            leading -= 1
        start = min(start + leading, end)
    if trailing and end >= trailing:
        end = max(end - trailing, start)
    return start, end


def _spaces(token: str) -> int:
    return next(
        (i for i, c in enumerate(token) if c != BYTE_SPACE and c not in WHITESPACE), len(token)
    )
