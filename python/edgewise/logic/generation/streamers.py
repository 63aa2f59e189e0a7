"""Text while it is generated. Only the ids of the current line are decoded, and characters with
missing bytes are held back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"
"""What decoders write for bytes of an incomplete character."""


class TextPieces:
    """The pieces of text that tokens complete, as transformers/generation/streamers.py.

    Args:
        decode: the text of token ids.
        skip_prompt: whether the first ids give no text.
        by_word: hold back text up to the last space, as transformers does; false gives each token
            at once.
    """

    def __init__(
        self, decode: Callable[[list[int]], str], skip_prompt: bool, by_word: bool
    ) -> None:
        self.decode, self.skip_prompt, self.by_word = decode, skip_prompt, by_word
        self.ids: list[int] = []
        self.given = 0  # characters of the line that were given
        self.prompt_is_next = True

    def skips(self) -> bool:
        """Whether the next ids are a prompt that gives no text; the ids after it do."""
        skipped = self.prompt_is_next and self.skip_prompt
        self.prompt_is_next = False
        return skipped

    def put(self, ids: Sequence[int]) -> str:
        """The text that new ids complete; may be empty."""
        self.ids.extend(ids)
        text = self.decode(self.ids)
        ready = self._ready(text)
        piece = text[self.given : max(ready, self.given)]
        self.given = max(self.given, ready)
        if text.endswith("\n"):
            self.ids = []
            self.given = 0
        return piece

    def end(self) -> str:
        """The text that was held back. The next ids are a prompt."""
        piece = self.decode(self.ids)[self.given :] if self.ids else ""
        self.ids = []
        self.given = 0
        self.prompt_is_next = True
        return piece

    def _ready(self, text: str) -> int:
        """How many characters of the line cannot change any more."""
        if text.endswith(BROKEN):  # the next token may complete the character
            whole = text.rstrip(BROKEN)
            return whole.rfind(" ") + 1 if self.by_word else len(whole)
        if text.endswith("\n") or not self.by_word or (text and _is_cjk(ord(text[-1]))):
            return len(text)
        return text.rfind(" ") + 1


def _is_cjk(c: int) -> bool:
    """Whether a code point is in the CJK Unified Ideographs blocks, which have no spaces."""
    return (
        0x4E00 <= c <= 0x9FFF
        or 0x3400 <= c <= 0x4DBF
        or 0x20000 <= c <= 0x2A6DF
        or 0x2A700 <= c <= 0x2CEAF
        or 0xF900 <= c <= 0xFAFF
        or 0x2F800 <= c <= 0x2FA1F
    )
