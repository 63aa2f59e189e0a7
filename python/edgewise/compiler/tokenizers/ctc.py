"""Tokenizers of CTC models: from the token of each frame to text and times.

Mirrors transformers' Wav2Vec2CTCTokenizer.decode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...errors import PackageError, TokenizerError
from ...json_text import object_field, parse_json_object
from ...logic.speech.ctc import Span, Vocabulary, characters_of, text_of, words_of

__all__ = ["CTCTokenizer", "frame_size"]

CLASSES = ("Wav2Vec2CTCTokenizer", "Wav2Vec2Tokenizer", "PreTrainedTokenizerFast")
MAX_TOKENS = 1 << 20
COPY = "Copy the tokenizer's files again from the model they belong to."


class CTCTokenizer:
    """The vocabulary of a CTC model.

    Args:
        vocabulary: {token: id}.
        config: contents of tokenizer_config.json.

    Attributes:
        vocabulary: what logic/speech/ctc.py knows of it.
    """

    def __init__(self, vocabulary: Mapping[str, int], config: Mapping[str, Any]) -> None:
        tokens = {i: token for token, i in vocabulary.items()}
        self.vocabulary = Vocabulary(
            [tokens.get(i) for i in range(max(tokens, default=-1) + 1)],
            _token(config.get("pad_token"), "<pad>"),
            _token(config.get("unk_token"), "<unk>"),
            _token(config.get("word_delimiter_token"), "|"),
            config.get("replace_word_delimiter_char", " "),
            bool(config.get("do_lower_case", False)),
            bool(config.get("clean_up_tokenization_spaces", False)),
        )

    @classmethod
    def from_files(cls, read: Callable[[str], bytes | None], where: str = "") -> CTCTokenizer:
        """Reads vocab.json, or tokenizer.json where there is none.

        Args:
            read: function(file name) that returns the bytes of a file of the model, or None.
            where: the model, for messages.

        Raises:
            TokenizerError: a file is missing, broken, or of another tokenizer.
        """

        def read_json(name: str) -> dict[str, Any]:
            data = read(name)
            return (
                {} if data is None else parse_json_object(data, f"{where}/{name}", TokenizerError)
            )

        config = {**read_json("special_tokens_map.json"), **read_json("tokenizer_config.json")}
        kind = config.get("tokenizer_class")
        if kind is not None and kind not in CLASSES:
            raise TokenizerError(
                f"{kind} is not supported for CTC models",
                where,
                f"Supported are {', '.join(CLASSES)}.",
            )
        vocabulary, language = read_json("vocab.json"), config.get("target_lang")
        if isinstance(language, str) and isinstance(vocabulary.get(language), dict):
            vocabulary = vocabulary[language]
        if not vocabulary:
            fast = read_json("tokenizer.json")
            file = f"{where}/tokenizer.json"
            model = object_field(fast, "model", file, TokenizerError)
            vocabulary = object_field(model, "vocab", file, TokenizerError)
            decoder = object_field(fast, "decoder", file, TokenizerError)
            if decoder.get("type") != "CTC":
                raise TokenizerError(
                    "there is neither a vocab.json nor a tokenizer.json with a decoder CTC",
                    where,
                    "Put the model's vocab.json into its folder.",
                )
            names = ("pad_token", "word_delimiter_token")
            config = {**config, **{n: decoder[n] for n in names if n in decoder}}
            vocabulary = {**vocabulary, **_added(fast.get("added_tokens"), file)}
        vocabulary = {**vocabulary, **read_json("added_tokens.json")}
        file = f"{where}/tokenizer_config.json"
        added = object_field(config, "added_tokens_decoder", file, TokenizerError)
        for i, token in added.items():
            if isinstance(token, dict) and str(i).isdecimal():
                vocabulary[_token(token, "")] = int(i)
        if not all(type(i) is int and 0 <= i < MAX_TOKENS for i in vocabulary.values()):
            raise TokenizerError("it is not {token: id}", f"{where}/vocab.json", COPY)
        return cls(vocabulary, config)

    def description(self) -> dict[str, Any]:
        """The tokenizer for packages: JSON, a Vocabulary."""
        return {**asdict(self.vocabulary)}

    @classmethod
    def from_description(cls, given: Any, where: str = "") -> CTCTokenizer:
        """The tokenizer of a package: the reverse of `description`.

        Raises:
            PackageError: it is no description.
        """
        names = ("blank", "unknown", "delimiter", "space")
        found = given if isinstance(given, Mapping) else {}
        tokens = found.get("tokens")
        if (
            not isinstance(tokens, list)
            or not all(t is None or isinstance(t, str) for t in tokens)
            or not all(isinstance(found.get(n), str) for n in names)
        ):
            raise PackageError("it does not describe its tokens", where, "Build it again.")
        made = cls({}, {})
        made.vocabulary = Vocabulary(
            tokens=tokens,
            lower=bool(found.get("lower")),
            clean_up=bool(found.get("clean_up")),
            **{n: found[n] for n in names},
        )
        return made

    def characters(self, ids: Sequence[int]) -> list[Span]:
        """The characters that the tokens of the frames are: repeated ones are one, and blanks are
        left out.
        """
        return characters_of(self.vocabulary, ids)

    def words(self, characters: Sequence[Span]) -> list[Span]:
        """The words that characters form."""
        return words_of(self.vocabulary, characters)

    def text(self, characters: Sequence[Span]) -> str:
        """The text of characters, without spaces at its ends."""
        return text_of(self.vocabulary, characters)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of the tokens of all frames."""
        return self.text(self.characters(ids))


def frame_windows(config: Mapping[str, Any]) -> list[list[int]]:
    """[size, step] of each convolution that makes frames of samples, in their order; none where a
    frame has just its samples. config: contents of config.json.
    """
    found = [config.get("conv_kernel"), config.get("conv_stride")]
    if not all(isinstance(x, list) and all(type(i) is int and i > 0 for i in x) for x in found):
        return []
    return [list(pair) for pair in zip(*found)]


def frame_size(config: Mapping[str, Any]) -> int | None:
    """Samples of a frame of a CTC model; None: not known. As transformers'
    config.inputs_to_logits_ratio.

    Args:
        config: contents of config.json.
    """
    strides = config.get("conv_stride")
    if isinstance(strides, (list, tuple)) and all(type(s) is int for s in strides):
        return math.prod(strides)
    if type(config.get("feature_projection_input_dim")) is not int:
        return None
    size = int(config["feature_projection_input_dim"]) * 2  # wav2vec2-bert
    if config.get("add_adapter"):
        stride, layers = config.get("adapter_stride", 2), config.get("num_adapter_layers", 1)
        if type(stride) is not int or type(layers) is not int:
            return None
        if not (0 < stride <= 64 and 0 <= layers <= 16):
            return None
        size *= stride**layers
    return size


def _token(value: Any, default: str) -> str:
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else default


def _added(tokens: Any, where: str) -> dict[str, int]:
    found = {}
    for t in [] if tokens is None else tokens if isinstance(tokens, list) else [tokens]:
        if not isinstance(t, dict) or type(t.get("content")) is not str or "id" not in t:
            raise TokenizerError("`added_tokens` is no list of tokens with ids", where, COPY)
        found[t["content"]] = t["id"]
    return found
