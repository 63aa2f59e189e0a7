"""Bodies and events of answers, as OpenAI's API has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..native import size, utf8_bytes
from ..tools.values import json_of
from .requests import Generation
from .stops import StopText


@dataclass
class Likely:
    """A token, and its log-probability."""

    text: str
    logprob: float


@dataclass
class TokenScore:
    """The log-probability of a token, and of the likeliest ones in its place, highest first."""

    text: str
    logprob: float
    top: list[Likely]


@dataclass
class Piece:
    """Text of a sequence.

    Attributes:
        index: of the sequence.
        text: the new part.
        finish: "stop", "length" or "tool_calls" with the last piece, else None.
        scores: of the tokens since the last piece, if they were asked for.
    """

    index: int
    text: str
    finish: str | None
    scores: list[TokenScore]
    kind: Literal["piece"] = "piece"


@dataclass
class Part:
    """A part of an answer with tools.

    Attributes:
        index: of the sequence.
        delta: {"content"}, {"reasoning_content"}, {"tool_call_chunks"} or {"tool_calls"}, as
            DeltaStreamer tells of them.
        scores: as of Piece.
    """

    index: int
    delta: dict[str, Any]
    scores: list[TokenScore]
    kind: Literal["part"] = "part"


@dataclass
class Usage:
    """How many tokens a request took: the last event.

    Attributes:
        prompt: of prompts.
        completion: generated ones.
        cached: of the prompts, those that were kept of earlier requests.
    """

    prompt: int
    completion: int
    cached: int = 0
    kind: Literal["usage"] = "usage"


Event = Piece | Part | Usage


class Parts:
    """The parts of a sequence of an answer with tools.

    Args:
        index: of the sequence.
        stops: strings that end its text.
    """

    def __init__(self, index: int, stops: Sequence[str]) -> None:
        self.index, self.stop, self.called = index, StopText(stops), False
        self._scores: list[TokenScore] = []  # of text that is held back

    def push(self, delta: dict[str, Any], scores: list[TokenScore]) -> list[Part]:
        """Takes a delta of the pipeline. Returns what is told."""
        if self.stop.stopped:
            return []
        known = [*self._scores, *scores]
        part = delta
        if "tool_calls" in delta:
            self.called = True
            self._scores = known  # its chunks were told
            return [Part(self.index, delta, [])]
        if "content" in delta:
            text: str = delta["content"]
            told = self.stop.push(text)
            if told == "":
                self._scores = known
                return []
            content: dict[str, Any] = {"content": told}
            part = content
        self._scores = []
        return [Part(self.index, part, known)]

    def end(self, reason: str, scores: list[TokenScore]) -> Piece:
        """The last event. reason: of generation."""
        stopped = self.stop.stopped
        finish = finish_of(reason, stopped)
        if self.called and finish == "stop":
            finish = "tool_calls"
        known = [*self._scores, *scores]
        self._scores = []
        return Piece(self.index, "" if stopped else self.stop.end(), finish, known)


class Answer:
    """The answer to a request for text.

    Args:
        request: as checked.
        name: letters and digits that no other answer has.
        created: seconds since 1970.
    """

    def __init__(self, request: Generation, name: str, created: int) -> None:
        self.request, self.created = request, created
        self.chat = request.chat
        self.id = ("chatcmpl-" if request.chat else "cmpl-") + name
        self.begun: set[int] = set()  # sequences whose role was told
        self.offsets: dict[int, int] = {}  # characters of a sequence so far, for logprobs

    def records(self, event: Event) -> list[dict[str, Any]]:
        """The records of a streamed event."""
        made = self.chunk(event)
        return [] if made is None else [made]

    def chunk(self, event: Event) -> dict[str, Any] | None:
        """The record of a streamed event; None for one that is not sent."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        if event.kind == "usage":
            if not self.request.usage:
                return None
            return {**self._record(kind, []), "usage": usage(event)}
        choice: dict[str, Any] = {"index": event.index}
        if event.kind == "part":
            if "tool_calls" in event.delta:
                return None  # their chunks were sent
            choice["delta"] = self._delta(event.index, _sent(event.delta))
        elif self.chat:
            text: dict[str, Any] = {"content": event.text} if event.text else {}
            choice["delta"] = self._delta(event.index, text)
        else:
            choice["text"] = event.text
        choice["logprobs"] = self._logprobs(event.index, event.scores)
        choice["finish_reason"] = None if event.kind == "part" else event.finish
        record = self._record(kind, [choice])
        if self.request.usage:
            record["usage"] = None
        return record

    def _delta(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        """A delta, which has the role if it is the first."""
        if index in self.begun:
            return delta
        self.begun.add(index)
        first: dict[str, Any] = {"role": "assistant", "content": "", **delta}
        return first

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        texts: dict[int, list[str]] = {}
        others: dict[int, dict[str, Any]] = {}
        scores: dict[int, list[TokenScore]] = {}
        finish: dict[int, str | None] = {}
        counts = Usage(0, 0)
        for event in events:
            if event.kind == "usage":
                counts = event
                continue
            if event.index not in texts:
                texts[event.index] = []
                scores[event.index] = []
                others[event.index] = {}
            scores[event.index].extend(event.scores)
            if event.kind == "part":
                texts[event.index].append(event.delta.get("content", ""))
                others[event.index] = _more(others[event.index], event.delta)
            else:
                texts[event.index].append(event.text)
                finish[event.index] = event.finish
        choices: list[Any] = []
        for i, parts in texts.items():
            choice: dict[str, Any] = {"index": i}
            if self.chat:
                content = "".join(parts)
                message: dict[str, Any] = {"role": "assistant", "content": content, **others[i]}
                if content == "" and "tool_calls" in message:
                    message["content"] = None
                choice["message"] = message
            else:
                choice["text"] = "".join(parts)
            choice["logprobs"] = self._logprobs(i, scores[i])
            choice["finish_reason"] = finish[i]
            choices.append(choice)
        record = self._record("chat.completion" if self.chat else "text_completion", choices)
        record["usage"] = usage(counts)
        return record

    def _record(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.request.model,
            "choices": choices,
        }

    def _logprobs(self, index: int, scores: Sequence[TokenScore]) -> dict[str, Any] | None:
        if self.request.logprobs is None:
            return None
        if self.chat:
            content: list[Any] = []
            for s in scores:
                one = _token(s.text, s.logprob)
                one["top_logprobs"] = [_token(t.text, t.logprob) for t in s.top]
                content.append(one)
            return {"content": content}
        at = self.offsets.get(index, 0)
        offsets: list[int] = []
        tops: list[Any] = []
        for s in scores:
            offsets.append(at)
            at += size(s.text)
            top: dict[str, Any] = {t.text: t.logprob for t in s.top}
            tops.append(top)
        self.offsets[index] = at
        return {
            "tokens": [s.text for s in scores],
            "token_logprobs": [s.logprob for s in scores],
            "top_logprobs": tops,
            "text_offset": offsets,
        }


def _sent(delta: dict[str, Any]) -> dict[str, Any]:
    """A delta, whose chunks of calls have OpenAI's name."""
    if "tool_call_chunks" not in delta:
        return delta
    return {"tool_calls": delta["tool_call_chunks"]}


def with_text(call: dict[str, Any]) -> dict[str, Any]:
    """A call whose arguments are a text."""
    function: dict[str, Any] = call["function"]
    written: dict[str, Any] = {**function, "arguments": json_of(function["arguments"])}
    return {**call, "function": written}


def _more(found: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """The reasoning and the calls of a message with those of a delta."""
    made: dict[str, Any] = {**found}
    if "reasoning_content" in delta:
        before: str = made.get("reasoning_content", "")
        new: str = delta["reasoning_content"]
        made["reasoning_content"] = before + new
    if "tool_calls" in delta:
        calls: list[Any] = made.get("tool_calls", [])
        more: list[dict[str, Any]] = delta["tool_calls"]
        made["tool_calls"] = [*calls, *[with_text(call) for call in more]]
    return made


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": utf8_bytes(text)}


def usage(counts: Usage) -> dict[str, Any]:
    """OpenAI's counts of tokens."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }


def finish_of(reason: str, stopped: bool) -> str:
    """OpenAI's word for why a sequence ended.

    Args:
        reason: of generation.
        stopped: whether a stop string was found.
    """
    return "stop" if stopped or reason in ("eos", "stop_string") else "length"


def error_body(message: str, status: int, param: str | None, code: str | None) -> dict[str, Any]:
    """The body of a refusal.

    Args:
        message: what is wrong, and what to do.
        status: of HTTP.
        param: the field that is wrong, or None.
        code: a word for programs, or None.
    """
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = "server_error" if status >= 500 else kinds.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def status_of(names: Sequence[str]) -> int:
    """The status of HTTP for an error, by the names of its class and those above it."""
    if any(
        n in ("InputError", "RequestError", "UnsupportedField", "TokenizerError") for n in names
    ):
        return 400
    return 503 if "OutOfMemory" in names or "Aborted" in names else 500
