"""Sentences of texts that arrive in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["sentences"]

# The end of a sentence: a full stop and what closes quotations, before a space; or a line break.
# After the full stops of Chinese and Japanese there is no space.
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”’]*|\n")
# What ends with a full stop and is no sentence.
_SHORT = re.compile(r"(?:^|[\s(\"“])(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|No|[A-Z])\.\Z")


def sentences(pieces: Iterable[str]) -> Iterator[str]:
    """The sentences of a text, without spaces at their ends.

    Args:
        pieces: the text in one or several parts, such as those of a streamer.

    Yields:
        each sentence as soon as it is known to have ended
    """
    text = ""
    for piece in pieces:
        text += piece
        start = at = 0
        while (end := _END.search(text, at)) is not None:
            at = end.end()
            if _SHORT.search(text[start:at]):
                continue
            if text[start:at].strip():
                yield text[start:at].strip()
            start = at
        text = text[start:]
    if text.strip():
        yield text.strip()
