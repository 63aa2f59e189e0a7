"""Tokenizers in CPython: the `tokenizers` library, an optional dependency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...logic.text.encoding import Token


class LibraryTokenizer:
    """A tokenizer.json by the `tokenizers` library.

    Args:
        text: of the file, whose limits were checked.

    Raises:
        ImportError: the library is not installed. Any exception, also one that is no Exception: the
            file is malformed. Raised by the methods, too.
    """

    def __init__(self, text: str) -> None:
        import tokenizers

        self._own = tokenizers.Tokenizer.from_str(text)
        self._own.no_truncation()  # those in the file are for training
        self._own.no_padding()

    def surround(self, first: tuple[str, int] | None, last: tuple[str, int] | None) -> None:
        """Replaces what the file adds to texts by a token (name, id) before and one after."""
        from tokenizers.processors import TemplateProcessing

        single = [
            *([f"{first[0]}:0"] if first else []),
            "$A:0",
            *([f"{last[0]}:0"] if last else []),
        ]
        self._own.post_processor = TemplateProcessing(
            single=single,
            pair=[*single, "$B:1"],
            special_tokens=[token for token in (first, last) if token],
        )

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text."""
        ids: list[int] = self._own.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def tokens(self, text: str | Sequence[str]) -> list[Token]:
        """The tokens of a text, or of a list of words, without those that are added."""
        words = not isinstance(text, str)
        found = self._own.encode(
            list(text) if words else text, is_pretokenized=words, add_special_tokens=False
        )
        return [
            Token(i, start, end, word)
            for i, (start, end), word in zip(found.ids, found.offsets, found.word_ids)
        ]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids. Ids without a token are left out."""
        text: str = self._own.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        decoder: Any = self._own.decoder
        return " ".join(tokens) if decoder is None else str(decoder.decode(list(tokens)))

    def id_to_token(self, number: int) -> str | None:
        """The token of an id, or None."""
        found: str | None = self._own.id_to_token(number)
        return found

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, or None."""
        found: int | None = self._own.token_to_id(token)
        return found

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self._own.get_vocab_size(with_added_tokens=True))
