"""Bodies and events of answers, as OpenAI's API has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..native import size, utf8_bytes
from .requests import Generation


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
        finish: "stop" or "length" with the last piece, else None.
        scores: of the tokens since the last piece, if they were asked for.
    """

    index: int
    text: str
    finish: str | None
    scores: list[TokenScore]
    kind: Literal["piece"] = "piece"


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

    def chunk(self, event: Piece | Usage) -> dict[str, Any] | None:
        """The record of a streamed event; None for one that is not sent."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        if event.kind == "usage":
            if not self.request.usage:
                return None
            return {**self._record(kind, []), "usage": usage(event)}
        choice: dict[str, Any] = {"index": event.index}
        if self.chat:
            delta: dict[str, Any] = {"content": event.text} if event.text else {}
            if event.index not in self.begun:
                delta = {"role": "assistant", "content": event.text}
            choice["delta"] = delta
            self.begun.add(event.index)
        else:
            choice["text"] = event.text
        choice["logprobs"] = self._logprobs(event.index, event.scores)
        choice["finish_reason"] = event.finish
        record = self._record(kind, [choice])
        if self.request.usage:
            record["usage"] = None
        return record

    def whole(self, events: Sequence[Piece | Usage]) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        texts: dict[int, list[str]] = {}
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
            texts[event.index].append(event.text)
            scores[event.index].extend(event.scores)
            finish[event.index] = event.finish
        choices: list[Any] = []
        for i, parts in texts.items():
            choice: dict[str, Any] = {"index": i}
            if self.chat:
                choice["message"] = {"role": "assistant", "content": "".join(parts)}
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
