"""Chats with tools, with Edgewise's tokenizers and those of others, such as transformers'. The
rules are those of logic/tools/answers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...logic.tools.answers import AddedToken, Answers, prompt_of

__all__ = ["answers_to", "chat_prompt"]


class _ChatTokenizer:
    """The ChatTokenizer of a tokenizer. variables: of its apply_chat_template."""

    def __init__(self, tokenizer: Any, variables: Mapping[str, Any]) -> None:
        self.tokenizer, self.variables = tokenizer, variables

    def added(self) -> list[AddedToken]:
        """The added tokens."""
        special = getattr(self.tokenizer, "special_tokens", None)
        if not isinstance(special, list):  # transformers' ones
            tokens = getattr(self.tokenizer, "added_tokens_decoder", None)
            known = tokens.values() if isinstance(tokens, dict) else ()
            special = [str(t) for t in known if getattr(t, "special", False)]
        own = set(special)
        found: dict[str, int] = getattr(self.tokenizer, "get_added_vocab", dict)()
        return [AddedToken(text, i, text in own) for text, i in found.items()]

    def template(self) -> str:
        """The chat template for tools."""
        choose = getattr(self.tokenizer, "get_chat_template", None)
        template = getattr(self.tokenizer, "chat_template", None)
        if choose is not None and template is not None:
            template = choose(tools=[])
        return template if isinstance(template, str) else ""

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        """The prompt of a chat."""
        given = {} if tools is None else {"tools": tools}
        text: str = self.tokenizer.apply_chat_template(
            messages, **{**self.variables, **given, "tokenize": False}
        )
        return text

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        """The text of tokens."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return text


def chat_prompt(
    tokenizer: Any,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
    **variables: Any,
) -> list[int]:
    """The token ids of a chat. Special tokens in the texts of messages and tools are text there.

    Args:
        tokenizer: has apply_chat_template and encode.
        messages: of the chat.
        tools: as tools_of returns them, or None.
        variables: of apply_chat_template.

    Raises:
        TokenizerError: the template rejects the messages. InputError: it does not use tools.
    """
    return prompt_of(_ChatTokenizer(tokenizer, variables), messages, tools)


def answers_to(
    tokenizer: Any,
    tools: Sequence[dict[str, Any]],
    messages: Sequence[dict[str, Any]],
    prompt: list[int],
) -> Answers:
    """What reads the answers to a prompt. Arguments as of Answers, but for the tokenizer."""
    return Answers(_ChatTokenizer(tokenizer, {}), tools, messages, prompt)
