"""A token of a text."""

from __future__ import annotations

from typing import NamedTuple


class Token(NamedTuple):
    """A token of a text: its id, the characters [start, end) of the text, and the index of its
    word, None if the tokenizer has no words there.
    """

    id: int
    start: int
    end: int
    word: int | None
