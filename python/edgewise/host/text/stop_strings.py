"""The criterion `stop_strings`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

from ...errors import InputError
from ...logic.native import written


class Decodes(Protocol):
    """A tokenizer, as stop strings need it."""

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        ...


class StopStrings:
    """Whether the last token completes one of some strings, as transformers' StopStringCriteria.

    A string may begin in any token, also in the prompt, and ends in the last one. The last few ids
    are decoded; there is no table of the vocabulary.

    Args:
        tokenizer: decodes ids.
        strings: a string or a list of them, none empty.

    Raises:
        InputError: there is no tokenizer, or `strings` is something else.
    """

    def __init__(self, tokenizer: Decodes | None, strings: str | Sequence[str]):
        if tokenizer is None:
            raise InputError(
                "stop_strings need a tokenizer",
                "generate",
                "Pass tokenizer=, or use eos_token_id or stopping_criteria.",
            )
        self.strings: list[Any] = list(strings) if isinstance(strings, (list, tuple)) else [strings]
        if not all(isinstance(s, str) and s for s in self.strings):
            raise InputError(
                "stop_strings has to be a string or a list of strings, none empty, but is"
                f" {written(strings)}",
                "GenerationConfig",
            )
        self.tokenizer = tokenizer
        # A token has at least one byte. One more token, since decoders treat the first one
        # differently.
        self.window = max(len(s.encode()) for s in self.strings) + 1

    def __call__(self, ids: Sequence[int]) -> bool:
        tail = list(ids[-self.window :])
        text = self.tokenizer.decode(tail, skip_special_tokens=False)
        before = (
            self.tokenizer.decode(tail[:-1], skip_special_tokens=False) if len(tail) > 1 else ""
        )
        same = len(os.path.commonprefix([text, before]))
        return any(text.find(s, max(0, same - len(s) + 1)) >= 0 for s in self.strings)
