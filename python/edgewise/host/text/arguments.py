"""The arguments of `generate`, in the forms that Python's callers give."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import InputError, list_of, wrong_type
from ...logic.generation import arguments as rules

if TYPE_CHECKING:
    from .run import Decoder


def listed(functions: Any, name: str) -> list[Callable[..., Any]]:
    """A function, a list of functions or None, as a list. name: of the argument.

    Raises:
        InputTypeError: it is something else.
    """
    if functions is None or callable(functions):
        return [] if functions is None else [functions]
    expected = "a function or a list of functions"
    found = list_of(functions, name, expected)
    for function in found:
        if not callable(function):
            raise wrong_type(function, name, expected)
    return found


def model_defaults(decoder: Decoder) -> Mapping[str, Any]:
    """The contents of generation_config.json; without that file the special tokens of config.json,
    as in transformers.
    """
    return rules.model_defaults(decoder.generation_config, getattr(decoder, "config", None))


def prompts_of(input_ids: Any) -> list[list[int]]:
    """Prompts as lists of ints.

    Args:
        input_ids: token ids, or a list of prompts; also as arrays.

    Raises:
        InputError: they are something else.
    """
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
