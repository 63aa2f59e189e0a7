"""What the computing thread does for a request for text."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator
from typing import Any

from ...host.text.generate import steps
from ...host.text.tools import answers_to, chat_prompt
from ...logic.openai.answers import Event, Parts, Piece, TokenScore, Usage, finish_of
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
            request.tools,
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
) -> Iterator[Event]:
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
        sequence = _sequence if request.tools is None else _with_tools
        counts = yield from sequence(model, ids, index, request, fields, job)
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
) -> Generator[Event, None, Usage]:
    """Yields the pieces of a sequence. Returns its counts."""
    text, stop = Detokenizer(model.pipe.tokenizer, prompt), StopText(request.stop)
    run = _Run(model, prompt, request, job)
    for token in run.tokens(fields, lambda: stop.stopped):
        if piece := stop.push(text.push(token)):
            yield Piece(index, piece, None, run.scores())
    rest = "" if stop.stopped else stop.push(text.end()) + stop.end()
    yield Piece(index, rest, finish_of(run.reason, stop.stopped), run.scores())
    return Usage(len(prompt), run.count, run.cached)


def _with_tools(
    model: TextModel,
    prompt: list[int],
    index: int,
    request: Generation,
    fields: dict[str, Any],
    job: Job,
) -> Generator[Event, None, Usage]:
    """Yields the parts of a sequence of a chat with tools. Returns its counts."""
    answers = answers_to(model.pipe.tokenizer, request.tools or [], request.prompts[0], prompt)
    form = answers.format(request.wanted, request.parallel, fields.get("response_format"))
    parts, run = Parts(index, request.stop), _Run(model, prompt, request, job)
    deltas: list[dict[str, Any]] = []
    text = answers.streamer(deltas.append)
    text.put(prompt)
    shape = {} if form is None else {"response_format": form}
    for token in run.tokens({**fields, **shape}, lambda: parts.stop.stopped):
        text.put([token])
        for delta in deltas:
            yield from parts.push(delta, run.scores())
        deltas.clear()
    text.end()
    for delta in deltas:
        yield from parts.push(delta, run.scores())
    yield parts.end(run.reason, run.scores())
    return Usage(len(prompt), run.count, run.cached)


class _Run:
    """A run of a model.

    Attributes:
        count: tokens so far. reason: why it ended. cached: tokens of the prompt that were kept.
    """

    def __init__(self, model: TextModel, prompt: list[int], request: Generation, job: Job) -> None:
        self.model, self.prompt, self.job = model, prompt, job
        self.count = self.cached = 0
        self.reason = ""
        most = request.logprobs
        self._scores = None if most is None else Scores(model.pipe.tokenizer, most)
        self._found: list[TokenScore] = []

    def scores(self) -> list[TokenScore]:
        """The scores of the tokens since the last call."""
        found, self._found = self._found, []
        return found

    def tokens(self, fields: dict[str, Any], stopped: Callable[[], bool]) -> Iterator[int]:
        """Yields new tokens but those that end a text. stopped: whether no more are wanted."""
        eos = set(self.model.config.eos_token_ids)
        running = steps(
            self.model.pipe.model,
            self.prompt,
            self.model.config,
            signal=self.job,
            logits_processor=self._scores,
            tokenizer=self.model.pipe.tokenizer,
            cache=True,
            assistant_model=self.model.pipe.assistant_model,
            return_dict_in_generate=True,
            **fields,
        )
        try:
            while not stopped():
                try:
                    token = next(running)
                except StopIteration as over:
                    self.reason = over.value["finish_reasons"][0]
                    self.cached = over.value.get("cached_tokens") or 0
                    return
                if token is None:  # between pieces of the prompt
                    continue
                self.count += 1
                if token in eos:
                    continue
                if self._scores is not None:
                    self._found.append(self._scores.of(token))
                yield token
        finally:
            running.close()
