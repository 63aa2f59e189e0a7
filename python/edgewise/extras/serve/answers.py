"""Bodies and events of answers, as OpenAI's API has them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from typing import Any

from .generation import Piece, TokenScore, Usage
from .requests import Generation


class Answer:
    """The answer to a request for text.

    Args:
        request: as checked.
    """

    def __init__(self, request: Generation) -> None:
        self.request = request
        self.chat = request.chat
        self.id = ("chatcmpl-" if self.chat else "cmpl-") + secrets.token_hex(12)
        self.created = int(time.time())
        self.begun: set[int] = set()  # sequences whose role was told
        self.offsets: dict[int, int] = {}  # characters of a sequence so far, for logprobs

    def _record(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.request.model,
            "choices": choices,
        }

    def chunk(self, event: Piece | Usage) -> dict[str, Any] | None:
        """The record of a streamed event; None for one that is not sent."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        if isinstance(event, Usage):
            if not self.request.usage:
                return None
            return {**self._record(kind, []), "usage": usage(event)}
        more = {"usage": None} if self.request.usage else {}
        choice: dict[str, Any] = {"index": event.index}
        if self.chat:
            delta = {"content": event.text} if event.text else {}
            if event.index not in self.begun:
                delta = {"role": "assistant", "content": event.text}
            choice["delta"] = delta
            self.begun.add(event.index)
        else:
            choice["text"] = event.text
        choice["logprobs"] = self._logprobs(event.index, event.scores)
        choice["finish_reason"] = event.finish
        return {**self._record(kind, [choice]), **more}

    def whole(self, events: Iterable[Piece | Usage]) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        texts: dict[int, str] = {}
        scores: dict[int, list[TokenScore]] = {}
        finish: dict[int, str | None] = {}
        counts = Usage(0, 0)
        for event in events:
            if isinstance(event, Usage):
                counts = event
                continue
            texts[event.index] = texts.get(event.index, "") + event.text
            scores.setdefault(event.index, []).extend(event.scores)
            finish[event.index] = event.finish
        choices = []
        for i, text in texts.items():
            choice: dict[str, Any] = {"index": i}
            if self.chat:
                choice["message"] = {"role": "assistant", "content": text}
            else:
                choice["text"] = text
            choice["logprobs"] = self._logprobs(i, scores[i])
            choice["finish_reason"] = finish[i]
            choices.append(choice)
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._record(kind, choices), "usage": usage(counts)}

    def _logprobs(self, index: int, scores: list[TokenScore]) -> dict[str, Any] | None:
        if self.request.logprobs is None:
            return None
        if self.chat:
            return {
                "content": [
                    {
                        **_token(s.text, s.logprob),
                        "top_logprobs": [_token(text, value) for text, value in s.top],
                    }
                    for s in scores
                ]
            }
        at, offsets = self.offsets.get(index, 0), []
        for s in scores:
            offsets.append(at)
            at += len(s.text)
        self.offsets[index] = at
        return {
            "tokens": [s.text for s in scores],
            "token_logprobs": [s.logprob for s in scores],
            "top_logprobs": [dict(s.top) for s in scores],
            "text_offset": offsets,
        }


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def usage(counts: Usage) -> dict[str, int]:
    """OpenAI's counts of tokens."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
    }


def event_of(record: Any) -> bytes:
    """An event of a stream (text/event-stream). JSON has no line ends within."""
    text = record if isinstance(record, str) else json.dumps(record, separators=(",", ":"))
    return f"data: {text}\n\n".encode()
