"""Special tokens in the text of messages and tools, which are text there: only those that the chat
template writes itself are special.

A mark is put into each of them before the template is rendered. The prompt is cut at the marks, and
the pieces, none of which has the whole token, are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..native import listed
from .families import all_marks

_FIRST = 0xE000  # private use
_LAST = 0xF8FF


@dataclass
class Guarded:
    """Messages and tools, and the mark in their text; "" if there is none."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    mark: str


def guarded(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
    special: Sequence[str],
    others: Sequence[str],
) -> Guarded:
    """Puts a mark into each special token of a text.

    Args:
        messages: of the chat. The marks of calls and reasoning in texts of the assistant stay: some
            templates take calls there.
        tools: definitions, or None.
        special: the special tokens.
        others: of `all_marks`, those that are tokens.
    """
    texts: list[str] = []
    _collect([*messages], texts)
    _collect([*(tools or [])], texts)
    joined = "\n".join(texts)
    tokens = _among(joined, [*special, *others])
    same = None if tools is None else list(tools)
    if len(tokens) == 0:
        return Guarded(list(messages), same, "")
    mark = next((chr(i) for i in range(_FIRST, _LAST) if chr(i) not in joined), "\uf8ff")
    marks = set(all_marks())
    fewer = [t for t in tokens if t not in marks]
    made: list[dict[str, Any]] = []
    for message in messages:
        inside = fewer if message.get("role") == "assistant" else tokens
        one: dict[str, Any] = {
            k: _marked(v, inside if k == "content" else tokens, mark) for k, v in message.items()
        }
        made.append(one)
    own = None if tools is None else [_marked(t, tokens, mark) for t in tools]
    return Guarded(made, own, mark)


def _among(text: str, tokens: Sequence[str]) -> list[str]:
    """The tokens of several characters that a text has. Most of hundreds begin alike."""
    heads: set[str] = {t[:2] for t in tokens if len(t) > 1}
    found: set[str] = {head for head in heads if head in text}
    return [t for t in tokens if t[:2] in found and t in text]


def pieces(text: str, mark: str) -> list[str]:
    """The pieces of a prompt that are encoded one by one."""
    return text.split(mark) if mark != "" else [text]


def _collect(value: Any, texts: list[str]) -> None:
    """Adds all texts in a value."""
    items = None if isinstance(value, (str, dict)) else listed(value)
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            texts.append(str(name))
            _collect(inner, texts)
    elif items is not None:
        for item in items:
            _collect(item, texts)


def _marked(value: Any, tokens: Sequence[str], mark: str) -> Any:
    """A value with marks in all of its texts."""
    if isinstance(value, str):
        return marked(value, tokens, mark)
    if isinstance(value, dict):
        fields: dict[str, Any] = {
            marked(str(k), tokens, mark): _marked(v, tokens, mark) for k, v in value.items()
        }
        return fields
    items = listed(value)
    return value if items is None else [_marked(item, tokens, mark) for item in items]


def marked(text: str, tokens: Sequence[str], mark: str) -> str:
    """A text with a mark after the first character of each token, also where they overlap."""
    found = text
    for token in tokens:
        while token in found:
            found = found.replace(token, token[:1] + mark + token[1:])
    return found
