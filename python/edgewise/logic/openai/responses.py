"""OpenAI's /v1/responses, as far as it is text and functions: requests, answers and their events.

There is no state: `previous_response_id` and `conversation` are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import RequestError
from ..native import listed
from ..tools.choice import check_given
from .answers import Event, Usage
from .requests import (
    MAX_MESSAGES,
    Bound,
    Generation,
    TextLimits,
    check_fields,
    common,
    flag,
    number,
    take_tools,
)

FIELDS = (
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "truncation",
    "background",
    "include",
    "reasoning",
)
TEXTS = ("input_text", "output_text", "text")


def parse_response(body: Mapping[str, Any], limits: TextLimits) -> Generation:
    """A request to /v1/responses.

    Raises:
        RequestError: it cannot be answered.
    """
    check_fields(body, FIELDS)
    if flag(body, "background", False):
        raise RequestError("there is no background here; remove it", "background")
    if body.get("truncation") not in (None, "disabled"):
        raise RequestError('it can only be "disabled"', "truncation")
    if len(listed(body.get("include")) or []) > 0:
        raise RequestError("nothing more can be included; remove it", "include")
    instructions: Any = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise RequestError("it is no text", "instructions")
    messages = _messages(body.get("input"))
    if isinstance(instructions, str) and instructions != "":
        messages = _instructed(messages, instructions)
    request = common(body, limits, True, [messages])
    most = number(body, Bound("max_output_tokens", True, 1, 1 << 30))
    request.max_tokens = None if most is None else int(most)
    take_tools(request, _tools(body.get("tools")), body.get("tool_choice"))
    request.parallel = flag(body, "parallel_tool_calls", True)
    shape = _format(body.get("text"))
    check_given(shape)
    if shape is not None:
        request.fields["response_format"] = shape
    request.usage = True
    return request


def _instructed(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Messages with instructions before them: chats have one message of the system."""
    first: dict[str, Any] = {"role": "system", "content": text}
    if messages[0]["role"] != "system":
        return [first, *messages]
    before: str = messages[0]["content"]
    first["content"] = text + "\n\n" + before
    return [first, *messages[1:]]


def _format(given: Any) -> dict[str, Any] | None:
    """The response_format of `text`; None: any text."""
    if given is None:
        return None
    if not isinstance(given, dict):
        raise RequestError("it is no object", "text")
    shape: Any = given.get("format")
    if shape is None:
        return None
    if not isinstance(shape, dict):
        raise RequestError("its format is no object", "text")
    if shape.get("type") == "text":
        return None
    if shape.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {"schema": shape.get("schema")}}
    return shape


def _tools(given: Any) -> Any:
    """Tools in the form of chats: those of functions."""
    items = listed(given)
    if items is None:
        return given
    made: list[Any] = []
    for item in items:
        kind: Any = item.get("type") if isinstance(item, dict) else None
        if not isinstance(item, dict) or kind != "function":
            raise RequestError(f"a tool is of the type {str(kind)[:40]}, not function", "tools")
        one: dict[str, Any] = {k: v for k, v in item.items() if k != "type"}
        made.append(one)
    return made


def _messages(given: Any) -> list[dict[str, Any]]:
    """The chat of `input`: a text, or items."""
    if isinstance(given, str):
        one: dict[str, Any] = {"role": "user", "content": given}
        return [one]
    items = listed(given)
    if items is None or not 0 < len(items) <= MAX_MESSAGES:
        raise RequestError(f"give a text, or a list of 1 to {MAX_MESSAGES} items", "input")
    messages: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for i, item in enumerate(items):
        where = f"input[{i}]"
        if not isinstance(item, dict):
            raise RequestError(f"{where} is no object", "input")
        kind: Any = item.get("type")
        if kind == "function_call":
            call = _call(item, where)
            names[call["id"]] = call["function"]["name"]
            _add_call(messages, call)
        elif kind == "function_call_output":
            key = _text_of(item.get("call_id"), where)
            result: dict[str, Any] = {"role": "tool", "tool_call_id": key}
            if key in names:
                result["name"] = names[key]
            result["content"] = _text_of(item.get("output"), where)
            messages.append(result)
        elif kind == "reasoning":
            continue
        elif kind is None or kind == "message":
            role: Any = item.get("role")
            if not isinstance(role, str):
                raise RequestError(f"{where} has no role", "input")
            made: dict[str, Any] = {"role": "system" if role == "developer" else role}
            made["content"] = _text_of(item.get("content"), where)
            messages.append(made)
        else:
            raise RequestError(f"{where} is of the type {str(kind)[:40]}", "input")
    if len(messages) == 0:
        raise RequestError("there are no messages", "input")
    return messages


def _call(item: dict[str, Any], where: str) -> dict[str, Any]:
    name = _text_of(item.get("name"), where)
    function: dict[str, Any] = {"name": name}
    function["arguments"] = _text_of(item.get("arguments"), where)
    return {"id": _text_of(item.get("call_id"), where), "type": "function", "function": function}


def _add_call(messages: list[dict[str, Any]], call: dict[str, Any]) -> None:
    """Adds a call to the assistant's last message."""
    if len(messages) == 0 or messages[-1]["role"] != "assistant":
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        messages.append(message)
    last = messages[-1]
    calls: list[Any] = last.get("tool_calls") or []
    last["tool_calls"] = [*calls, call]


def _text_of(given: Any, where: str) -> str:
    """A text, or the texts of parts."""
    if isinstance(given, str):
        return given
    parts = listed(given)
    if parts is None:
        raise RequestError(f"{where} has no text", "input")
    texts: list[str] = []
    for part in parts:
        text: Any = part.get("text") if isinstance(part, dict) else None
        if not isinstance(part, dict) or part.get("type") not in TEXTS or not isinstance(text, str):
            raise RequestError(f"{where} contains something else than text", "input")
        texts.append(text)
    return "".join(texts)


class Reply:
    """The answer to a request to /v1/responses.

    Args:
        request: as checked.
        body: of the request, which the answer repeats.
        name: letters and digits that no other answer has.
        created: seconds since 1970.
    """

    def __init__(
        self, request: Generation, body: Mapping[str, Any], name: str, created: int
    ) -> None:
        self.request, self.body, self.name, self.created = request, body, name, created
        self.output: list[dict[str, Any]] = []
        self.counts: Usage | None = None
        self.finish: str | None = None
        self.status = "in_progress"
        self._sent = 0
        self._kind = ""  # of the item that is open: "", "message", "reasoning" or "call"
        self._text = ""
        self._call: dict[str, Any] = {}  # that is open

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        for event in events:
            self.records(event)
        return self._response()

    def records(self, event: Event) -> list[dict[str, Any]]:
        """The records of an event."""
        made: list[dict[str, Any]] = []
        if self._sent == 0:
            for name in ("response.created", "response.in_progress"):
                self._tell(made, name, {"response": self._response()})
        if event.kind == "usage":
            self._close(made)
            self.counts = event
            self.status = "incomplete" if self.finish == "length" else "completed"
            self._tell(made, f"response.{self.status}", {"response": self._response()})
        elif event.kind == "piece":
            self._write(made, "message", event.text)
            self.finish = event.finish or self.finish
        else:
            self._write(made, "reasoning", event.delta.get("reasoning_content", ""))
            self._write(made, "message", event.delta.get("content", ""))
            chunks: list[dict[str, Any]] = event.delta.get("tool_call_chunks") or []
            for chunk in chunks:
                self._called(made, chunk)
            if "tool_calls" in event.delta:
                self._close_call(made, "completed")
        return made

    def _tell(self, made: list[dict[str, Any]], kind: str, more: dict[str, Any]) -> None:
        record: dict[str, Any] = {"type": kind, "sequence_number": self._sent, **more}
        made.append(record)
        self._sent += 1

    def _write(self, made: list[dict[str, Any]], kind: str, text: str) -> None:
        """Adds text to a message or the reasoning."""
        if text == "":
            return
        if self._kind != kind:
            self._close(made)
            self._kind = kind
            self._tell(made, "response.output_item.added", {**self._at(), "item": self._item("")})
            place: dict[str, Any] = {**self._part(), "part": self._content("")}
            self._tell(made, "response.content_part.added", place)
        self._text += text
        delta: dict[str, Any] = {**self._part(), "delta": text}
        self._tell(made, f"response.{self._word()}.delta", self._scored(delta))

    def _close(self, made: list[dict[str, Any]]) -> None:
        """Ends the item that is open."""
        if self._kind == "":
            return
        if self._kind == "call":
            self._close_call(made, "incomplete")
            return
        text = self._text
        done: dict[str, Any] = {**self._part(), "text": text}
        self._tell(made, f"response.{self._word()}.done", self._scored(done))
        part: dict[str, Any] = {**self._part(), "part": self._content(text)}
        self._tell(made, "response.content_part.done", part)
        item = self._item("incomplete" if self.finish == "length" else "completed")
        self._tell(made, "response.output_item.done", {**self._at(), "item": item})
        self.output.append(item)
        self._kind = self._text = ""

    def _called(self, made: list[dict[str, Any]], chunk: dict[str, Any]) -> None:
        """Adds a part of a call."""
        function: dict[str, Any] = chunk["function"]
        if "id" in chunk:
            self._close_call(made, "completed")
            self._close(made)
            self._kind = "call"
            item: dict[str, Any] = {"id": f"fc_{self.name}{len(self.output)}"}
            item["type"] = "function_call"
            item["status"] = "in_progress"
            item["call_id"] = chunk["id"]
            item["name"] = function["name"]
            item["arguments"] = ""
            self._call = item
            self._tell(made, "response.output_item.added", {**self._at(), "item": item})
        text: str = function["arguments"]
        if text != "":
            self._text += text
            delta: dict[str, Any] = {**self._at(), "item_id": self._call["id"], "delta": text}
            self._tell(made, "response.function_call_arguments.delta", delta)

    def _close_call(self, made: list[dict[str, Any]], status: str) -> None:
        """Ends the call that is open, if one is."""
        if self._kind != "call":
            return
        call = self._call
        place: dict[str, Any] = {**self._at(), "item_id": call["id"], "name": call["name"]}
        place["arguments"] = self._text
        self._tell(made, "response.function_call_arguments.done", place)
        item: dict[str, Any] = {**call, "status": status, "arguments": self._text}
        self._tell(made, "response.output_item.done", {**self._at(), "item": item})
        self.output.append(item)
        self._kind = self._text = ""

    def _word(self) -> str:
        return "output_text" if self._kind == "message" else "reasoning_text"

    def _at(self) -> dict[str, Any]:
        return {"output_index": len(self.output)}

    def _part(self) -> dict[str, Any]:
        return {**self._at(), "item_id": self._id(), "content_index": 0}

    def _id(self) -> str:
        begun = "msg_" if self._kind == "message" else "rs_"
        return f"{begun}{self.name}{len(self.output)}"

    def _scored(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record of a text, which has a place for log-probabilities."""
        if self._kind != "message":
            return record
        scores: list[Any] = []
        return {**record, "logprobs": scores}

    def _content(self, text: str) -> dict[str, Any]:
        if self._kind != "message":
            return {"type": "reasoning_text", "text": text}
        notes: list[Any] = []
        scores: list[Any] = []
        return {"type": "output_text", "text": text, "annotations": notes, "logprobs": scores}

    def _item(self, status: str) -> dict[str, Any]:
        """The item that is open. status: how it ended; "" at its beginning."""
        content: list[Any] = [] if status == "" else [self._content(self._text)]
        item: dict[str, Any] = {"id": self._id(), "type": self._kind}
        item["status"] = status or "in_progress"
        item["content"] = content
        if self._kind == "message":
            item["role"] = "assistant"
        else:
            summary: list[Any] = []
            item["summary"] = summary
        return item

    def _response(self) -> dict[str, Any]:
        body = self.body
        text: Any = body.get("text")
        chosen: Any = body.get("tool_choice")
        given: Any = body.get("metadata")
        plain: dict[str, Any] = {"format": {"type": "text"}}
        tools: list[Any] = listed(body.get("tools")) or []
        labels: dict[str, Any] = {}
        incomplete: dict[str, Any] | None = None
        if self.status == "incomplete":
            incomplete = {"reason": "max_output_tokens"}
        counts = self.counts
        return {
            "id": f"resp_{self.name}",
            "object": "response",
            "created_at": self.created,
            "status": self.status,
            "background": False,
            "error": None,
            "incomplete_details": incomplete,
            "instructions": body.get("instructions"),
            "max_output_tokens": self.request.max_tokens,
            "metadata": labels if given is None else given,
            "model": self.request.model,
            "output": [*self.output],
            "parallel_tool_calls": self.request.parallel,
            "previous_response_id": None,
            "store": False,
            "temperature": body.get("temperature"),
            "text": plain if text is None else text,
            "tool_choice": "auto" if chosen is None else chosen,
            "tools": tools,
            "top_p": body.get("top_p"),
            "truncation": "disabled",
            "usage": None if counts is None else _usage(counts),
        }


def _usage(counts: Usage) -> dict[str, Any]:
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts.prompt + counts.completion,
    }
