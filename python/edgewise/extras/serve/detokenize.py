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


class StopText:
    """Ends a text before the first of some strings, and holds back what may become one.

    Args:
        stops: the strings.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stops)
        self.held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that can be told."""
        if not self.stops:
            return text
        self.held += text
        found = [at for s in self.stops if (at := self.held.find(s)) >= 0]
        if found:
            self.stopped = True
            text, self.held = self.held[: min(found)], ""
            return text
        keep = max(self._overlap(s) for s in self.stops)
        ready = len(self.held) - keep
        text, self.held = self.held[:ready], self.held[ready:]
        return text

    def end(self) -> str:
        """What was held back and is no stop string."""
        text, self.held = self.held, ""
        return text

    def _overlap(self, stop: str) -> int:
        """The longest end of the held text with which `stop` begins."""
        most = min(len(stop) - 1, len(self.held))
        return next((n for n in range(most, 0, -1) if self.held.endswith(stop[:n])), 0)
