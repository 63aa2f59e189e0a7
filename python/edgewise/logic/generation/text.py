"""The task text-generation: its defaults, inputs and results, as transformers' pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import InputError
from ..native import listed, part, size
from .arguments import NEW_TOKENS
from .config import Configuration
from .run import Output

DEFAULTS: dict[str, Any] = {"max_new_tokens": 256, "do_sample": True, "temperature": 0.7}
"""transformers' defaults for this task. The model's generation_config.json takes precedence over
them, and the call's fields over both.
"""


def task_defaults(own: Configuration, usual: Mapping[str, Any], eos: int | None) -> Configuration:
    """The configuration of calls without fields.

    Args:
        own: the model's.
        usual: the task's.
        eos: the tokenizer's id of its eos_token.
    """
    config = Configuration(usual)
    if own.get("max_length") != NEW_TOKENS and own.get("max_new_tokens") is None:
        config.update({"max_new_tokens": None})  # the model's own length applies
    config = config.merged(own)
    if config.get("eos_token_id") is None and eos is not None:
        config.update({"eos_token_id": eos})
    return config


def defaults_of_call(defaults: Configuration, fields: Mapping[str, Any]) -> Configuration:
    """The configuration of a call without its fields: the default of max_new_tokens would override
    the call's max_length.
    """
    if fields.get("max_length") is None or fields.get("max_new_tokens") is not None:
        return defaults
    return defaults.merged(Configuration({"max_new_tokens": None}))


def inputs_of(given: Any) -> tuple[list[Any], bool]:
    """The inputs of a call: texts, chats, which are lists of messages {"role", "content"}, and
    prompts {"input_ids"}.

    Returns:
        (the inputs, whether a list of them was given)

    Raises:
        InputError: it is something else.
    """
    if isinstance(given, str) or is_ids(given):
        return [given], False
    found = listed(given)
    inputs: list[Any] = [] if found is None else found
    chat = len(inputs) > 0 and _is_message(inputs[0])
    if chat:
        inputs = [inputs]
    fine = [isinstance(one, str) or is_ids(one) or _is_chat(one) for one in inputs]
    if not fine or not all(fine):
        raise InputError(
            "the input is neither text nor chat messages",
            "pipeline",
            'Give a string, a list of strings, or messages like [{"role": "user", "content":'
            ' "Hello"}].',
        )
    return inputs, not chat


def is_ids(given: Any) -> bool:
    """Whether an input is a prompt of token ids."""
    return isinstance(given, dict) and "input_ids" in given


def _is_message(given: Any) -> bool:
    return isinstance(given, dict) and "role" in given and "content" in given


def _is_chat(given: Any) -> bool:
    messages = listed(given)
    return messages is not None and len(messages) > 0 and all(_is_message(m) for m in messages)


def continues(given: Any, wanted: bool | None) -> bool:
    """Whether the last message of a chat is continued. Default: if it is the assistant's."""
    if isinstance(given, str) or is_ids(given):
        return False
    messages: list[dict[str, Any]] = list(given)
    role: Any = messages[-1]["role"]
    return bool(role == "assistant") if wanted is None else wanted


def records_of(
    given: Any,
    prompt: list[int],
    output: Output,
    goes_on: bool,
    options: Mapping[str, Any],
    details: bool,
    decode: Callable[[list[int]], str],
    read: Callable[[str], Any] | None = None,
    answer: Callable[[list[int]], dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """The results of an input.

    Args:
        given: the input.
        prompt: its token ids.
        output: the sequences.
        goes_on: whether the last message of a chat was continued.
        options: return_full_text, return_tensors.
        details: whether the results say why they ended, and their scores.
        decode: the text of token ids.
        read: the value of new text that is JSON; None: it is none.
        answer: the message of new token ids of a chat with tools; None: there are none.
    """
    records: list[dict[str, Any]] = []
    for i, ids in enumerate(output.sequences):
        record: dict[str, Any] = {}
        if options.get("return_tensors"):
            record["generated_token_ids"] = ids
        else:
            # both are decoded, since the text of a token can depend on those before it
            whole = decode(ids)
            new = part(whole, size(decode(prompt)), size(whole))
            full = options.get("return_full_text") is not False and not is_ids(given)
            if answer is not None:
                record = _answered(given, answer(ids[len(prompt) :]), goes_on, full)
            else:
                record["generated_text"] = _full(given, new, goes_on) if full else new
            if read is not None:
                record["parsed"] = read(new)
        if details:
            record["finish_reasons"] = output.finish_reasons[i]
            if output.sequences_scores is not None:
                record["sequences_scores"] = output.sequences_scores[i]
        records.append(record)
    return records


def _answered(given: Any, answer: dict[str, Any], goes_on: bool, full: bool) -> dict[str, Any]:
    """The result of a chat with tools. answer: its message."""
    content: str = answer["content"]
    if not full:
        record: dict[str, Any] = {k: v for k, v in answer.items() if k not in ("role", "content")}
        record["generated_text"] = content
        return record
    messages: list[dict[str, Any]] = list(given)
    made: dict[str, Any] = {"generated_text": [*messages, answer]}
    if goes_on:
        last = messages[-1]
        text: str = last["content"]
        whole: dict[str, Any] = {**last, **answer, "content": text + content}
        made["generated_text"] = [*messages[:-1], whole]
    return made


def _full(given: Any, new: str, goes_on: bool) -> Any:
    """The input with the new text."""
    if isinstance(given, str):
        return given + new
    messages: list[dict[str, Any]] = list(given)
    if not goes_on:
        answer: dict[str, Any] = {"role": "assistant", "content": new}
        return [*messages, answer]
    last = messages[-1]
    text: str = last["content"]
    return [*messages[:-1], {**last, "content": text + new}]
