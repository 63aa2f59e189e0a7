"""The arguments of `generate`, checked and resolved."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .config import GenerationConfig, _shown
from .fields import BEAMS_ONLY, SAMPLING_ONLY

if TYPE_CHECKING:
    from .run import Decoder


def listed(functions: Any) -> list[Callable[..., Any]]:
    """A function, a list of functions or None, as a list."""
    return [] if functions is None else [functions] if callable(functions) else list(functions)


def model_defaults(decoder: Decoder) -> dict[str, Any]:
    """The contents of generation_config.json; without that file the special tokens of config.json,
    as in transformers.
    """
    if decoder.generation_config:
        return decoder.generation_config
    config = getattr(decoder, "config", None) or {}
    return {
        name: config[name]
        for name in ("bos_token_id", "eos_token_id", "pad_token_id")
        if config.get(name) is not None
    }


def resolve(
    decoder: Decoder, config: GenerationConfig | dict[str, Any] | None, fields: dict[str, Any]
) -> GenerationConfig:
    """The configuration of a generation: `fields` override `config`, which overrides the model's
    generation_config.json, which overrides transformers' defaults.

    Raises:
        UnsupportedField, InputError: a field cannot be used.
    """
    base = GenerationConfig.from_dict(model_defaults(decoder))
    if config is not None:
        base = base.merged(
            config if isinstance(config, GenerationConfig) else GenerationConfig(**config)
        )
    base.update(fields, "generate")
    base.validate()
    for names, idle, need in (
        (SAMPLING_ONLY, not base.do_sample, "do_sample=True"),
        (BEAMS_ONLY, base.num_beams == 1, "num_beams > 1"),
    ):
        for name in names:
            if idle and fields.get(name) is not None:
                warnings.warn(f"{name} has an effect only with {need}", stacklevel=5)
    return base


def prompts_of(
    input_ids: Iterable[Any], config: GenerationConfig, vocab_size: int
) -> list[list[int]]:
    """Prompts as lists of ints. An empty prompt becomes bos_token_id.

    Args:
        input_ids: token ids, or a list of prompts; also as arrays.
        config: for bos_token_id.
        vocab_size: ids are smaller.

    Raises:
        InputError: they are something else, or an id is not in the vocabulary.
    """
    prompts = _integers(input_ids)
    for prompt in prompts:
        if not prompt:
            if config.bos_token_id is None:
                raise InputError(
                    "the prompt is empty and there is no bos_token_id to begin with",
                    "generate",
                    "Give at least one token.",
                )
            prompt.append(config.bos_token_id)
        for i in prompt:
            if not 0 <= i < vocab_size:
                raise InputError(
                    f"the prompt contains the token id {_shown(i)}, and the vocabulary has"
                    f" {vocab_size}",
                    "generate",
                    "The tokenizer and the model do not belong together.",
                )
    return prompts


def _integers(input_ids: Any) -> list[list[int]]:
    if hasattr(input_ids, "tolist"):
        input_ids = input_ids.tolist()
    if isinstance(input_ids, (str, bytes)) or not hasattr(input_ids, "__iter__"):
        raise InputError(
            "input_ids has to be a list of token ids",
            "generate",
            "Encode the text with the model's tokenizer first.",
        )
    prompts = list(input_ids)
    if not prompts or not hasattr(prompts[0], "__iter__"):
        prompts = [prompts]
    try:
        if any(isinstance(i, bool) for prompt in prompts for i in prompt):
            raise TypeError("a bool")
        return [[operator.index(i) for i in prompt] for prompt in prompts]
    except TypeError as e:
        raise InputError(
            f"a token id is not an integer ({e})",
            "generate",
            "Give a list of token ids, or a list of such lists.",
        ) from None


def length_limit(
    config: GenerationConfig, fields: dict[str, Any], prompt_length: int, capacity: int
) -> int:
    """Maximum tokens of a sequence with its prompt, as transformers' _prepare_generated_length:
    max_new_tokens overrides max_length, whose default means 20 new tokens.

    Args:
        config: resolved.
        fields: keywords of the call.
        prompt_length: in tokens.
        capacity: of the model's cache. A larger limit is reduced to it, with a warning if it was
            given.

    Raises:
        InputError: the prompt leaves no room for a token.
    """
    asked = True
    if config.max_new_tokens is not None:
        limit = prompt_length + config.max_new_tokens
    elif fields.get("max_length") is None and config.max_length in (20, None):
        limit, asked = prompt_length + 20, False
    else:
        limit = config.max_length
    if prompt_length >= capacity:
        raise InputError(
            f"the prompt has {prompt_length} tokens, and the model's cache holds {capacity}",
            "generate",
            "Shorten the prompt, or load the model with a larger max_length.",
        )
    if prompt_length >= limit:
        raise InputError(
            f"the prompt has {prompt_length} tokens, but max_length is {limit}",
            "generate",
            "Raise max_length, or set max_new_tokens.",
        )
    if limit > capacity:
        if asked:
            warnings.warn(
                f"generation ends at {capacity} tokens, which is what the model's cache holds;"
                f" {limit} were allowed",
                stacklevel=5,
            )
        limit = capacity
    return limit
