"""Rows of the targets of pairs. The target alone is learned; before it stands what generation
begins with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from .chat import Example

MIN_ROW = 2  # tokens of a row


def target_example(prefix: Sequence[int], target: Sequence[int], end: int | None) -> Example:
    """The tokens of a decoder's row: a prefix that generation begins with, and the target up to its
    end, which is learned.

    transformers writes it as labels, of which the decoder's input is made by a shift to the right;
    a row here has both, since the loss compares each place with the next token.

    Args:
        prefix: such as decoder_start_token_id, with Whisper's tokens of language and task.
        target: ids of the target.
        end: id of the token that ends a text, if the target has none; None: there is none.
    """
    ids = [*prefix, *target]
    if end is not None and (len(target) == 0 or target[-1] != end):
        ids.append(end)
    return Example(ids, [i >= len(prefix) for i in range(len(ids))], len(prefix))


def target_ids(ids: Sequence[int], forced: int | None, languages: Sequence[int]) -> list[int]:
    """The ids of a target text of a model for several languages: with the token of the target's
    language in place of that of the source, as transformers' tokenizers write targets.

    Args:
        ids: of the text, as the tokenizer writes sources.
        forced: id of the token of the target's language; None: there is none.
        languages: ids of all of them.
    """
    if forced is None:
        return list(ids)
    return [forced if i in languages else i for i in ids]


def end_id(generation_config: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """The id of the token that ends a target: the first of `ends_of`; None: the model does not
    say.
    """
    found = ends_of([generation_config, config])
    return found[0] if found else None


def ends_of(configs: Sequence[Mapping[str, Any]]) -> list[int]:
    """The ids of tokens that end a text: eos_token_id of the first configuration that has it."""
    for config in configs:
        value: object = config.get("eos_token_id")
        if isinstance(value, list) and value:
            return [i for i in value if isinstance(i, int)]
        if isinstance(value, int):
            return [value]
    return []


def row_length(examples: Sequence[Example], given: int | None, most: int) -> int:
    """The tokens of a row: as many as the longest example has, or as were given.

    Args:
        given: sequence_length, or None.
        most: tokens that the decoder takes.

    Raises:
        InputError: more are given than the decoder takes.
    """
    if given is not None:
        if given > most:
            raise InputError(
                f"{given} tokens are more than the model's {most}",
                "sequence_length",
                "Give a smaller one, or leave it out.",
            )
        return given
    longest = MIN_ROW
    for example in examples:
        longest = len(example.ids) if len(example.ids) > longest else longest
    return longest if longest < most else most


def check_window(samples: int, most: int, rate: int, where: str) -> None:
    """Raises InputError where a recording is empty, or longer than a window of the encoder.

    Args:
        samples: of the recording.
        most: of a window.
        rate: samples of a second.
    """
    if samples == 0:
        raise InputError("the recording has no samples", where, "Leave it out.")
    if samples > most:
        raise InputError(
            f"the recording has {samples / rate:.1f} s, a window of the model {most / rate:.0f} s",
            where,
            "Cut it into parts, each with its text.",
        )


__all__ = ["check_window", "end_id", "ends_of", "row_length", "target_example", "target_ids"]
