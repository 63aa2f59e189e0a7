"""The criterion `stop_strings`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import InputError
from ..native import listed, part, size, written

Decode = Callable[[list[int]], str]
"""The text of token ids, special tokens included."""


class StopStrings:
    """Whether the last token completes one of some strings, as transformers' StopStringCriteria.

    A string may begin in any token, also in the prompt, and ends in the last one. The last few ids
    are decoded; there is no table of the vocabulary.

    Args:
        decode: of the tokenizer; None: there is none.
        strings: a string or a list of them, none empty.

    Raises:
        InputError: there is no tokenizer, or `strings` is something else.
    """

    def __init__(self, decode: Decode | None, strings: Any) -> None:
        if decode is None:
            raise InputError(
                "stop_strings need a tokenizer",
                "generate",
                "Pass tokenizer, or use eos_token_id or stopping_criteria.",
            )
        found = listed(strings)
        self.strings: list[str] = [strings] if found is None else found
        if not all(isinstance(s, str) and s for s in self.strings):
            raise InputError(
                "stop_strings has to be a string or a list of strings, none empty, but is"
                f" {written(strings)}",
                "GenerationConfig",
            )
        self.decode: Decode = decode
        # A token has at least one byte. One more token, since decoders treat the first one
        # differently.
        self.window = max([len(s.encode("utf-8")) for s in self.strings]) + 1

    def hit(self, ids: Sequence[int]) -> bool:
        """Whether the last of `ids` completes a string."""
        tail: list[int] = list(ids[max(len(ids) - self.window, 0) :])
        text = self.decode(tail)
        before = self.decode(tail[:-1]) if len(tail) > 1 else ""
        shorter = min(size(text), size(before))
        same = 0
        while same < shorter and part(text, same, same + 1) == part(before, same, same + 1):
            same += 1
        for s in self.strings:
            if s in part(text, max(0, same - size(s) + 1), size(text)):
                return True
        return False


def stop_strings_of(decode: Decode | None, strings: Any) -> StopStrings | None:
    """The criterion of a configuration; None if it has no strings."""
    return StopStrings(decode, strings) if strings else None
