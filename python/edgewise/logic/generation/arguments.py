"""The arguments of `generate`, checked and resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError, ModelError
from ..native import setting, written
from .config import Configuration
from .fields import BEAMS_ONLY, SAMPLING_ONLY
from .requests import Host

NEW_TOKENS = 20
"""How many tokens are added where nothing says it: the default of max_length."""


def model_defaults(
    generation_config: Mapping[str, Any] | None, config: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """The contents of generation_config.json; without that file the special tokens of config.json,
    as in transformers, or of ONNX Runtime GenAI's genai_config.json.
    """
    if generation_config is not None and generation_config:
        return generation_config
    tokens: dict[str, Any] = {}
    genai: Any = None if config is None else config.get("model")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = None if config is None else config.get(name)
        if value is None and isinstance(genai, dict):
            value = genai.get(name)
        if value is not None:
            tokens[name] = value
    return tokens


def warnings_of(config: Configuration, fields: Mapping[str, Any]) -> list[str]:
    """Warnings about fields that have no effect.

    Args:
        config: resolved.
        fields: of the call itself.
    """
    idle: list[tuple[str, str]] = []
    if not config.get("do_sample"):
        idle += [(name, setting("do_sample", True)) for name in SAMPLING_ONLY]
    if config.get("num_beams") == 1:
        idle += [(name, "num_beams > 1") for name in BEAMS_ONLY]
    return [
        f"{name} has an effect only with {need}"
        for name, need in idle
        if name in fields and fields[name] is not None
    ]


def checked_prompt(prompt: Sequence[Any], bos: int | None, vocab_size: int) -> list[int]:
    """A prompt; an empty one becomes bos_token_id.

    Raises:
        InputError: there is none, or an id is not in the vocabulary.
    """
    if not prompt and bos is None:
        raise InputError(
            "the prompt is empty and there is no bos_token_id to begin with",
            "generate",
            "Give at least one token.",
        )
    ids: list[int] = list(prompt) if prompt or bos is None else [bos]
    for i in ids:
        if not (isinstance(i, int) and 0 <= i < vocab_size):
            raise InputError(
                f"the prompt contains the token id {written(i)}, and the vocabulary has"
                f" {vocab_size}",
                "generate",
                "The tokenizer and the model do not belong together.",
            )
    return ids


def check_assistant(host: Host) -> None:
    """Raises InputError if the smaller model that guesses tokens has another vocabulary."""
    assistant = host.assistant
    if assistant is not None and assistant.vocab_size != host.vocab_size:
        raise InputError(
            f"the assistant_model has a vocabulary of {assistant.vocab_size} tokens, and the model"
            f" one of {host.vocab_size}",
            "generate",
            "Give a smaller model with the same tokenizer.",
        )


def check_streamer(config: Configuration, prompts: int) -> None:
    """Raises InputError where a streamer would have to follow several sequences."""
    if config.get("num_beams") > 1 or config.get("num_return_sequences") > 1 or prompts > 1:
        raise InputError(
            "a streamer can follow one sequence only",
            "generate",
            "Leave num_beams and num_return_sequences at 1 and give one prompt, or generate without"
            " a streamer.",
        )


def length_limit(
    config: Configuration, fields: Mapping[str, Any], prompt_length: int, capacity: int
) -> tuple[int, str]:
    """Maximum tokens of a sequence with its prompt, as transformers' _prepare_generated_length:
    max_new_tokens overrides max_length, whose default means 20 new tokens.

    Args:
        config: resolved.
        fields: of the call itself.
        prompt_length: in tokens.
        capacity: of the model's cache. A larger limit is reduced to it, with a warning if it was
            given.

    Returns:
        (the limit, a warning or "")

    Raises:
        InputError: the prompt leaves no room for a token.
    """
    more: int | None = config.get("max_new_tokens")
    whole: int | None = config.get("max_length")
    own = "max_length" in fields and fields["max_length"] is not None
    asked = more is not None or (whole is not None and (whole != NEW_TOKENS or own))
    limit = prompt_length + NEW_TOKENS
    if more is not None:
        limit = prompt_length + more
    elif asked and whole is not None:
        limit = whole
    if prompt_length >= capacity:
        raise InputError(
            f"the prompt has {prompt_length} tokens, and a sequence of the model at most"
            f" {capacity}",
            "generate",
            f"Shorten the prompt, as {setting('truncation', True)} of pipelines does, or load the"
            " model with a larger capacity.",
        )
    if prompt_length >= limit:
        raise InputError(
            f"the prompt has {prompt_length} tokens, but max_length is {limit}",
            "generate",
            "Raise max_length, or set max_new_tokens.",
        )
    warning = ""
    if limit > capacity and asked:
        warning = (
            f"generation ends at {capacity} tokens, the most of a sequence of the model;"
            f" {limit} were allowed"
        )
    return min(limit, capacity), warning


def start_ids(
    generation_config: Mapping[str, Any] | None, config: Mapping[str, Any] | None
) -> list[int]:
    """The first tokens of an encoder-decoder's sequence: decoder_start_token_id, else bos_token_id.

    Raises:
        InputError: the model has neither.
        ModelError: it is no integer.
    """
    for name in ("decoder_start_token_id", "bos_token_id"):
        for source in (generation_config, config):
            value = None if source is None else source.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ModelError(
                    f"{name} is {str(value)[:40]}",
                    "generation_config.json",
                    "Copy it again from the model.",
                )
            return [value]
    raise InputError(
        "there is no decoder_start_token_id",
        "generate",
        "Put generation_config.json beside the model.",
    )


def truncated(ids: list[int], most: int, eos: object) -> list[int]:
    """The ids of a text for an encoder that takes at most `most`; a last end of sequence stays."""
    if len(ids) <= most:
        return ids
    return [*ids[: most - 1], ids[-1]] if ids[-1] == eos else ids[:most]
