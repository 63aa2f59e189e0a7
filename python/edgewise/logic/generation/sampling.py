"""Greedy search and multinomial sampling: transformers' _sample."""

from __future__ import annotations

from typing import Any

from .requests import Logits, Loop, Step
from .run import FinishReason, Recorded, Run


class Sampling(Run):
    """Generates num_return_sequences sequences, one after the other."""

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
        self.guess()
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
                logits = yield from self.following(sequence, ids)
        self.cut(sequence, ids)
        self.current = []
        self.made = ids
        self.output.sequences.append(ids)
        self.output.finish_reasons.append(reason)

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
