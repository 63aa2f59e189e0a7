"""Text to text with encoder-decoder models: options, languages and results. Mirrors transformers'
Text2TextGenerationPipeline and its relatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ..native import option, written
from ..options import read_flag, read_text
from .arguments import truncated

# The options of a call besides the fields of GenerationConfig.
OPTIONS = ("return_tensors", "return_text", "clean_up_tokenization_spaces", "truncation", "prefix")
LANGUAGES = ("src_lang", "tgt_lang")  # of translation


@dataclass(frozen=True)
class Call:
    """The options of a call.

    Attributes:
        prefix: precedes each text.
        source: id of the token of its language; None: none precedes it.
        forced: id of the token of the language of results; None: none is forced.
        languages: ids of all of them, which texts do not have.
        truncation: whether texts that are too long are cut.
        tensors: whether results are ids.
        decoding: how results are decoded.
    """

    prefix: str
    source: int | None
    forced: int | None
    languages: Sequence[int]
    truncation: bool
    tensors: bool
    decoding: dict[str, Any]


def check(options: Mapping[str, Any]) -> None:
    """Raises InputError where options are not valid, or exclude each other."""
    for name in OPTIONS[:4]:
        read_flag(options, name)
    for name in ("prefix", *LANGUAGES):
        read_text(options, name)
    if read_flag(options, "return_tensors") and read_flag(options, "return_text"):
        raise InputError("return_text excludes return_tensors", option("return_text"), "Give one.")


def call_of(
    options: Mapping[str, Any],
    truncates: bool,
    config: dict[str, Any],
    languages: Mapping[str, int],
) -> Call:
    """The options of a call.

    Args:
        options: of the task.
        truncates: whether its texts are cut by default.
        config: contents of config.json.
        languages: ids of the tokenizer's special tokens, among them those of languages.

    Raises:
        InputError: see `check`, or the model does not have a language.
    """
    check(options)
    source, target = read_text(options, "src_lang"), read_text(options, "tgt_lang")
    pair = _pair(config, source, target)
    own: str | None = None if pair is None else pair.get("prefix")
    prefix: str | None = read_text(options, "prefix")
    if prefix is None:
        prefix = own if own is not None else config.get("prefix")
    decoding: dict[str, Any] = {"skip_special_tokens": True}
    clean = "clean_up_tokenization_spaces"
    if options.get(clean) is not None:
        decoding[clean] = read_flag(options, clean)
    return Call(
        "" if prefix is None else prefix,
        None if source is None or own else _language(languages, source, "src_lang"),
        None if target is None or pair is not None else _language(languages, target, "tgt_lang"),
        list(languages.values()),
        read_flag(options, "truncation", truncates),
        read_flag(options, "return_tensors"),
        decoding,
    )


def _pair(config: dict[str, Any], source: str | None, target: str | None) -> dict[str, Any] | None:
    """What T5's config.json says of a pair of languages; None: nothing."""
    params: dict[str, Any] | None = config.get("task_specific_params")
    found: dict[str, Any] | None = None
    if params is not None and source is not None and target is not None:
        found = params.get(f"translation_{source}_to_{target}")
    return found


def _language(ids: Mapping[str, int], name: str, where: str) -> int:
    """The id of the token of a language."""
    for form in (name, f"__{name}__", f"{name}_XX"):
        found = ids.get(form)
        if found is not None:
            return found
    raise InputError(
        f"the model has no language {written(name)}",
        option(where),
        "Give a token of the model's tokenizer; models for one pair have no such option.",
    )


def special_tokens(config: dict[str, Any]) -> list[str]:
    """The tokenizer's further special tokens. config: contents of tokenizer_config.json."""
    found: Any = config.get("additional_special_tokens")
    names: list[str] = []
    for token in found if isinstance(found, list) else []:
        name: Any = token.get("content") if isinstance(token, dict) else token
        if isinstance(name, str):
            names.append(name)
    return names


def prompt_of(call: Call, ids: Sequence[int], most: int, eos: object) -> list[int]:
    """The ids of a text for the encoder.

    Args:
        call: options.
        ids: of the prefix and the text.
        most: ids that the encoder takes.
        eos: eos_token_id of generation_config.json.
    """
    prompt = list(ids)
    if call.source is not None:
        prompt = [call.source, *[i for i in ids if i not in call.languages]]
    return truncated(prompt, most, eos) if call.truncation else prompt
