"""Streamers: text while it is generated.

The protocol is that of transformers: put(ids), the first time with the prompt, and end().
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import list_of
from ...logic.generation.streamers import TextPieces

__all__ = ["Streamers", "TextIteratorStreamer", "TextStreamer"]


class Streamers:
    """Several streamers as one."""

    def __init__(self, streamers: Sequence[Any]) -> None:
        self.streamers = streamers

    def put(self, value: Any) -> None:
        """Gives ids to all of them."""
        for streamer in self.streamers:
            streamer.put(value)

    def end(self) -> None:
        """Tells all of them that there are no more."""
        for streamer in self.streamers:
            streamer.end()


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
        self._pieces = TextPieces(self._decode, skip_prompt, by_word)

    def _decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, **self.decode_kwargs)
        return text

    def put(self, value: Any) -> None:
        """Takes new ids: a list, or an array [n] or [1, n]."""
        value = list_of(
            value.tolist() if hasattr(value, "tolist") else value, "value", "a list of token ids"
        )
        if value and isinstance(value[0], list):
            if len(value) > 1:
                raise ValueError("TextStreamer only supports batch size 1")
            value = value[0]
        if not self._pieces.skips():
            self.on_finalized_text(self._pieces.put(value))

    def end(self) -> None:
        """Prints the text that was held back."""
        self.on_finalized_text(self._pieces.end(), stream_end=True)

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
