"""Formats of generated text, kept with the decoders that they are for."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from ...errors import InputError

if TYPE_CHECKING:
    from ...logic.grammar.constraint import Format, Formats
    from .run import Decoder


class _Kept:
    """The formats of a decoder with a tokenizer, freed with it."""

    def __init__(self, tokenizer: Any, formats: Formats) -> None:
        self.tokenizer, self.formats = tokenizer, formats
        weakref.finalize(self, formats.free)


_kept: weakref.WeakKeyDictionary[Any, list[_Kept]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def format_of(decoder: Decoder, tokenizer: Any, given: Any) -> Format | None:
    """What the texts of a call have to be; None: anything.

    Args:
        decoder: in whose engine the tables are.
        tokenizer: edgewise.text.Tokenizer, or None.
        given: the call's response_format, or None.

    Raises:
        InputError, UnsupportedField: it cannot be used.
    """
    if given is None:
        return None
    from ...logic.grammar.constraint import Formats

    if not hasattr(tokenizer, "alphabet"):
        raise InputError(
            "response_format needs the tokens of a tokenizer",
            "generate",
            "Pass edgewise.text.Tokenizer as tokenizer.",
        )
    with _lock:
        several = _kept.setdefault(getattr(decoder, "formats_with", decoder), [])
        for one in several:
            if one.tokenizer is tokenizer:
                return one.formats.format(given)
        made = Formats(decoder.engine, decoder.vocab_size, tokenizer.alphabet, tokenizer.token_of)
        several.append(_Kept(tokenizer, made))
        return made.format(given)
