"""Streamers: text while it is generated.

The protocol is that of transformers: put(ids), the first time with the prompt, and end(). Only the
ids of the current line are decoded, and characters with missing bytes are held back.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

__all__ = ["TextIteratorStreamer", "TextStreamer"]


class TextStreamer:
    """Prints text to stdout, word by word. Mirrors transformers/generation/streamers.py.

    Args:
        tokenizer: an object with decode(ids, **decode_kwargs) -> str.
        skip_prompt: do not print the prompt.
        on_text: called with each piece of text instead of printing it.
        by_word: hold back text up to the last space, as transformers does; False gives each token
            at once.
        **decode_kwargs: for example skip_special_tokens=True.
    """

    def __init__(
        self,
        tokenizer: Any,
        skip_prompt: bool = False,
        on_text: Callable[[str], object] | None = None,
        by_word: bool = True,
        **decode_kwargs: Any,
    ) -> None:
        self.tokenizer, self.skip_prompt, self.on_text, self.by_word, self.decode_kwargs = (
            tokenizer,
            skip_prompt,
            on_text,
            by_word,
            decode_kwargs,
        )
        self.token_cache: list[int] = []
        self.print_len, self.next_tokens_are_prompt = 0, True

    def put(self, value: Any) -> None:
        """Takes new ids: a list, or an array [n] or [1, n]."""
        value = value.tolist() if hasattr(value, "tolist") else list(value)
        if value and isinstance(value[0], list):
            if len(value) > 1:
                raise ValueError("TextStreamer only supports batch size 1")
            value = value[0]
        prompt, self.next_tokens_are_prompt = self.next_tokens_are_prompt, False
        if prompt and self.skip_prompt:
            return
        self.token_cache.extend(value)
        text = self.tokenizer.decode(self.token_cache, **self.decode_kwargs)
        if text.endswith("\ufffd"):
            ready = self._without_broken_end(text)  # the next token may complete the character
        elif text.endswith("\n"):
            ready = len(text)
        elif not self.by_word or (text and _is_cjk(ord(text[-1]))):
            ready = len(text)
        else:
            ready = text.rfind(" ") + 1
        piece = text[self.print_len : ready]
        self.print_len = max(self.print_len, ready)
        if text.endswith("\n"):
            self.token_cache, self.print_len = [], 0
        self.on_finalized_text(piece)

    def end(self) -> None:
        """Prints the text that was held back."""
        piece = (
            self.tokenizer.decode(self.token_cache, **self.decode_kwargs)[self.print_len :]
            if self.token_cache
            else ""
        )
        self.token_cache, self.print_len, self.next_tokens_are_prompt = [], 0, True
        self.on_finalized_text(piece, stream_end=True)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Prints a piece of text, or calls on_text. Subclasses can override it.

        Args:
            text: new text.
            stream_end: whether it is the last piece.
        """
        if self.on_text is None:
            print(text, flush=True, end=None if stream_end else "")
        elif text:
            self.on_text(text)

    def _without_broken_end(self, text: str) -> int:
        end = len(text.rstrip("\ufffd"))
        return end if not self.by_word else text.rfind(" ", 0, end) + 1


class TextIteratorStreamer(TextStreamer):
    """Iterates over the text in one thread while another generates it.

    Args:
        tokenizer, skip_prompt, kwargs: as TextStreamer.
        timeout: seconds to wait for the next piece before queue.Empty is raised. Default: no limit.
    """

    def __init__(
        self, tokenizer: Any, skip_prompt: bool = False, timeout: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(tokenizer, skip_prompt, **kwargs)
        self.text_queue: queue.Queue[str | None] = queue.Queue()
        self.stop_signal, self.timeout = None, timeout

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Passes a piece, or the end, to the thread that iterates."""
        self.text_queue.put(text, timeout=self.timeout)
        if stream_end:
            self.text_queue.put(self.stop_signal, timeout=self.timeout)

    def __iter__(self) -> TextIteratorStreamer:
        return self

    def __next__(self) -> str:
        value = self.text_queue.get(timeout=self.timeout)
        if value is self.stop_signal:
            raise StopIteration
        return value


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
