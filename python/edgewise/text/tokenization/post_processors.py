"""Post-processors: special tokens around the ids of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .component import Component, build

PostProcessor = Callable[[list[int]], list[int]]


def post_processors(value: object) -> list[PostProcessor]:
    """The post-processors of a tokenizer.json, in order.

    Args:
        value: member `post_processor` of the file.

    Raises:
        ValueError: it is malformed or not supported.
    """
    return build(value, "post_processor", "processors", MAKERS)


def template(single: list[list[int] | None]) -> PostProcessor:
    """A post-processor that puts ids around a text; None stands for the text."""

    def process(ids: list[int]) -> list[int]:
        return [i for part in single for i in (ids if part is None else part)]

    return process


def _template(component: Component) -> PostProcessor:
    tokens: dict[str, list[int]] = {}
    special = component.value.get("special_tokens", {})
    entries = special.values() if isinstance(special, dict) else special
    for entry in entries:
        token = Component(entry, "a special token of TemplateProcessing")
        numbers = token.items("ids")
        if not all(type(n) is int and 0 <= n < 1 << 32 for n in numbers):
            raise ValueError(f"the ids of {token.text('id')[:80]!r} are no ids")
        tokens[token.text("id")] = numbers
    parts: list[list[int] | None] = []
    for piece in component.items("single"):
        one = Component(piece, "a piece of TemplateProcessing")
        if "Sequence" in one.value:
            if one.part("Sequence").text("id") != "A":
                raise ValueError("TemplateProcessing has $B for a single text")
            parts.append(None)
            continue
        name = one.part("SpecialToken").text("id")
        if name not in tokens:
            raise ValueError(f"TemplateProcessing lacks the ids of {name[:80]!r}")
        parts.append(tokens[name])
    return template(parts)


def _around(component: Component) -> PostProcessor:
    """BERT's and RoBERTa's: one token before the text, one after it."""
    first, last = (_pair(component.items(name)) for name in ("cls", "sep"))
    return template([[first], None, [last]])


def _pair(value: list[Any]) -> int:
    """The id of [token, id]."""
    if len(value) != 2 or type(value[1]) is not int or not 0 <= value[1] < 1 << 32:
        raise ValueError("a post-processor's token is no pair of a text and an id")
    return value[1]


MAKERS: dict[str, Callable[[Component], PostProcessor]] = {
    "BertProcessing": _around,
    "ByteLevel": lambda component: template([None]),  # changes offsets alone
    "RobertaProcessing": _around,
    "TemplateProcessing": _template,
}
