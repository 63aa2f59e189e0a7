"""Tokenizers and chat templates in Pyodide: the JavaScript libraries that pages use.

The wheel has them in one script (web/src/worker/entry/text-library.ts), which is evaluated when the
first tokenizer or template is made. It has no state beyond that, needs no network, and runs in
whatever thread Pyodide runs in.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyodide.code import run_js
from pyodide.ffi import JsException, to_js

from ...errors import TokenizerError
from ...logic.text.encoding import NotSupported, Token

FILE = "text-library.js"


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    script = Path(__file__).with_name(FILE)
    try:
        return run_js(script.read_text("utf-8"))
    except FileNotFoundError:
        raise TokenizerError(
            "the text library of pages is not there",
            script,
            "Install Edgewise's own wheel for Pyodide, which has it.",
        ) from None


class BrowserTokenizer:
    """A tokenizer.json by @huggingface/tokenizers.

    Args:
        text: of the file, whose limits were checked.

    Raises:
        ValueError: it is no tokenizer. Raised by the methods, too. NotSupported: it has what the
            library does not have, or a regular expression that may take exponential time.
    """

    def __init__(self, text: str) -> None:
        self._own = _called(_library().tokenizer, text)
        self._first: list[int] | None = None
        self._last: list[int] = []

    def surround(self, first: tuple[str, int] | None, last: tuple[str, int] | None) -> None:
        """Replaces what the file adds to texts by a token (name, id) before and one after."""
        self._first = [first[1]] if first else []
        self._last = [last[1]] if last else []

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text."""
        own = add_special_tokens and self._first is None
        ids: list[int] = _called(self._own.encode, text, own).to_py().tolist()
        return [*(self._first or ()), *ids, *self._last] if add_special_tokens else ids

    def tokens(self, text: str | Sequence[str]) -> list[Token]:
        """The tokens of a text, or of a list of words, without those that are added."""
        if not isinstance(text, str):
            return [
                token._replace(word=i) for i, word in enumerate(text) for token in self.tokens(word)
            ]
        found = iter(map(int, _called(self._own.tokens, text).to_py().tolist()))
        places = _places(text)
        return [
            Token(number, places[start], places[end], None if word < 0 else word)
            for number, start, end, word in zip(found, found, found, found)
        ]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids. Ids without a token are left out."""
        return str(_called(self._own.decode, to_js(ids), skip_special_tokens))

    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        return str(_called(self._own.join, to_js(tokens)))

    def id_to_token(self, number: int) -> str | None:
        """The token of an id, or None."""
        found: str | None = self._own.tokenOf(number)
        return found

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, or None."""
        found: int | None = self._own.idOf(token)
        return found

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self._own.size)


def _places(text: str) -> Sequence[int]:
    """The character at each place of a text in UTF-16, whose indices JavaScript has."""
    if text.isascii() or max(text) < "\U00010000":
        return range(len(text) + 1)
    return [i for i, c in enumerate(text) for _ in range(1 + (c > "\uffff"))] + [len(text)]


def _called(function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except JsException as error:
        made = error.js_error
        kind = NotSupported if made.name == NotSupported.__name__ else ValueError
        raise kind(str(made.message)[:1000]) from None


def template(source: str, where: str) -> Callable[[Mapping[str, Any]], str]:
    """A chat template by @huggingface/jinja, with the limits of pages.

    Args:
        source: the template's text.
        where: for messages.

    Returns:
        function({variable: value}) that renders the template

    Raises:
        TokenizerError: the template is invalid. Raised by the function, too: it refuses the values,
            or exceeds a limit.
    """

    def called(function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except JsException as error:
            made = error.js_error
            raise TokenizerError(
                str(getattr(made, "what", made.message)), where, str(getattr(made, "remedy", ""))
            ) from None

    render = called(_library().template, source)

    def rendered(variables: Mapping[str, Any]) -> str:
        try:
            text = json.dumps(variables, default=_plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise TokenizerError(
                f"a variable of the chat template is not JSON ({error})",
                where,
                "Give texts, numbers, lists and dictionaries.",
            ) from None
        return str(called(render, text))

    return rendered


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"a {type(value).__name__}")
