"""Chats with tools: prompts in which only the template's own special tokens are special, and
answers with calls. The rules are those of logic/tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import InputError, TokenizerError
from ...logic.tools.choice import calls_format, format_with
from ...logic.tools.definitions import check_used, count_calls, messages_for, without_tools
from ...logic.tools.families import all_marks, family_of, marks_of
from ...logic.tools.guard import guarded, pieces
from ...logic.tools.parser import Delta, answer_of, begins_thinking, parser_of
from .streamers import TextStreamer

__all__ = ["Answers", "chat_prompt"]

TAIL = 32  # tokens of a prompt among which reasoning may begin


def _special_tokens(tokenizer: Any) -> list[str]:
    """The special tokens of a tokenizer; of transformers' ones, too."""
    found = getattr(tokenizer, "special_tokens", None)
    if isinstance(found, list):
        return found
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if not isinstance(added, dict):
        return []
    return [str(t) for t in added.values() if getattr(t, "special", False)]


def _added(tokenizer: Any) -> dict[str, int]:
    """The added tokens of a tokenizer. Others, such as "```", are pieces of ordinary words."""
    found: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
    return found


def _own_marks(tokenizer: Any) -> list[str]:
    """The marks of calls and reasoning that are tokens."""
    added = _added(tokenizer)
    return [mark for mark in all_marks() if mark in added]


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
    render = tokenizer.apply_chat_template
    own = messages_for(messages, tools, str(getattr(tokenizer, "chat_template", "")))
    safe = guarded(own, tools, _special_tokens(tokenizer), _own_marks(tokenizer))
    if tools is None and not safe.mark:
        ids: list[int] = render(own, **variables)
        return ids
    given = {} if tools is None else {"tools": safe.tools}
    text = render(safe.messages, tokenize=False, **given, **variables)
    if tools is not None:
        try:
            plain = render(without_tools(safe.messages), tokenize=False, **variables)
        except TokenizerError:
            plain = None
        check_used(plain, text)
    return [
        i
        for piece in pieces(text, safe.mark)
        if piece
        for i in tokenizer.encode(piece, add_special_tokens=False)
    ]


class Answers:
    """Reads the answers to a prompt.

    Args:
        tokenizer: the model's.
        tools: as tools_of returns them.
        messages: of the chat.
        prompt: its token ids.
    """

    def __init__(
        self,
        tokenizer: Any,
        tools: Sequence[dict[str, Any]],
        messages: Sequence[dict[str, Any]],
        prompt: list[int],
    ) -> None:
        self.tokenizer, self.tools, self.before = tokenizer, tools, count_calls(messages)
        special = _special_tokens(tokenizer)
        self.template = str(getattr(tokenizer, "chat_template", ""))
        self.family = family_of(self.template, special)
        marks = set(marks_of(self.family))
        added = _added(tokenizer)
        self._hidden = {added.get(t) for t in special if t not in marks}
        end = tokenizer.decode(prompt[-TAIL:], skip_special_tokens=False)
        self._thinking = begins_thinking(self.family, end)

    def format(self, wanted: str, parallel: bool, given: Any) -> Any:
        """The response_format of the answers.

        Args:
            wanted: of `choice_of`.
            parallel: whether an answer may have several calls.
            given: the call's own response_format, or None.

        Raises:
            InputError: both are needed.
        """
        marks = _own_marks(self.tokenizer)
        calls = calls_format(
            self.family, self.tools, wanted, parallel, self._thinking, marks, self.template
        )
        return format_with(calls, given)

    def decode(self, ids: list[int]) -> str:
        """The text of ids with the marks of calls."""
        shown = [i for i in ids if i not in self._hidden]
        text: str = self.tokenizer.decode(shown, skip_special_tokens=False)
        return text

    def message(self, ids: list[int]) -> dict[str, Any]:
        """The message of an answer's token ids."""
        parser = parser_of(self.family, self.tools, self._thinking)
        return answer_of([*parser.push(self.decode(ids)), *parser.end()], self.before)

    def streamer(self, on_delta: Callable[[dict[str, Any]], object]) -> DeltaStreamer:
        """A streamer that tells of the parts of an answer."""
        return DeltaStreamer(self, on_delta)


class DeltaStreamer(TextStreamer):
    """Tells of {"content"}, {"reasoning_content"} and {"tool_calls"} while they are written.

    Args:
        answers: of the prompt.
        on_delta: is told.
    """

    def __init__(self, answers: Answers, on_delta: Callable[[dict[str, Any]], object]) -> None:
        super().__init__(answers, True, by_word=False)
        self._parser = parser_of(answers.family, answers.tools, answers._thinking)
        self._calls, self._on_delta = answers.before, on_delta

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Parses a piece of text."""
        self._tell(self._parser.push(text))
        if stream_end:
            self._tell(self._parser.end())

    def _tell(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            message = answer_of([delta], self._calls)
            del message["role"]
            if delta.kind != "text":
                del message["content"]
            self._calls += len(message.get("tool_calls", ()))
            self._on_delta(message)


def check_chat(given: Any) -> None:
    """Raises InputError if an input with tools is no chat."""
    if isinstance(given, (str, dict)):
        raise InputError(
            "tools need a chat", "tools", 'Give messages like [{"role": "user", "content": "Hi"}].'
        )
