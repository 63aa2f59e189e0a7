"""Limits of tokenizer.json and chat templates, which are untrusted programs.

emit.py writes the numbers to web/src/gen/text_limits.ts for the page. Real tokenizers stay far
below them: the largest known ones have 65,536 added tokens, patterns of 3,000 characters and
normalizers of 20 steps.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import Any

from ...logic.text.regex_limits import RegexError, check_regex

LIMITS = {
    "file_bytes": 1 << 28,  # tokenizer.json
    "config_bytes": 1 << 24,  # each of the other JSON files
    "depth": 64,  # nested objects and lists, in tokenizer.json
    "components": 256,  # normalizers, pre-tokenizers, post-processors and decoders in total
    "content_chars": 1000,  # what a component inserts for one match
    "growth": 10_000,  # how many times longer a text may become by normalizing or decoding it
    "text_chars": 1 << 28,  # length of a text times that growth, where it grows
    "added_tokens": 200_000,
    "added_token_chars": 1024,
    "token_chars": 10_000,  # of the vocabulary
    "word_chars": 10_000,  # WordPiece's max_input_chars_per_word: its work grows with the square
    "regex_chars": 20_000,
    "regex_depth": 40,  # nested groups
    "regex_states": 100_000,  # the pattern with its counted repetitions written out
    "template_chars": 1 << 18,  # a chat template's source
    "template_spaces": 4096,  # in it in a row: the page's parser takes quadratic time for them
    # loop iterations, macro calls, calls and operations of a rendering
    "template_steps": 1_000_000,
    "template_chars_made": 1 << 24,  # the longest text of a rendering
    "template_chars_total": 1 << 28,  # all texts of a rendering in total
    "template_items_total": 1 << 24,  # all lists of a rendering in total
    "template_seconds": 30,
}

# Members of a component of tokenizer.json that hold components, and texts that it may insert.
COMPONENT_LISTS = ("normalizers", "pretokenizers", "processors", "decoders")
INSERTED_TEXTS = (
    "content",
    "prepend",
    "replacement",
    "prefix",
    "suffix",
    "unk_token",
    "pad_token",
    "word_delimiter_token",
)


class LimitError(ValueError):
    """A limit is exceeded; the message says which."""


def check_tokenizer(value: dict[str, Any]) -> dict[str, float]:
    """Checks the limits of a tokenizer.json. Mirrors web/src/worker/text/tokenizer-limits.ts.

    Values of a wrong type are ignored; the tokenizer library reports them.

    Args:
        value: contents of the file.

    Returns:
        {"encode": growth, "decode": growth}: how many times longer a text can become.

    Raises:
        LimitError: a limit is exceeded.
    """
    _check_depth(value)
    growth = {"encode": 1.0, "decode": 1.0}
    count = 0
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        for component in _components(value.get(part)):
            count += 1
            if count > LIMITS["components"]:
                raise LimitError(
                    f"it has more than {LIMITS['components']} normalizers, pre-tokenizers,"
                    " post-processors and decoders"
                )
            side = "decode" if part == "decoder" else "encode"
            growth[side] *= _check_component(component, part)
            if growth[side] > LIMITS["growth"]:
                raise LimitError(
                    f"its {part} makes a text more than {LIMITS['growth']} times longer"
                )
    _check_added(value.get("added_tokens"))
    _check_model(value.get("model"))
    return growth


def _check_depth(value: object) -> None:
    level: list[Any] = [value]
    for _ in range(LIMITS["depth"]):
        level = [
            x
            for v in level
            for x in (v.values() if isinstance(v, dict) else v)
            if isinstance(x, (dict, list))
        ]
        if not level:
            return
    raise LimitError(f"its objects are nested more than {LIMITS['depth']} deep")


def _components(value: object) -> Iterator[dict[str, Any]]:
    """The components of a part, including those of sequences, in the order of execution."""
    if not isinstance(value, dict):
        return
    lists = [value[name] for name in COMPONENT_LISTS if isinstance(value.get(name), list)]
    if not lists:
        yield value
    for one in lists:
        for component in one:
            yield from _components(component)


def _check_component(component: dict[str, Any], part: str) -> float:
    """How many times longer a component can make a text."""
    kind = component.get("type")
    pattern = component.get("pattern")
    narrow = 0  # the fewest characters that a match has
    if isinstance(pattern, dict):
        if isinstance(pattern.get("Regex"), str):
            narrow = regex_width(pattern["Regex"])
        elif isinstance(pattern.get("String"), str):
            narrow = len(pattern["String"])
    longest = 0
    for name in INSERTED_TEXTS:
        text = component.get(name)
        if isinstance(text, str):
            if len(text) > LIMITS["content_chars"]:
                raise LimitError(f"'{name}' of a {kind} has {len(text)} characters")
            longest = max(longest, len(text))
    if kind == "Replace":
        return max(1.0, longest / narrow) if narrow else 1.0 + longest
    if kind == "Prepend":
        return 1.0 + longest / 64  # once, before the text
    if kind == "Precompiled" and part == "normalizer":
        return _charsmap_growth(component.get("precompiled_charsmap"))
    for name in ("single", "pair"):
        pieces = component.get(name)
        if (
            kind == "TemplateProcessing"
            and isinstance(pieces, list)
            and len(pieces) > LIMITS["components"]
        ):
            raise LimitError(f"'{name}' of its TemplateProcessing has {len(pieces)} pieces")
    return 1.0


def _charsmap_growth(data: object) -> float:
    """How many times longer sentencepiece's normalization can make a text, from the longest of its
    NUL-terminated replacements.
    """
    try:
        raw = (
            base64.b64decode(data)
            if isinstance(data, str)
            else bytes(data)
            if isinstance(data, list)
            else b""
        )
        (trie,) = struct.unpack_from("<I", raw)
    except (binascii.Error, ValueError, TypeError, struct.error):
        return 1.0  # the library reports the error
    longest = max(map(len, raw[4 + trie :].split(b"\0")), default=0)
    if longest > LIMITS["content_chars"]:
        raise LimitError(f"a replacement of its precompiled_charsmap has {longest} bytes")
    return 1.0 + longest / 64 if longest < 64 else float(longest)  # few characters have a long one


def _check_added(added: object) -> None:
    if not isinstance(added, list):
        return
    if len(added) > LIMITS["added_tokens"]:
        raise LimitError(f"it has {len(added)} added tokens")
    for token in added:
        content = token.get("content") if isinstance(token, dict) else None
        if isinstance(content, str) and len(content) > LIMITS["added_token_chars"]:
            raise LimitError(f"an added token has {len(content)} characters")


def _check_model(model: object) -> None:
    if not isinstance(model, dict):
        return
    for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        text = model.get(name)
        if isinstance(text, str) and len(text) > LIMITS["content_chars"]:
            raise LimitError(f"'{name}' of its model has {len(text)} characters")
    most = model.get("max_input_chars_per_word")
    if isinstance(most, (int, float)) and most > LIMITS["word_chars"]:
        raise LimitError(f"max_input_chars_per_word is {most}")
    vocab = model.get("vocab")
    tokens = (
        vocab
        if isinstance(vocab, dict)
        else (
            (entry[0] for entry in vocab if isinstance(entry, list) and entry)
            if isinstance(vocab, list)
            else ()
        )
    )
    for token in tokens:
        if isinstance(token, str) and len(token) > LIMITS["token_chars"]:
            raise LimitError(f"a token of its vocabulary has {len(token)} characters")


def regex_width(pattern: str) -> int:
    """The minimum length of a match of a pattern.

    Raises:
        LimitError: matching can take exponential time, or the pattern is too large.
    """
    try:
        return check_regex(
            pattern, LIMITS["regex_chars"], LIMITS["regex_depth"], LIMITS["regex_states"]
        )
    except RegexError as e:
        quoted = pattern if len(pattern) <= 80 else pattern[:77] + "..."
        raise LimitError(f"its regular expression '{quoted}' {e}") from None
