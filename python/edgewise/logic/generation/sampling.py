"""Greedy search and multinomial sampling: transformers' _sample."""

from __future__ import annotations

from typing import Any

from .draft import Draft
from .requests import Host, Logits, Loop, Step, Steps, Verify
from .run import FinishReason, Output, Recorded, Run, Task
from .speculation import Ahead, Speculation, speculation_of

RANDOM_BYTES = 16
"""Of the state of random numbers in the engine."""


class Sampling(Run):
    """Generates num_return_sequences sequences, one after the other."""

    def __init__(self, host: Host, task: Task, output: Output) -> None:
        super().__init__(host, task, output)
        self.ahead: Ahead = None
        self.draft: Draft | None = None

    def steps(self) -> Loop:
        """Adds the sequences to the output."""
        self.allocate(True)
        host, vocab = self.host, self.host.vocab_size
        count: int = self.config.get("num_return_sequences")
        first = self.begin()
        logits: Logits = yield from self.prefill(first)
        if count > 1 and isinstance(logits, int):
            # the first token of each sequence is drawn from these, and the next answer ends them
            logits = self.alloc(4 * vocab, self.engine.read(logits, 4 * vocab))
        sequence = first if count == 1 else self.open()
        if host.streams:
            host.put(list(self.prompt))
        records: list[list[Recorded]] = []
        for i in range(count):
            if count > 1:
                host.copy(first, sequence)
            self.seed_random(i)
            record: list[Recorded] = []
            records.append(record)
            yield from self._sequence(sequence, logits, record)
        longest = max([len(record) for record in records])
        none = Recorded(None, None)
        self.record(
            [[record[i] if i < len(record) else none for record in records] for i in range(longest)]
        )
        if host.streams:
            host.end()

    def _sequence(self, sequence: Any, first: Logits, record: list[Recorded]) -> Loop:
        """One sequence after the prompt. first: the logits after the prompt."""
        host, limit, eos = self.host, self.task.limit, set(self.config.eos_token_ids)
        records = self.output_scores or self.output_logits
        ids, logits = list(self.prompt), first
        self.current = [ids]
        self._begin_guesses()
        reason: FinishReason | None = None
        constraint = self.constraint
        place: Any = None if constraint is None else constraint.first()
        while reason is None:
            self.check_abort()
            token = self._next(ids, logits, place)
            if token < 0:
                reason = "eos"
                break
            if host.scores:
                host.scored(self.work, token)
            if records:
                record.append(self.recorded(logits))
            self.write_ids(len(ids), [token])
            ids.append(token)
            if host.streams:
                host.put([token])
            yield Step(token)
            if token in eos:
                reason = "eos"
            elif len(ids) >= limit:
                reason = "length"
            else:
                reason = self.ended(ids)
            if reason is None:
                if constraint is not None:
                    place = constraint.after(place, token)
                logits = yield from self._following(sequence, ids)
        self._cut(sequence, ids)
        if self.draft is not None:
            self.draft.closed(ids)
        self.current = []
        self.made = ids
        self.output.sequences.append(ids)
        self.output.finish_reasons.append(reason)

    def _begin_guesses(self) -> None:
        """From the next sequence on, `_following` may read tokens ahead."""
        host, row = self.host, 4 * self.host.vocab_size
        verified = host.verified if self.cached and self.choosing is None else 0
        assistant = host.assistant if verified > 1 else None
        self.ahead = speculation_of(host.pace, self.config, verified, row, assistant is not None)
        if self.draft is None and assistant is not None:
            self.draft = Draft(assistant, self.task, host.pace)
            self.others.append(self.draft)
        if self.draft is not None:
            self.draft.begins()

    def _following(self, sequence: Any, ids: list[int]) -> Steps[Logits]:
        """As `forward`, but may read tokens ahead that are likely to be chosen next."""
        ahead, host = self.ahead, self.host
        if ahead is None:
            return (yield from self.forward(sequence, ids))
        known = ahead.chosen(ids[-1])
        if known:
            return known
        self._cut(sequence, ids)
        guesses = yield from self._guess(ahead, ids)
        start = host.now()
        if not guesses:
            logits = yield from self.forward(sequence, ids)
            host.pace.ran(host.now() - start)
            return logits
        self.check_abort()
        try:
            address: int = yield Verify(sequence, [ids[-1], *guesses])
        except Exception:
            self.check_abort()
            raise
        host.pace.verified(host.now() - start)
        ahead.read(guesses, address)
        return address

    def _guess(self, ahead: Speculation, ids: list[int]) -> Steps[list[int]]:
        """Tokens to read after `ids`: those of the text or, where these save no time, those of the
        smaller model.
        """
        draft, host = self.draft, self.host
        room = self.task.limit - len(ids) - 1
        if len(ids) - 1 + host.verified > host.max_length:
            room = 0
        guesses = ahead.guess(ids, room)
        if draft is None:
            return guesses
        draft.over(ids)
        if guesses:
            return guesses
        try:
            return (
                yield from draft.guess(
                    ids, min(room, host.verified - 1), self.engine.read(self.rng, RANDOM_BYTES)
                )
            )
        except Exception:
            self.check_abort()
            raise

    def _cut(self, sequence: Any, ids: list[int]) -> None:
        """Removes tokens that were read ahead and not chosen. All but the last of `ids` are in the
        sequence.
        """
        if self.ahead is not None and self.ahead.left():
            self.host.truncate(sequence, len(ids) - 1)

    def _next(self, ids: list[int], logits: Logits, place: Any) -> int:
        """Chooses the token after `ids`, which are at a place in the format. -1: the format is
        complete, and no token says so.
        """
        if not isinstance(logits, int):
            return logits(lambda: self._pick())
        if self.host.processors or self.constraint is not None:
            self.process(self.ids_at, len(ids), lambda: list(ids), logits)
            over = self.constrain(place)
            return -1 if over and not self.config.eos_token_ids else self._pick()
        return self.call(
            "ew_sampling_next",
            self.params,
            self.lists,
            self.ids_at,
            len(ids),
            logits,
            self.work,
            self.rng,
        )

    def _pick(self) -> int:
        """A token, drawn from the scores."""
        return self.call("ew_sampling_pick", self.params, self.work, self.rng)
