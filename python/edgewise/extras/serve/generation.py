"""What the computing thread does for a request for text."""

from __future__ import annotations

import math
from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from ...host.text.generate import steps
from .catalog import TextModel
from .detokenize import Detokenizer, StopText
from .jobs import Job
from .options import Limits
from .refusals import Refusal
from .requests import Generation


@dataclass
class TokenScore:
    """The log-probability of a token, and of the likeliest ones in its place, highest first."""

    text: str
    logprob: float
    top: list[tuple[str, float]]


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


@dataclass
class Usage:
    """How many tokens a request took: the last event."""

    prompt: int
    completion: int


class Scores:
    """A logits processor that changes nothing and keeps the last logits."""

    def __init__(self, tokenizer: Any, most: int) -> None:
        self.tokenizer, self.most = tokenizer, most
        self.last: array[float] = array("f")

    def __call__(self, ids: list[int], scores: array[float]) -> None:
        self.last = scores

    def of(self, token: int) -> TokenScore:
        """The score of the token that was chosen from the last logits."""
        high = max(self.last)
        total = high + math.log(sum(math.exp(x - high) for x in self.last))
        best = nlargest(self.most, range(len(self.last)), key=self.last.__getitem__)
        top = [(self._text(i), self.last[i] - total) for i in best]
        return TokenScore(self._text(token), self.last[token] - total, top)

    def _text(self, token: int) -> str:
        return str(self.tokenizer.decode([token]))


def prompts_of(model: TextModel, request: Generation) -> list[list[int]]:
    """The token ids of a request's prompts. Raises Refusal, InputError, TokenizerError."""
    tokenizer = model.pipe.tokenizer
    if request.chat:
        ids = tokenizer.apply_chat_template(
            request.prompts[0],
            add_generation_prompt=not request.continues,
            continue_final_message=request.continues,
        )
        prompts = [ids]
    else:
        prompts = [tokenizer.encode(p) if isinstance(p, str) else p for p in request.prompts]
    room = model.pipe.model.max_length
    for ids in prompts:
        if len(ids) >= room:
            raise Refusal(
                f"the prompt has {len(ids)} tokens, and the model's context {room}; shorten it",
                param="messages" if request.chat else "prompt",
                code="context_length_exceeded",
            )
    return prompts


def generate(
    model: TextModel, adapter: str | None, request: Generation, limits: Limits, job: Job
) -> Iterator[Piece | Usage]:
    """Yields the pieces of all sequences, one sequence after the other, and the Usage."""
    lm = model.pipe.model
    if lm.adapter != adapter:
        lm.set_adapter(adapter)
    prompts = prompts_of(model, request)
    completion = 0
    for index in range(len(prompts) * request.n):
        ids = prompts[index // request.n]
        fields = dict(request.fields)
        if "seed" in fields:  # sequences of one prompt differ
            fields["seed"] = (fields["seed"] + index % request.n) % 2**63
        room = min(limits.tokens, lm.max_length - len(ids))
        fields["max_new_tokens"] = min(request.max_tokens or room, room)
        completion += yield from _sequence(model, ids, index, request, fields, job)
    yield Usage(sum(map(len, prompts)), completion)


def _sequence(
    model: TextModel,
    prompt: list[int],
    index: int,
    request: Generation,
    fields: dict[str, Any],
    job: Job,
) -> Generator[Piece, None, int]:
    """Yields the pieces of a sequence. Returns how many tokens it has."""
    tokenizer, eos = model.pipe.tokenizer, set(model.config.eos_token_ids)
    text, stop = Detokenizer(tokenizer, prompt), StopText(request.stop)
    scores = None if request.logprobs is None else Scores(tokenizer, request.logprobs)
    found: list[TokenScore] = []
    count = 0
    running = steps(
        model.pipe.model,
        prompt,
        model.config,
        signal=job,
        logits_processor=scores,
        cache=True,
        return_dict_in_generate=True,
        **fields,
    )
    try:
        while not stop.stopped:
            try:
                token = next(running)
            except StopIteration as over:
                reason = over.value["finish_reasons"][0]
                break
            if token is None:  # between pieces of the prompt
                continue
            count += 1
            if token in eos:
                continue
            if scores is not None:
                found.append(scores.of(token))
            if piece := stop.push(text.push(token)):
                yield Piece(index, piece, None, found)
                found = []
    finally:
        running.close()
    rest = "" if stop.stopped else stop.push(text.end()) + stop.end()
    finish = "stop" if stop.stopped or reason == "eos" else "length"
    yield Piece(index, rest, finish, found)
    return count
