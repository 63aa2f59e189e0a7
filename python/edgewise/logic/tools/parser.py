"""Answers with calls of tools and reasoning, while they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .bodies import ARGS, Body, calls_of
from .families import HARMONY, HARMONY_MARKS, Family, Form
from .values import Call, json_of
from .written import Calls, Chunk, held_back


@dataclass
class Text:
    """A piece of text, or of reasoning."""

    text: str
    kind: Literal["text", "reasoning"] = "text"


Delta = Text | Chunk | Call


class Trimmed:
    """Text without the spaces around marks.

    Attributes:
        after: whether a mark stands before the next text.
    """

    def __init__(self) -> None:
        self.after = False
        self._spaces = ""
        self._dropped = ""  # the spaces before the last mark

    def push(self, text: str, kind: Literal["text", "reasoning"]) -> list[Delta]:
        """Takes text."""
        new = text.lstrip() if self.after and self._spaces == "" else text
        whole = self._spaces + new
        told = whole.rstrip()
        if told == "":
            self._spaces = "" if self.after else whole
            return []
        self._spaces = whole.removeprefix(told)
        self.after = False
        return [Text(told, kind)]

    def mark(self) -> None:
        """A mark follows."""
        self._dropped = self._spaces
        self._spaces = ""
        self.after = True

    def unmark(self) -> None:
        """The last mark is text, as are the spaces before it."""
        self._spaces = self._dropped
        self.after = False

    def end(self) -> list[Delta]:
        """The spaces at the end of an answer."""
        left = self._spaces
        self._spaces = ""
        return [Text(left)] if left != "" else []


class Told:
    """Tells of calls: in chunks while they are written, and when they are whole.

    Args:
        tools: as `tools_of` returns them.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._tools = tools
        self._calls: Calls | None = None
        self._number = 0  # of calls that were begun
        self._made = 0  # calls before the part
        self._begun = 0  # calls of the part

    def begin(self, body: Body) -> None:
        """A part with calls begins. body: how they are written."""
        self._calls = Calls(body, self._tools)
        self._begun = 0

    def push(self, text: str) -> list[Delta]:
        """Takes new text of the part."""
        return [] if self._calls is None else self._chunks(self._calls.push(text))

    def end(self, calls: Sequence[Call]) -> list[Delta]:
        """The part has ended. calls: in it; none if it is text."""
        made: list[Delta] = []
        if self._calls is not None and len(calls) > 0:
            made.extend(self._chunks(self._calls.end(calls)))
        self._calls = None
        for call in calls[self._begun :]:
            made.extend(self._chunks([(call.name, ""), ("", json_of(call.arguments))]))
        made.extend(calls)
        self._made += len(calls)
        self._begun = 0
        return made

    def _chunks(self, parts: Sequence[tuple[str, str]]) -> list[Delta]:
        made: list[Delta] = []
        for name, text in parts:
            if name != "":
                self._number += 1
                self._begun += 1
            made.append(Chunk(self._number - 1, self._made + self._begun - 1, name, text))
        return made


class AnswerParser:
    """Parses an answer of any family but Harmony's.

    Args:
        family: of the model.
        tools: as `tools_of` returns them.
        thinking: whether the prompt has begun the reasoning.
    """

    def __init__(
        self, family: Family, tools: Sequence[Mapping[str, Any]], thinking: bool = False
    ) -> None:
        self._family = family
        self._tools = tools
        self._held = ""
        self._new = ""  # of what is held, where the end of a part may be
        self._form: Form | None = None
        self._trimmed = Trimmed()
        self._told = Told(tools)
        self._bare = family.bare  # whether the answer may be one object of JSON
        self._fresh = ""  # of that, what is not told yet
        self._begun = ""  # the first characters of what may be one, without spaces
        self._starts = ['{"name"', '{"type"', '{"function"']
        for tool in tools:
            function: dict[str, Any] = tool["function"]
            name: str = function["name"]
            self._starts.append("[" + name + "(")
        self._enough = max(len(start) for start in self._starts)
        if thinking:
            self._form = next((f for f in family.forms if f.body is None), None)
            self._trimmed.mark()
        if self._bare:
            self._told.begin("bare")

    def push(self, text: str) -> list[Delta]:
        """Takes new text. Returns what it adds to the answer."""
        self._held += text
        if self._form is not None and self._form.body is not None:
            self._new += text
        if self._bare:
            self._fresh += text
            if len(self._begun) < self._enough:
                self._begun += "".join(text.split())
        made: list[Delta] = []
        going = True
        while going:
            going = self._step(made)
        return made

    def end(self) -> list[Delta]:
        """The answer has ended. Returns the rest."""
        form = self._form
        text = self._held
        self._held = ""
        if form is None:
            calls = calls_of("bare", text, self._tools) if self._bare else []
            if len(calls) > 0:
                return self._told.end(calls)
            return [*self._trimmed.push(text, "text"), *self._trimmed.end()]
        if form.body is None:
            return self._trimmed.push(text, "reasoning")
        told = self._told.push(self._new)
        return [*told, *self._called(form, text, ""), *self._trimmed.end()]

    def _step(self, made: list[Delta]) -> bool:
        """Reads up to the next mark. Returns whether there was one."""
        form = self._form
        if form is not None:
            return self._inside(form, made)
        if self._bare and self._may_be_call():
            made.extend(self._told.push(self._fresh))
            self._fresh = ""
            return False
        self._bare = self._bare and self._held.strip() == ""
        first: Form | None = None
        for one in self._family.forms:
            if one.start in self._held:
                size = len(self._held.partition(one.start)[0])
                if first is None or size < len(self._held.partition(first.start)[0]):
                    first = one
        if first is None:
            kept = held_back(self._held, [f.start for f in self._family.forms])
            made.extend(self._trimmed.push(self._held.removesuffix(kept), "text"))
            self._held = kept
            return False
        before, _, self._held = self._held.partition(first.start)
        made.extend(self._trimmed.push(before, "text"))
        self._trimmed.mark()
        self._form = first
        self._new = self._held
        if first.body is not None:
            self._told.begin(first.body)
        return True

    def _inside(self, form: Form, made: list[Delta]) -> bool:
        if form.body is None:
            return self._reason(form, made)
        end = form.end if form.end != "" else form.start
        if end not in self._new:
            kept = held_back(self._new, [end])
            made.extend(self._told.push(self._new.removesuffix(kept)))
            self._new = kept
            return False
        made.extend(self._told.push(self._new.partition(end)[0]))
        text, _, self._held = self._held.partition(end)
        self._new = self._held
        made.extend(self._called(form, text, form.end))
        if form.end != "":
            self._form = None
        else:  # the mark of the next call
            self._trimmed.mark()
            self._told.begin(form.body)
        return True

    def _reason(self, form: Form, made: list[Delta]) -> bool:
        if form.end in self._held:
            text, _, self._held = self._held.partition(form.end)
            made.extend(self._trimmed.push(text, "reasoning"))
            self._trimmed.mark()
            self._form = None
            self._bare = self._family.bare
            self._begun = "".join(self._held.split())
            self._fresh = self._held
            if self._bare:
                self._told.begin("bare")
            return True
        kept = held_back(self._held, [form.end])
        made.extend(self._trimmed.push(self._held.removesuffix(kept), "reasoning"))
        self._held = kept
        return False

    def _called(self, form: Form, text: str, mark: str) -> list[Delta]:
        """The calls of a part; its text, if it has none."""
        calls = calls_of(form.body or "json", text, self._tools)
        told = self._told.end(calls)
        if len(calls) > 0:
            return told
        self._trimmed.unmark()
        return self._trimmed.push(form.start + text + mark, "text")

    def _may_be_call(self) -> bool:
        """Whether the answer so far is the beginning of a call without marks."""
        begun = self._begun
        return begun != "" and any(s.startswith(begun) or begun.startswith(s) for s in self._starts)


class HarmonyParser:
    """Parses an answer in channels, after the prompt's `<|start|>assistant`: analysis is reasoning,
    what is for functions a call, and the rest text.
    """

    def __init__(self) -> None:
        self._held = ""
        self._new = ""  # of the head, where a mark may be
        self._head = ""
        self._call = ""  # the arguments so far
        self._body = False
        self._trimmed = Trimmed()
        self._told = Told([])

    def push(self, text: str) -> list[Delta]:
        """Takes new text. Returns what it adds to the answer."""
        self._held += text
        self._new += text
        made: list[Delta] = []
        going = True
        while going:
            going = self._step(made)
        return made

    def end(self) -> list[Delta]:
        """The answer has ended. Returns the rest."""
        text = self._held
        self._held = ""
        if self._body:
            return self._said(text, True)
        return self._trimmed.push(text, "text") if "<|" not in self._head + text else []

    def _step(self, made: list[Delta]) -> bool:
        if not self._body:
            if "<|message|>" not in self._new:
                self._new = held_back(self._new, ["<|message|>"])
                return False
            self._head, _, self._held = self._held.partition("<|message|>")
            self._new = self._held
            self._body = True
            self._call = ""
            self._trimmed.mark()
            if _recipient(self._head) != "":
                self._told.begin("mistral")
                made.extend(self._told.push(_recipient(self._head) + ARGS))
            return True
        ends = [m for m in HARMONY_MARKS if m in self._held]
        if len(ends) == 0:
            kept = held_back(self._held, HARMONY_MARKS)
            made.extend(self._said(self._held.removesuffix(kept), False))
            self._held = kept
            return False
        first = ends[0]
        for mark in ends:
            if len(self._held.partition(mark)[0]) < len(self._held.partition(first)[0]):
                first = mark
        text, _, self._held = self._held.partition(first)
        self._new = self._held
        made.extend(self._said(text, True))
        self._body = False
        self._head = ""
        return True

    def _said(self, text: str, whole: bool) -> list[Delta]:
        name = _recipient(self._head)
        if name != "":
            told = self._told.push(text)
            self._call += text
            if not whole:
                return told
            calls = calls_of("mistral", name + ARGS + (self._call.strip() or "{}"), [])
            told.extend(self._told.end(calls))
            return told if len(calls) > 0 else self._trimmed.push(self._call, "text")
        reasons = self._head.partition("<|channel|>")[2].strip().startswith("analysis")
        return self._trimmed.push(text, "reasoning" if reasons else "text")


def _recipient(head: str) -> str:
    """The function that a message is for; "" if it is for none."""
    parts = head.partition("to=")[2].split()
    return parts[0].partition("<|")[0].removeprefix("functions.") if len(parts) > 0 else ""


def parser_of(
    family: Family, tools: Sequence[Mapping[str, Any]], thinking: bool = False
) -> AnswerParser | HarmonyParser:
    """A parser of answers. Arguments as of AnswerParser."""
    if family.name == HARMONY:
        return HarmonyParser()
    return AnswerParser(family, tools, thinking)


def begins_thinking(family: Family, prompt: str) -> bool:
    """Whether a prompt has begun the reasoning of its answer. prompt: its text, or its end."""
    end = prompt.rstrip()
    return any(f.body is None and end.endswith(f.start) for f in family.forms)


def answer_of(deltas: Sequence[Delta], first: int) -> dict[str, Any]:
    """The message of an answer.

    Args:
        deltas: all of it.
        first: calls in the chat before, for the ids.
    """
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[Any] = []
    for delta in deltas:
        if delta.kind == "call":
            function: dict[str, Any] = {"name": delta.name, "arguments": delta.arguments}
            call: dict[str, Any] = {"id": call_id(first + len(calls)), "type": "function"}
            call["function"] = function
            calls.append(call)
        elif delta.kind == "reasoning":
            reasoning.append(delta.text)
        elif delta.kind == "text":
            content.append(delta.text)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(content)}
    if len(reasoning) > 0:
        message["reasoning_content"] = "".join(reasoning)
    if len(calls) > 0:
        message["tool_calls"] = calls
    return message


def chunk_of(delta: Chunk, first: int) -> dict[str, Any]:
    """A part of a call, as OpenAI's API has it: with the name, or with more of the arguments.

    Args:
        delta: the part.
        first: calls in the chat before, for the id.
    """
    function: dict[str, Any] = {"arguments": delta.text}
    made: dict[str, Any] = {"index": delta.number, "function": function}
    if delta.name != "":
        named: dict[str, Any] = {"name": delta.name, **function}
        made["id"] = call_id(first + delta.order)
        made["type"] = "function"
        made["function"] = named
    return made


def call_id(number: int) -> str:
    """The id of a call: nine letters and digits, as Mistral's templates ask for."""
    digits = str(number % 100000)
    return "call" + "0" * (5 - len(digits)) + digits
