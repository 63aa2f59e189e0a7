"""Tokenizers of Hugging Face models: tokenizer.json, tokenizer_config.json and a chat template.

In CPython the `tokenizers` library reads tokenizer.json (library.py); in Pyodide, for which it has
no wheel, the JavaScript library of pages does (browser.py).
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from ...errors import (
    InputError,
    OutOfMemory,
    TokenizerError,
    list_of,
    memory_in_words,
    path_of,
    token_ids,
    wrong_type,
)
from ...json_text import parse_json_object
from ...logic.grammar.vocabulary import alphabet_of
from ...logic.speech.ctc import cleaned
from ...logic.text.chat import (
    SPECIAL,
    TEMPLATE_FILES,
    added_contents,
    default_template,
    processor_template,
    read_special_tokens,
    tokens_around,
    tool_template,
)
from ...logic.text.encoding import (
    Encoding,
    NotSupported,
    Template,
    Token,
    read_template,
    surrounding,
    truncated,
)
from ...logic.text.limits import COPY, LIMITS
from ...logic.text.tokenizer_limits import LimitError, check_growth, check_tokenizer
from .chat_template import ChatTemplate

if TYPE_CHECKING:
    from .browser import BrowserTokenizer
    from .library import LibraryTokenizer

    Buffer = bytes | bytearray | memoryview

__all__ = ["ChatTemplate", "Tokenizer"]


class Tokenizer:
    """A tokenizer: `Tokenizer.from_pretrained(directory)`.

    Mirrors transformers' PreTrainedTokenizerFast: special tokens are added by the post-processor of
    tokenizer.json, and for Llama-like classes according to add_bos_token and add_eos_token of
    tokenizer_config.json.

    Args:
        tokenizer_json: text of tokenizer.json.
        config: contents of tokenizer_config.json.
        special_tokens: contents of special_tokens_map.json.
        chat_template: Jinja template, which overrides the one in config.
        where: path of tokenizer.json, for messages.

    Attributes:
        bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token: special
            tokens, None if there is none. Each has an id: bos_token_id, ...
        chat_template: the template's text, or None.
        model_max_length: as in tokenizer_config.json.
        alphabet: how its tokens are written.
        special_tokens: texts of the added tokens that are special.
        continuing_subword_prefix: what tokens within a word begin with, such as "##", or None.

    Raises:
        TokenizerError: a file is broken, or the `tokenizers` library is not installed.
    """

    bos_token: str | None
    bos_token_id: int | None
    eos_token: str | None
    eos_token_id: int | None

    @memory_in_words
    def __init__(
        self,
        tokenizer_json: str,
        config: dict[str, Any] | None = None,
        special_tokens: dict[str, Any] | None = None,
        chat_template: str | None = None,
        where: str = "tokenizer.json",
    ) -> None:
        if not isinstance(tokenizer_json, str):
            raise wrong_type(tokenizer_json, "tokenizer_json", "the text of tokenizer.json")
        self.config, self.where = config or {}, where
        value = parse_json_object(
            tokenizer_json, where, TokenizerError, most_bytes=LIMITS.file_bytes
        )  # the library does not say where a file is broken
        try:
            self._growth = check_tokenizer(value)
        except LimitError as error:
            raise TokenizerError(f"it exceeds a limit: {error}", where, COPY) from None
        self.backend: LibraryTokenizer | BrowserTokenizer = self._guarded(
            functools.partial(_backend, tokenizer_json), "not a valid tokenizer file"
        )
        self._post_processor = value.get("post_processor")
        self._template: Template | None = None
        read = ("decoder", "pre_tokenizer", "added_tokens")
        self.alphabet = alphabet_of({name: value.get(name) for name in read})
        self.special_tokens = added_contents(value.get("added_tokens"), True)
        self._added = added_contents(value.get("added_tokens"), False)
        model = value.get("model")
        self.continuing_subword_prefix = (
            model.get("continuing_subword_prefix") if isinstance(model, dict) else None
        ) or None
        del value
        place = where.replace("tokenizer.json", "tokenizer_config.json")
        special = read_special_tokens(self.config, special_tokens or {}, place)
        for name in SPECIAL:
            token = special.get(name)
            setattr(self, name, token)
            number = None if token is None else self.token_to_id(token)
            setattr(self, name + "_id", number)
        self.model_max_length = self.config.get("model_max_length")
        self._follow_add_bos()
        given = chat_template if chat_template is not None else self.config.get("chat_template")
        self.chat_template: Any = default_template(given)
        self._own_templates = (self.chat_template, tool_template(given))

    @classmethod
    @memory_in_words
    def from_pretrained(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer.

        Args:
            path: model folder, or a tokenizer.json.

        Raises:
            TokenizerError: a file is missing, cannot be read or is broken.
        """
        path = Path(path_of(path, "path"))
        directory, name = (path, "tokenizer.json") if path.is_dir() else (path.parent, path.name)

        def read(file: str) -> bytes | None:
            if file == "tokenizer.json":
                file = name
            try:
                return (directory / file).read_bytes()
            except FileNotFoundError:
                return None
            except OSError as error:
                raise TokenizerError(
                    f"cannot be read ({error.strerror})",
                    directory / file,
                    "Check the file's permissions.",
                ) from None

        return cls.from_files(read, directory)

    @classmethod
    def from_files(
        cls, read: Callable[[str], Buffer | None], where: str | os.PathLike[str] = ""
    ) -> Tokenizer:
        """Reads a tokenizer.

        Args:
            read: function(file name) that returns the bytes of a file of the model, or None.
            where: folder, for messages.

        Raises:
            TokenizerError: a file is missing or broken.
        """

        def text(name: str, most: int = LIMITS.config_bytes) -> str | None:
            data = read(name)
            if data is not None and len(data) > most:
                raise TokenizerError(
                    f"it has {len(data)} bytes, at most {most} are read", place(name), COPY
                )
            try:
                return None if data is None else bytes(data).decode("utf-8")
            except UnicodeDecodeError as error:
                raise TokenizerError(
                    f"byte {error.start} is not UTF-8",
                    place(name),
                    "Copy the file again; this is not text.",
                ) from None

        def place(name: str) -> str:
            return str(Path(where) / name)

        def load(name: str) -> dict[str, Any]:
            content = text(name)
            return (
                {} if content is None else parse_json_object(content, place(name), TokenizerError)
            )

        tokenizer = text("tokenizer.json", LIMITS.file_bytes)
        if tokenizer is None:
            raise TokenizerError(
                "there is no tokenizer here",
                place("tokenizer.json"),
                "A model needs a tokenizer.json (a slow tokenizer's vocabulary files are not"
                " enough: save it once with transformers' AutoTokenizer(..., use_fast=True)).",
            )
        template = text(TEMPLATE_FILES[0])
        return cls(
            tokenizer,
            load("tokenizer_config.json"),
            load("special_tokens_map.json"),
            template if template is not None else processor_template(load(TEMPLATE_FILES[1])),
            place("tokenizer.json"),
        )

    def _follow_add_bos(self) -> None:
        """Replaces the post-processor according to add_bos_token and add_eos_token."""
        names = tokens_around(self.config)
        if names is None:
            return
        first, last = (
            (token, number) if name in names and token and number is not None else None
            for name, token, number in (
                ("bos_token", self.bos_token, self.bos_token_id),
                ("eos_token", self.eos_token, self.eos_token_id),
            )
        )
        self._template = surrounding([first[1]] if first else [], [last[1]] if last else [])
        self._guarded(lambda: self.backend.surround(first, last))

    @property
    def vocab_size(self) -> int:
        """Number of tokens, including added ones."""
        return self._guarded(lambda: self.backend.size)

    def _guarded(self, call: Callable[[], Any], what: str = "it cannot be used") -> Any:
        """Calls the library and turns what it raises into a TokenizerError.

        A valid tokenizer.json can be inconsistent, such as a template without its tokens. The
        library then raises any exception, or a Rust panic, which is a BaseException.
        """
        try:
            return call()
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except MemoryError:
            raise OutOfMemory("out of memory in the tokenizer", self.where, COPY) from None
        except NotSupported as error:
            raise TokenizerError(
                f"it has what is not supported: {error}",
                self.where,
                "Pass any object with encode(text) and decode(ids) as tokenizer.",
            ) from None
        except ImportError:
            raise TokenizerError(
                "tokenizers need the `tokenizers` library, which is not installed",
                self.where,
                "pip install edgewise[text]; or pass any object with encode(text) and decode(ids)"
                " as tokenizer.",
            ) from None
        except BaseException as error:
            raise TokenizerError(
                f"{what} ({error})",
                self.where,
                "Copy tokenizer.json again from the model it belongs to; it may be truncated.",
            ) from None

    def _bounded(self, chars: int, side: Literal["encode", "decode"]) -> None:
        """Raises TokenizerError if a text, or so many tokens, could become too long."""
        check_growth(self._growth, side, chars, self.where)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text.

        Raises:
            TokenizerError: the tokenizer cannot be used. TypeError: text is not a string.
            InputError: it has half of a surrogate pair.
        """
        if not isinstance(text, str):
            raise wrong_type(text, "text", "a string")
        self._bounded(len(text), "encode")
        check_characters(text)
        return self._guarded(
            lambda: self.backend.encode(text, add_special_tokens=add_special_tokens)
        )

    def encodings(
        self,
        text: str | Sequence[str],
        pair: str | None = None,
        *,
        add_special_tokens: bool = True,
        truncation: bool | str = False,
        max_length: int | None = None,
        stride: int = 0,
    ) -> list[Encoding]:
        """A text or a pair with offsets, words and masks, as transformers' `tokenizer(text, pair)`
        with `return_overflowing_tokens`.

        Args:
            text: a text, or a list of words.
            pair: a second text.
            add_special_tokens: whether the tokenizer's special tokens are added.
            truncation: True or "longest_first", "only_first", "only_second"; False or
                "do_not_truncate": no limit.
            max_length: of each encoding in tokens. Default: model_max_length.
            stride: tokens that neighboring parts share.

        Returns:
            [what truncation keeps, the parts that it cuts off ...]

        Raises:
            TokenizerError: the tokenizer cannot be used. InputError: an argument is not valid.
            TypeError: a text is not a string.
        """
        if self._template is None:
            self._template = self._guarded(lambda: read_template(self._post_processor))
        strategy = truncation
        if not isinstance(strategy, str):
            strategy = "longest_first" if truncation else "do_not_truncate"
        return truncated(
            self._template,
            self.tokens(text),
            None if pair is None else self.tokens(pair),
            strategy,
            self.longest if max_length is None else max_length,
            stride,
            self.config.get("truncation_side", "right"),
            add_special_tokens,
        )

    @property
    def longest(self) -> int | None:
        """model_max_length; None if it is missing or stands for no limit."""
        most = self.model_max_length
        return int(most) if isinstance(most, (int, float)) and 0 < most < 1e20 else None

    def tokens(self, text: str | Sequence[str]) -> list[Token]:
        """The tokens of a text or of a list of words, with their places; none are added.

        Raises:
            TokenizerError: the tokenizer cannot be used. TypeError: a text is not a string.
        """
        words = [] if isinstance(text, str) else list_of(text, "text", "a string or several")
        if not all(isinstance(w, str) for w in words):
            raise wrong_type(text, "text", "a string or a list of strings")
        self._bounded(len(text) if isinstance(text, str) else sum(map(len, text)), "encode")
        check_characters(text if isinstance(text, str) else "".join(text))

        found: list[Token] = self._guarded(lambda: self.backend.tokens(text))
        return found

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """The tokens of ids, as in transformers; None for ids without a token."""
        ids = token_ids(ids, "ids")
        return [self._guarded(functools.partial(self.backend.id_to_token, i)) for i in ids]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of tokens, as in transformers."""
        return cast(str, self._guarded(lambda: self.backend.join(tokens)))

    def token_of(self, number: int) -> str | None:
        """The token of an id; None if there is none."""
        found: str | None = self._guarded(lambda: self.backend.id_to_token(number))
        return found

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, or None."""
        found: int | None = self._guarded(lambda: self.backend.token_to_id(token))
        return found

    def get_added_vocab(self) -> dict[str, int]:
        """The ids of the added tokens, special or not, as transformers' method has them."""
        ids = {token: self.token_to_id(token) for token in self._added}
        return {token: number for token, number in ids.items() if number is not None}

    def decode(
        self,
        ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """The text of token ids.

        Args:
            ids: list or array of ints.
            skip_special_tokens: leave special tokens out.
            clean_up_tokenization_spaces: remove spaces before punctuation, as in transformers.
                Default: as in tokenizer_config.json, or False.

        Raises:
            InputError: a number is not a token id. TokenizerError: the tokenizer cannot be used.
        """
        ids = ids.tolist() if hasattr(ids, "tolist") else ids
        ids = token_ids(ids, "ids")
        if ids and not 0 <= min(ids) <= max(ids) < 2**32:
            raise InputError(
                f"{min(ids) if min(ids) < 0 else max(ids)} is not a token id",
                "decode",
                "Give ids of the vocabulary.",
            )
        self._bounded(len(ids), "decode")
        text = self._guarded(
            lambda: self.backend.decode(ids, skip_special_tokens=skip_special_tokens)
        )
        clean = (
            self.config.get("clean_up_tokenization_spaces", False)
            if clean_up_tokenization_spaces is None
            else clean_up_tokenization_spaces
        )
        return cleaned(text) if clean else text

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": self.encode(text, add_special_tokens)}

    def get_chat_template(
        self, chat_template: str | None = None, tools: Sequence[Any] | None = None
    ) -> Any:
        """The template of a chat, as transformers' get_chat_template.

        Args:
            chat_template: overrides the tokenizer's.
            tools: of the chat. If there are any, a template named "tool_use" is taken.

        Raises:
            TokenizerError: there is none.
        """
        default, for_tools = self._own_templates
        own = self.chat_template
        if tools is not None and own == default:
            own = for_tools
        template = chat_template or own
        if not template:
            raise TokenizerError(
                "this tokenizer has no chat template",
                "tokenizer_config.json",
                "Pass text instead of messages, or chat_template=.",
            )
        return template

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **variables: Any,
    ) -> list[int] | str:
        """The token ids of a chat, as transformers' apply_chat_template.

        Args:
            messages: [{"role": ..., "content": ...}].
            tools, documents, variables: for the template.
            chat_template: overrides the tokenizer's.
            add_generation_prompt: whether the beginning of an answer follows.
            continue_final_message: leave the last message open, to be continued.
            tokenize: False: return the text.

        Raises:
            TokenizerError: there is no template, or it rejects the messages.
        """
        template = self.get_chat_template(chat_template, tools)
        special = {n: getattr(self, n) for n in SPECIAL if getattr(self, n) is not None}
        text = ChatTemplate(template)(
            messages,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **{**special, **variables},
        )
        return self.encode(text, add_special_tokens=False) if tokenize else text


def check_characters(text: str) -> None:
    """Raises InputError for half of a surrogate pair, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} is half of a surrogate pair",
            "text",
            'Make texts of bytes with errors="replace".',
        ) from None


def _backend(tokenizer_json: str) -> LibraryTokenizer | BrowserTokenizer:
    if sys.platform == "emscripten":
        from .browser import BrowserTokenizer

        return BrowserTokenizer(tokenizer_json)
    from .library import LibraryTokenizer

    return LibraryTokenizer(tokenizer_json)
