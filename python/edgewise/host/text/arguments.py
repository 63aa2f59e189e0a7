"""The arguments of `generate`, checked and resolved."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...logic.generation import arguments as rules
from .config import GenerationConfig

if TYPE_CHECKING:
    from .run import Decoder


def listed(functions: Any) -> list[Callable[..., Any]]:
    """A function, a list of functions or None, as a list."""
    return [] if functions is None else [functions] if callable(functions) else list(functions)


def model_defaults(decoder: Decoder) -> Mapping[str, Any]:
    """The contents of generation_config.json; without that file the special tokens of config.json,
    as in transformers.
    """
    return rules.model_defaults(decoder.generation_config, getattr(decoder, "config", None))


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
    for text in rules.warnings_of(base, fields):
        warnings.warn(text, stacklevel=5)
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
    bos = config.bos_token_id
    return [rules.checked_prompt(prompt, bos, vocab_size) for prompt in _integers(input_ids)]


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
    """Maximum tokens of a sequence with its prompt; warns where the cache is smaller. As
    logic/generation/arguments.py.
    """
    limit, warning = rules.length_limit(config, fields, prompt_length, capacity)
    if warning:
        warnings.warn(warning, stacklevel=5)
    return limit
