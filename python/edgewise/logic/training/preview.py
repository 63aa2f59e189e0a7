"""What a model will see of training data: tokens, and whether each is learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEARNED = "learned"
READ = "read"
LEFT_OUT = "left out"


@dataclass
class Seen:
    """A token as the model sees it: its text, whether it is learned, and whether it fits into the
    row.
    """

    text: str
    learned: bool
    fits: bool


def _runs(tokens: Sequence[Seen]) -> list[tuple[str, str]]:
    """(kind, text) of tokens of one kind that follow each other."""
    kinds: list[str] = []
    texts: list[list[str]] = []
    for token in tokens:
        kind = LEFT_OUT if not token.fits else LEARNED if token.learned else READ
        if not kinds or kinds[-1] != kind:
            kinds.append(kind)
            texts.append([])
        texts[-1].append(token.text)
    return [(kind, "".join(parts)) for kind, parts in zip(kinds, texts)]


def in_words(tokens: Sequence[Seen]) -> str:
    """How many tokens of an example are learned, and how many do not fit."""
    learned = len([x for x in tokens if x.learned])
    words = f"{learned} of {len(tokens)} tokens are learned"
    left = len([x for x in tokens if not x.fits])
    return words + (f", {left} are left out: the row ends before them" if left else "")


def preview_text(examples: Sequence[Sequence[Seen]]) -> str:
    """Examples as a text: a line for each run of tokens, which begins with "learned", "read" or
    "left out". Line breaks within them are escaped.
    """
    lines: list[str] = []
    for i, tokens in enumerate(examples):
        lines.append(f"example {i + 1}: {in_words(tokens)}")
        for kind, text in _runs(tokens):
            shown = text.replace("\\", "\\\\").replace("\n", "\\n")
            lines.append(f"{kind:>8} | {shown}")
    return "\n".join(lines)


def preview_html(examples: Sequence[Sequence[Seen]]) -> str:
    """Examples as HTML: what is learned in <mark>, what is left out in <del>. Texts are escaped."""
    made: list[str] = []
    for tokens in examples:
        parts: list[str] = []
        for kind, text in _runs(tokens):
            shown = _escaped(text)
            if kind == LEARNED:
                shown = f"<mark>{shown}</mark>"
            elif kind == LEFT_OUT:
                shown = f"<del>{shown}</del>"
            parts.append(shown)
        made.append(
            f'<figure class="edgewise-preview"><figcaption>{in_words(tokens)}</figcaption>'
            f'<div style="white-space: pre-wrap">{"".join(parts)}</div></figure>'
        )
    return "".join(made)


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;")


__all__ = ["Seen", "in_words", "preview_html", "preview_text"]
