"""The `tokenizers` library's Tokenizer, as far as Edgewise uses it, in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .added_tokens import AddedTokens
from .alignment import token_spans, trimmed, word_spans
from .bpe import BytePairs
from .component import Component, NotSupported
from .decoders import decoders
from .normalizers import Normalizers
from .post_processors import post_processors, template
from .pre_tokenizers import pre_tokenizers
from .token import Token
from .unigram import Unigram
from .word_models import WordLevel, WordPiece

Model = BytePairs | Unigram | WordPiece | WordLevel
MODELS: dict[str, Callable[[Component], Model]] = {
    "BPE": BytePairs,
    "Unigram": Unigram,
    "WordLevel": WordLevel,
    "WordPiece": WordPiece,
}


@dataclass
class Encoding:
    """The result of `encode`."""

    ids: list[int]


class PythonTokenizer:
    """A tokenizer.json in Python: encodes and decodes as the `tokenizers` library does.

    Truncation and pairs of texts are those of edgewise.text.encoding. Padding and dropout are not
    implemented; the pre-tokenizer UnicodeScripts and some regular expressions (oniguruma.py) are
    refused.

    Args:
        value: contents of the file.

    Raises:
        ValueError: the file is malformed. NotSupported: it needs what is not implemented.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        self.model = _model(value.get("model"))
        self.normalizers = Normalizers(value.get("normalizer"))
        self.pre_tokenizers = pre_tokenizers(value.get("pre_tokenizer"))
        self.processors = post_processors(value.get("post_processor"))
        self.decoders = decoders(value.get("decoder"))
        added = value.get("added_tokens") or []
        if not isinstance(added, list):
            raise ValueError("added_tokens is no list")
        self.added = AddedTokens(added, self.model.vocabulary, self.normalizers)
        self.marks = _Marks(value)

    def encode(self, text: str, add_special_tokens: bool = True) -> Encoding:
        """The token ids of a text.

        Args:
            text: any text without surrogates.
            add_special_tokens: whether the post-processor adds its tokens.

        Raises:
            ValueError: a character is unknown and there is no unknown token.
        """
        ids: list[int] = []
        tokenize = self.model.tokenize
        for piece, number, first in self.added.split(text):
            if number is not None:
                ids.append(number)
                continue
            words = [(piece, first)]
            for pre_tokenizer in self.pre_tokenizers:
                words = pre_tokenizer(words)
            for word, _ in words:
                ids += tokenize(word)
        if add_special_tokens:
            for processor in self.processors:
                ids = processor(ids)
        return Encoding(ids)

    def tokens(self, text: str) -> list[Token]:
        """The tokens of a text, without those that the post-processor adds.

        Args:
            text: any text without surrogates.

        Raises:
            ValueError: a character is unknown and there is no unknown token.
        """
        found: list[Token] = []
        marks, word = self.marks, 0
        for (piece, number, first), spans in self.added.aligned(text):
            if number is not None:
                found.append(Token(number, spans[0][0], spans[-1][1], word))
                word += 1
                continue
            words = [(piece, first)]
            for pre_tokenizer in self.pre_tokenizers:
                words = pre_tokenizer(words)
            texts = [w for w, _ in words]
            for w, own in zip(
                texts, word_spans(piece, spans, texts, marks.byte_level, marks.space)
            ):
                ids = self.model.tokenize(w)
                places = token_spans(w, own, ids, self.model.tokens, marks.prefix, marks.suffix)
                for i, span in zip(ids, places):
                    if marks.trim is not None:
                        token = self.model.tokens.get(i, "")
                        span = trimmed(token, span, not found, marks.trim)
                    found.append(Token(i, *span, word))
                word += 1
        return found

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids. Ids without a token are left out."""
        added, tokens = self.added.contents, self.model.tokens
        found = [added[i] if i in added else tokens[i] for i in ids if i in added or i in tokens]
        if skip_special_tokens:
            found = [token for token in found if token not in self.added.special]
        return self.join(found)

    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens."""
        found = list(tokens)
        if not self.decoders:
            return " ".join(found)
        for decoder in self.decoders:
            found = decoder(found)
        return "".join(found)

    def id_to_token(self, number: int) -> str | None:
        """The token of an id, or None."""
        found = self.added.contents.get(number)
        return self.model.tokens.get(number) if found is None else found

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, or None."""
        found = self.added.ids.get(token)
        return self.model.vocabulary.get(token) if found is None else found

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """The number of tokens."""
        size = len(self.model.vocabulary)
        if not with_added_tokens:
            return size
        return size + sum(token not in self.model.vocabulary for token in self.added.ids)

    def surround(self, first: Sequence[int], last: Sequence[int]) -> None:
        """Replaces the post-processor by one that puts ids before and after each text."""
        self.processors = [template([list(first), None, list(last)])]


class _Marks:
    """What offsets depend on.

    Attributes:
        byte_level: whether the pre-tokenizers replace characters by those of bytes.
        space: what they replace spaces by, or "".
        prefix, suffix: of tokens within and at the end of a word.
        trim: None: spans contain the spaces of tokens; else whether the pre-tokenizer puts a space
            before the text.
    """

    def __init__(self, value: dict[str, Any]) -> None:
        split = _components(value.get("pre_tokenizer"), "pretokenizers")
        kinds = {c.get("type"): c for c in split}
        self.byte_level = "ByteLevel" in kinds
        self.space = kinds["Metaspace"].get("replacement", "▁") if "Metaspace" in kinds else ""
        model = value.get("model") or {}
        self.prefix = model.get("continuing_subword_prefix") or ""
        self.suffix = model.get("end_of_word_suffix") or ""
        self.trim: bool | None = None
        for c in _components(value.get("post_processor"), "processors"):
            if c.get("type") in ("ByteLevel", "RobertaProcessing") and c.get("trim_offsets", True):
                self.trim = bool(c.get("add_prefix_space", True))


def _components(value: object, lists: str) -> list[dict[str, Any]]:
    """The components of a part of tokenizer.json, which was checked."""
    if not isinstance(value, dict):
        return []
    if value.get("type") == "Sequence":
        return [c for one in value.get(lists) or () for c in _components(one, lists)]
    return [value]


def _model(value: object) -> Model:
    component = Component(value, "model")
    kind = component.kind
    if not kind:  # files of before 2020: the members say which model it is
        vocabulary = component.value.get("vocab")
        kind = (
            "Unigram"
            if isinstance(vocabulary, list)
            else "BPE"
            if "merges" in component.value
            else "WordPiece"
            if "continuing_subword_prefix" in component.value
            else "WordLevel"
        )
    if kind not in MODELS:
        raise NotSupported(f"the model has the type {kind[:80]!r}")
    return MODELS[kind](component)
