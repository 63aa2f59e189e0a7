"""Special tokens of a tokenizer's configuration, and what surrounds a chat template. Mirrors
PreTrainedTokenizerFast and apply_chat_template of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import TokenizerError
from .limits import COPY

SPECIAL = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""Names of special tokens."""
REBUILT = ("LlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")
"""Tokenizers whose post-processor follows add_bos_token and add_eos_token. CodeGen and GPT-2 have
the fields too, but only their slow tokenizers use them."""
MARK = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks the end of the message that is to be continued while the template is rendered."""


def read_special_tokens(
    config: Mapping[str, Any], others: Mapping[str, Any], where: str
) -> dict[str, str]:
    """The special tokens by their names.

    Args:
        config: contents of tokenizer_config.json.
        others: of special_tokens_map.json.
        where: the first file, for errors.

    Raises:
        TokenizerError: one is no token.
    """
    found: dict[str, str] = {}
    for name in SPECIAL:
        token: object = config.get(name)
        if token is None:
            token = others.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if token is None:
            continue
        if not isinstance(token, str):
            raise TokenizerError(
                f"{name} is neither a string nor an object with 'content'", where, COPY
            )
        found[name] = token
    return found


def added_contents(added: object, only_special: bool) -> list[str]:
    """The texts of the added tokens of a tokenizer.json, or of the special ones among them."""
    found: list[str] = []
    for token in added if isinstance(added, list) else []:
        content: object = token.get("content") if isinstance(token, dict) else None
        if not isinstance(token, dict) or not isinstance(content, str):
            continue
        if token.get("special") or not only_special:
            found.append(content)
    return found


def tokens_around(config: Mapping[str, Any]) -> list[str] | None:
    """Which of bos_token and eos_token are put around a text instead of what tokenizer.json says;
    None: as it says. config: contents of tokenizer_config.json.
    """
    name = str(config.get("tokenizer_class")).removesuffix("Fast")
    if name not in REBUILT or ("add_bos_token" not in config and "add_eos_token" not in config):
        return None
    first: object = config.get("add_bos_token")
    last: object = config.get("add_eos_token")
    found: list[str] = []
    if first or "add_bos_token" not in config:
        found.append("bos_token")
    if last:
        found.append("eos_token")
    return found


TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
"""Files with a chat template: its text; and, of models that see or hear, until 2025, an object."""


def processor_template(config: Mapping[str, Any]) -> str | None:
    """The template in chat_template.json; None: there is none. config: its contents."""
    template: object = default_template(config.get("chat_template"))
    return template if isinstance(template, str) else None


def default_template(given: object) -> object:
    """The template of a configuration: the default one of several."""
    if not isinstance(given, list):
        return given
    named: list[dict[str, Any]] = [x for x in given if isinstance(x, dict)]
    for entry in [*[x for x in named if x.get("name") == "default"], *named]:
        template: object = entry.get("template")
        if template:
            return template
    return None


def tool_template(given: object) -> object:
    """The template of a configuration for chats with tools, as transformers chooses it: the one
    that is named so, else the default one.
    """
    if isinstance(given, list):
        named: list[dict[str, Any]] = [x for x in given if isinstance(x, dict)]
        for entry in named:
            template: object = entry.get("template")
            if entry.get("name") == "tool_use" and template:
                return template
    return default_template(given)


def final_text(messages: Sequence[dict[str, Any]], add_generation_prompt: bool, where: str) -> str:
    """The text of the message that is to be continued.

    Raises:
        TokenizerError: there is none, or an answer is to begin.
    """
    if add_generation_prompt:
        raise TokenizerError(
            "continue_final_message and add_generation_prompt exclude each other",
            where,
            "Pass one of them.",
        )
    final: object = messages[-1].get("content") if messages else None
    if not isinstance(final, str):
        raise TokenizerError(
            "continue_final_message needs a last message of text",
            where,
            "Give the last message a content of text.",
        )
    return final


def left_open(messages: Sequence[dict[str, Any]], final: str) -> list[dict[str, Any]]:
    """The messages, of which the last one has a mark at its end. final: its text."""
    last: dict[str, Any] = {**messages[-1], "content": final + MARK}
    return [*messages[:-1], last]


def cut_open(text: str, final: str, where: str) -> str:
    """A rendered text up to the mark.

    Args:
        text: the text.
        final: text of the last message.
        where: for errors.

    Raises:
        TokenizerError: the template drops the message.
    """
    end = text.rfind(MARK.strip())
    if end < 0 or final.strip() not in text:
        raise TokenizerError(
            "the chat template drops the message that is to be continued",
            where,
            "End with a message of the user, or pass add_generation_prompt.",
        )
    return text[:end] if text[end : end + len(MARK)] == MARK else text[:end].rstrip()
