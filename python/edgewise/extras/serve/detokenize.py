"""Text of tokens as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CONTEXT = 8  # tokens of the prompt before the first new one: its text can depend on them
BROKEN = "\ufffd"


class Detokenizer:
    """The text that each token adds. The texts of all tokens together are that of the sequence.

    Args:
        tokenizer: has decode(ids, skip_special_tokens=...) -> str.
        prompt: token ids before the first token.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.ids = list(prompt[-CONTEXT:])
        # The text of ids[begin:told] was told; ids[begin:] are decoded, since the text of a token
        # can depend on those before it.
        self.begin, self.told = 0, len(self.ids)

    def push(self, token: int) -> str:
        """The text that is complete with a token: none within a character of several tokens."""
        self.ids.append(token)
        text = self._new()
        if not text or text.endswith(BROKEN):
            return ""
        self.begin, self.told = self.told, len(self.ids)
        return text

    def end(self) -> str:
        """What is left: an incomplete character."""
        text = self._new()
        self.told = len(self.ids)
        return text

    def _new(self) -> str:
        old = self._decode(self.ids[self.begin : self.told])
        return self._decode(self.ids[self.begin :])[len(old) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""
