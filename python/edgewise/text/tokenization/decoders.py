"""Decoders: functions from tokens to pieces of text."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby

from .bytes_of_text import to_bytes
from .component import Component, build
from .patterns import Pattern
from .pre_tokenizers import prepend_scheme

Decoder = Callable[[list[str]], list[str]]

_BYTE = re.compile(r"<0x([0-9a-fA-F]{2}|\+[0-9a-fA-F])>")
# Spaces that WordPiece's tokens have before punctuation and abbreviated forms, in this order.
_CLEANUP = [(" " + mark, mark) for mark in (".", "?", "!", ",")] + [
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
]


def decoders(value: object) -> list[Decoder]:
    """The decoders of a tokenizer.json, in order.

    Args:
        value: member `decoder` of the file.

    Raises:
        ValueError: it is malformed or not supported.
    """
    return build(value, "decoder", "decoders", MAKERS)


def _byte_level(tokens: list[str]) -> list[str]:
    return [b"".join(map(to_bytes, tokens)).decode("utf-8", "replace")]


def _byte_fallback(tokens: list[str]) -> list[str]:
    result: list[str] = []
    for is_byte, run in groupby(tokens, lambda token: _BYTE.fullmatch(token) is not None):
        if not is_byte:
            result += run
            continue
        data = bytes(int(token[3:5], 16) for token in run)
        try:
            result.append(data.decode("utf-8"))
        except UnicodeDecodeError:
            result += ["\ufffd"] * len(data)
    return result


def _fuse(tokens: list[str]) -> list[str]:
    return ["".join(tokens)]


def _bpe(component: Component) -> Decoder:
    suffix = component.text("suffix")

    def decode(tokens: list[str]) -> list[str]:
        last = len(tokens) - 1
        return [t.replace(suffix, "" if i == last else " ") for i, t in enumerate(tokens)]

    return decode


def _cleanup(text: str) -> str:
    for spaced, plain in _CLEANUP:
        text = text.replace(spaced, plain)
    return text


def _word_piece(component: Component) -> Decoder:
    prefix, cleanup = component.text("prefix"), component.flag("cleanup")

    def decode(tokens: list[str]) -> list[str]:
        result = []
        for i, token in enumerate(tokens):
            if i:
                token = token[len(prefix) :] if token.startswith(prefix) else " " + token
            result.append(_cleanup(token) if cleanup else token)
        return result

    return decode


def _metaspace(component: Component) -> Decoder:
    mark = component.character("replacement", "▁")
    first = " " if prepend_scheme(component) == "never" else ""
    return lambda tokens: [t.replace(mark, " " if i else first) for i, t in enumerate(tokens)]


def _ctc(component: Component) -> Decoder:
    pad, cleanup = component.text("pad_token"), component.flag("cleanup")
    delimiter = component.text("word_delimiter_token")

    def decode(tokens: list[str]) -> list[str]:
        result = []
        for token, _ in groupby(tokens):
            token = token.replace(pad, "")
            if cleanup:
                token = _cleanup(token).replace(delimiter, " ")
            if token:
                result.append(token)
        return result

    return decode


def _strip(component: Component) -> Decoder:
    content = component.character("content")
    left, right = component.count("start"), component.count("stop")

    def strip(token: str) -> str:
        start = min(left, len(token) - len(token.lstrip(content)))
        token = token[start:]
        return token[: len(token) - min(right, len(token) - len(token.rstrip(content)))]

    return lambda tokens: [strip(token) for token in tokens]


def _replace(component: Component) -> Decoder:
    pattern, content = Pattern.of(component.part("pattern")), component.text("content")
    return lambda tokens: [pattern.replace(token, content) for token in tokens]


MAKERS: dict[str, Callable[[Component], Decoder]] = {
    "BPEDecoder": _bpe,
    "ByteFallback": lambda component: _byte_fallback,
    "ByteLevel": lambda component: _byte_level,
    "CTC": _ctc,
    "Fuse": lambda component: _fuse,
    "Metaspace": _metaspace,
    "Replace": _replace,
    "Strip": _strip,
    "WordPiece": _word_piece,
}
