"""What the computing thread does for a request for text."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from typing import Any

from ...host.text.generate import steps
from ...host.text.tools import chat_prompt
from ...logic.openai.answers import Piece, TokenScore, Usage, finish_of
from ...logic.openai.requests import Generation, check_length
from ...logic.openai.scores import score_of
from ...logic.openai.stops import StopText
from .catalog import TextModel
from .detokenize import Detokenizer
from .jobs import Job
from .options import Limits


class Scores:
    """A logits processor that changes nothing and keeps the last logits."""

    def __init__(self, tokenizer: Any, most: int) -> None:
        self.tokenizer, self.most = tokenizer, most
        self.last: array[float] = array("f")

    def __call__(self, ids: list[int], scores: array[float]) -> None:
        self.last = scores

    def of(self, token: int) -> TokenScore:
        """The score of the token that was chosen from the last logits."""
        return score_of(self.last, token, self.most, self._text)

    def _text(self, token: int) -> str:
        return str(self.tokenizer.decode([token]))


def prompts_of(model: TextModel, request: Generation) -> list[list[int]]:
    """The token ids of a request's prompts. Raises InputError, TokenizerError."""
    tokenizer = model.pipe.tokenizer
    if request.chat:
        ids = chat_prompt(
            tokenizer,
            request.prompts[0],
            add_generation_prompt=not request.continues,
            continue_final_message=request.continues,
        )
        prompts = [ids]
    else:
        prompts = [tokenizer.encode(p) if isinstance(p, str) else p for p in request.prompts]
    room = model.pipe.model.max_length
    for ids in prompts:
        check_length(len(ids), room, request)
    return prompts


def generate(
    model: TextModel, adapter: str | None, request: Generation, limits: Limits, job: Job
) -> Iterator[Piece | Usage]:
    """Yields the pieces of all sequences, one sequence after the other, and the Usage."""
    lm = model.pipe.model
    if lm.adapter != adapter:
        lm.set_adapter(adapter)
    prompts = prompts_of(model, request)
    completion = cached = 0
    for index in range(len(prompts) * request.n):
        ids = prompts[index // request.n]
        fields = dict(request.fields)
        if "seed" in fields:  # sequences of one prompt differ
            fields["seed"] = (fields["seed"] + index % request.n) % 2**63
        room = min(limits.tokens, lm.max_length - len(ids))
        fields["max_new_tokens"] = min(request.max_tokens or room, room)
        counts = yield from _sequence(model, ids, index, request, fields, job)
        completion += counts.completion
        if index % request.n == 0:  # the prompt counts once
            cached += counts.cached
    yield Usage(sum(map(len, prompts)), completion, cached)


def _sequence(
    model: TextModel,
    prompt: list[int],
    index: int,
    request: Generation,
    fields: dict[str, Any],
    job: Job,
) -> Generator[Piece, None, Usage]:
    """Yields the pieces of a sequence. Returns its counts."""
    tokenizer, eos = model.pipe.tokenizer, set(model.config.eos_token_ids)
    text, stop = Detokenizer(tokenizer, prompt), StopText(request.stop)
    scores = None if request.logprobs is None else Scores(tokenizer, request.logprobs)
    found: list[TokenScore] = []
    count = cached = 0
    reason = ""
    running = steps(
        model.pipe.model,
        prompt,
        model.config,
        signal=job,
        logits_processor=scores,
        tokenizer=tokenizer,
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
                cached = over.value.get("cached_tokens") or 0
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
    yield Piece(index, rest, finish_of(reason, stop.stopped), found)
    return Usage(len(prompt), count, cached)
