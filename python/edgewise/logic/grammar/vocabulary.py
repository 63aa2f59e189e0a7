"""The bytes that each token stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import UnsupportedField
from ..native import utf8_bytes
from ..tools.families import all_marks
from .network import TOKEN


@dataclass
class Alphabet:
    """How a tokenizer writes bytes.

    Attributes:
        kind: bytes: each character stands for a byte, as in GPT-2. text: tokens are parts of the
            text. none: neither.
        space: what stands for a space in such texts.
        added: ids of added tokens, which no format contains.
        marks: of these, the marks of calls and reasoning by their ids: forms of calls have them.
    """

    kind: Literal["bytes", "text", "none"]
    space: str = ""
    added: list[int] = field(default_factory=list)
    marks: dict[int, str] = field(default_factory=dict)


def alphabet_of(tokenizer: dict[str, Any]) -> Alphabet:
    """The alphabet of a tokenizer. tokenizer: contents of tokenizer.json, or its members `decoder`,
    `pre_tokenizer` and `added_tokens`.
    """
    made = Alphabet("none")
    known = set(all_marks())
    tokens: object = tokenizer.get("added_tokens")
    if isinstance(tokens, list):
        for token in tokens:
            if isinstance(token, dict):
                number: object = token.get("id")
                if isinstance(number, int):
                    made.added.append(number)
                    content: object = token.get("content")
                    if isinstance(content, str) and content in known:
                        made.marks[number] = content
    decoder: object = tokenizer.get("decoder")
    parts = _parts(decoder, "decoders")
    if decoder is None:
        parts = [
            one
            for one in _parts(tokenizer.get("pre_tokenizer"), "pretokenizers")
            if one.get("type") in ("ByteLevel", "Metaspace")
        ]
    for part in parts:
        kind = part.get("type")
        if kind == "ByteLevel":
            made.kind = "bytes"
        elif kind == "Metaspace":
            made.kind = "text"
            made.space = str(part.get("replacement", "\u2581"))
        elif kind == "ByteFallback":
            made.kind = "text" if made.kind == "none" else made.kind
        elif kind == "Replace":
            pattern: object = part.get("pattern")
            if isinstance(pattern, dict) and part.get("content") == " ":
                made.kind = "text"
                made.space = str(pattern.get("String"))
    return made


def _parts(value: object, lists: str) -> list[dict[str, Any]]:
    """A component of a tokenizer.json, or those of a sequence."""
    if not isinstance(value, dict):
        return []
    inside: object = value.get(lists)
    if value.get("type") == "Sequence" and isinstance(inside, list):
        return [part for one in inside for part in _parts(one, lists)]
    return [value]


def _byte_table() -> list[int]:
    """Of each code point below 324, the byte that it stands for; -1: none."""
    table = [-1] * 324
    more = 256
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
            table[byte] = byte
        else:
            table[more] = byte
            more += 1
    return table


def token_bytes(token: str, alphabet: Alphabet, table: Sequence[int]) -> list[int]:
    """The bytes of a token. table: of _byte_table."""
    if alphabet.kind == "bytes":
        found = [table[ord(c)] if ord(c) < 324 else -1 for c in token]
        return list(token.encode("utf-8")) if -1 in found else found
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        digits = [("0123456789ABCDEF").find(c.upper()) for c in token[3:5]]
        if digits[0] >= 0 and digits[1] >= 0:
            return [16 * digits[0] + digits[1]]
    text = token.replace(alphabet.space, " ") if alphabet.space else token
    return list(text.encode("utf-8"))


def vocabulary_of(
    count: int, alphabet: Alphabet, token_of: Callable[[int], str | None]
) -> tuple[list[int], bytes]:
    """The bytes of a vocabulary, for core/sampling/grammar.h.

    Args:
        count: number of logits.
        alphabet: of the tokenizer.
        token_of: the token of an id; None or "": there is none.

    Returns:
        (where the bytes of each token end, all bytes)

    Raises:
        UnsupportedField: the tokenizer has no bytes.
    """
    if alphabet.kind == "none":
        raise UnsupportedField(
            "the tokenizer's tokens are not parts of a text",
            "response_format",
            "Use a model whose tokenizer.json has a byte-level or SentencePiece decoder.",
        )
    added = set(alphabet.added)
    table = _byte_table()
    ends: list[int] = []
    data: list[int] = []
    for i in range(count):
        token = None if i in added else token_of(i)
        if token:
            found = token_bytes(token, alphabet, table)
            data.extend([] if TOKEN in found else found)
        elif i in alphabet.marks:
            data.extend([TOKEN, *utf8_bytes(alphabet.marks[i])])
        ends.append(len(data))
    return ends, bytes(data)
