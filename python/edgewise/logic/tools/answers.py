"""Chats with tools: prompts in which only the template's own special tokens are special, and
answers with calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...errors import InputError, TokenizerError
from ..generation.streamers import TextPieces
from .choice import calls_format, format_with
from .definitions import check_used, count_calls, messages_for, without_tools
from .families import all_marks, family_of, marks_of
from .guard import guarded, pieces
from .parser import Delta, answer_of, begins_thinking, chunk_of, parser_of

TAIL = 32
"""Tokens of a prompt among which reasoning may begin."""


@dataclass(frozen=True)
class AddedToken:
    """A token that is added to a vocabulary. Special ones give no text."""

    text: str
    id: int
    special: bool


class ChatTokenizer(Protocol):
    """A tokenizer with a chat template."""

    def added(self) -> list[AddedToken]:
        """The added tokens."""

    def template(self) -> str:
        """The chat template for tools; "" if there is none."""

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        """The prompt of a chat. Raises TokenizerError: the template rejects it."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, to which nothing is added."""

    def decode(self, ids: list[int]) -> str:
        """The text of tokens, special ones included."""


def check_chat(given: Any) -> None:
    """Raises InputError if an input with tools is no chat."""
    if isinstance(given, (str, dict)):
        raise InputError(
            "tools need a chat", "tools", 'Give messages like [{"role": "user", "content": "Hi"}].'
        )


def prompt_of(
    tokenizer: ChatTokenizer,
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
) -> list[int]:
    """The token ids of a chat. Special tokens in the texts of messages and tools are text there.

    Args:
        tokenizer: the model's.
        messages: of the chat.
        tools: as `tools_of` returns them, or None.

    Raises:
        TokenizerError: the template rejects the messages. InputError: it does not use tools.
    """
    added = tokenizer.added()
    own = messages_for(messages, tools, tokenizer.template())
    special = [token.text for token in added if token.special]
    safe = guarded(own, tools, special, _marks(added))
    text = tokenizer.render(safe.messages, safe.tools)
    if tools is not None:
        check_used(_plain(tokenizer, safe.messages), text)
    ids: list[int] = []
    for piece in pieces(text, safe.mark):
        if piece != "":
            ids.extend(tokenizer.encode(piece))
    return ids


def _plain(tokenizer: ChatTokenizer, messages: Sequence[dict[str, Any]]) -> str | None:
    """The prompt without tools; None: the template rejects that."""
    try:
        return tokenizer.render(without_tools(messages), None)
    except TokenizerError:
        return None


def _marks(added: Sequence[AddedToken]) -> list[str]:
    """The marks of calls and reasoning that are added tokens. Others, such as "```", are pieces of
    ordinary words.
    """
    known: set[str] = {token.text for token in added}
    return [mark for mark in all_marks() if mark in known]


class Answers:
    """Reads the answers to a prompt.

    Args:
        tokenizer: the model's.
        tools: as `tools_of` returns them.
        messages: of the chat.
        prompt: its token ids.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        tools: Sequence[dict[str, Any]],
        messages: Sequence[dict[str, Any]],
        prompt: Sequence[int],
    ) -> None:
        self.tokenizer, self.tools, self.before = tokenizer, tools, count_calls(messages)
        added = tokenizer.added()
        self.template = tokenizer.template()
        self.family = family_of(self.template, [token.text for token in added if token.special])
        marks: set[str] = set(marks_of(self.family))
        self.hidden: set[int] = {t.id for t in added if t.special and t.text not in marks}
        self.marks = _marks(added)
        end = tokenizer.decode(list(prompt[max(0, len(prompt) - TAIL) :]))
        self.thinking = begins_thinking(self.family, end)

    def format(self, wanted: str, parallel: bool, given: Any) -> Any:
        """The response_format of the answers.

        Args:
            wanted: of `choice_of`.
            parallel: whether an answer may have several calls.
            given: the call's own response_format, or None.

        Raises:
            InputError: both are needed.
        """
        calls = calls_format(
            self.family, self.tools, wanted, parallel, self.thinking, self.marks, self.template
        )
        return format_with(calls, given)

    def decode(self, ids: list[int]) -> str:
        """The text of ids with the marks of calls."""
        return self.tokenizer.decode([i for i in ids if i not in self.hidden])

    def message(self, ids: list[int]) -> dict[str, Any]:
        """The message of an answer's token ids."""
        parser = parser_of(self.family, self.tools, self.thinking)
        return answer_of([*parser.push(self.decode(ids)), *parser.end()], self.before)

    def streamer(self, tell: Callable[[dict[str, Any]], object]) -> DeltaStreamer:
        """A streamer that tells of the parts of an answer."""
        return DeltaStreamer(self, tell)


class DeltaStreamer:
    """Tells of {"content"}, {"reasoning_content"}, {"tool_call_chunks"} and {"tool_calls"} while
    they are written.

    Args:
        answers: to the prompt.
        tell: is told.
    """

    def __init__(self, answers: Answers, tell: Callable[[dict[str, Any]], object]) -> None:
        def decode(ids: list[int]) -> str:
            return answers.decode(ids)

        self.parser = parser_of(answers.family, answers.tools, answers.thinking)
        self.texts = TextPieces(decode, True, False)
        self.before = answers.before
        self.calls = answers.before
        self.tell = tell

    def put(self, ids: Sequence[int]) -> None:
        """Takes ids, the first time those of the prompt."""
        if not self.texts.skips():
            self._tell(self.parser.push(self.texts.put(ids)))

    def end(self) -> None:
        """The answer has ended."""
        self._tell(self.parser.push(self.texts.end()))
        self._tell(self.parser.end())

    def _tell(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if delta.kind == "chunk":
                chunks: list[Any] = [chunk_of(delta, self.before)]
                self.tell({"tool_call_chunks": chunks})
                continue
            message = answer_of([delta], self.calls)
            if delta.kind == "call":
                self.calls += 1
                self.tell({"tool_calls": message["tool_calls"]})
            elif delta.kind == "reasoning":
                self.tell({"reasoning_content": delta.text})
            else:
                self.tell({"content": delta.text})
