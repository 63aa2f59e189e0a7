"""Greedy search and multinomial sampling: transformers' _sample."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from .results import Tokens
from .run import Generation, Recorded
from .shortlist import Candidates, Shortlist


class Sampling(Generation):
    """Generates num_return_sequences sequences, one after the other."""

    shortlist: Shortlist | None = None

    def allocate(self) -> None:
        """Takes the engine memory of the run."""
        super().allocate()
        whole = self.config.output_scores or self.config.output_logits or self.host.processors
        asked = whole or self.host.criteria or hasattr(self.decoder, "scored")
        if self.lock is not None and getattr(self.decoder, "chooses", False) and not asked:
            if Shortlist.suffices(self.members):
                self.shortlist = Shortlist(self.members, self.engine, self.work)

    def compute(self, sequence: Any, ids: list[int]) -> Any:
        """As Generation.compute, or, where they suffice, the highest logits: Candidates."""
        if self.shortlist is None or self.lock is None:
            return super().compute(sequence, ids)
        enough = None if self.shortlist.greedy else self.shortlist.holds
        with self.lock, self.stoppable():
            best: Any = self.decoder  # with `forward_best`, since it `chooses`
            found = best.forward_best(sequence, ids, enough, self.reason)
            if isinstance(found, int):
                self.engine.copy(found, self.logits, 4 * self.decoder.vocab_size)
                return self.logits
            return found

    def loop(self) -> Iterator[int | None]:
        """Yields each token."""
        n, decoder, streamer = self.config.num_return_sequences, self.decoder, self.host.streamer
        prompt_cache = self.open_sequence()
        logits = yield from self.prefill(prompt_cache)
        if n > 1 and isinstance(
            logits, int
        ):  # keep these: each sequence draws its first token from them
            logits = self.alloc(
                4 * decoder.vocab_size, self.engine.read(logits, 4 * decoder.vocab_size)
            )
        sequence = prompt_cache if n == 1 else self.open_sequence()
        if streamer is not None:
            streamer.put(Tokens(self.prompt))
        recorded: list[list[Recorded]] = []
        for i in range(n):
            if n > 1:
                decoder.copy(prompt_cache, sequence)
            self.seed_stream(self.stream + i)
            record: list[Recorded] = []
            recorded.append(record)
            yield from self._sequence(sequence, logits, record)
        self.record(
            [
                [record[step] if step < len(record) else (None, None) for record in recorded]
                for step in range(max(map(len, recorded)))
            ]
        )
        if streamer is not None:
            streamer.end()

    def _sequence(
        self, sequence: Any, logits: Any, record: list[Recorded]
    ) -> Generator[int, None, None]:
        """One sequence after the prompt. logits: those after the prompt."""
        eos, streamer = set(self.config.eos_token_ids), self.host.streamer
        scored = getattr(self.decoder, "scored", None)
        ids = list(self.prompt)
        self.current = [ids]
        while True:
            self.check_abort([ids])
            self.length = len(ids)
            raw = (
                self.floats(logits)
                if self.config.output_logits and isinstance(logits, int)
                else None
            )
            token = self._next(ids, logits)
            if scored is not None:
                scored(self.work, token)
            record.append((self.floats(self.work) if self.config.output_scores else None, raw))
            self.write_ids(len(ids), [token])
            ids.append(token)
            if streamer is not None:
                streamer.put(Tokens([token]))
            yield token
            reason = (
                "eos"
                if token in eos
                else "length"
                if len(ids) >= self.limit
                else self.ended_by_host(ids)
            )
            if reason:
                break
            logits = self.forward(sequence, ids)
        self.result["sequences"].append(ids)
        self.result["finish_reasons"].append(reason)

    def _next(self, ids: list[int], logits: Any) -> int:
        """Chooses a token."""
        if not isinstance(logits, int):
            return self._of_shortlist(logits)
        if self.shortlist is not None:
            self.shortlist.cleared = False
        if self.host.processors:
            self.process(self.ids, lambda: list(ids), logits)
            return self.checked("ew_sampling_pick", self.params, self.work, self.rng)
        return self.checked(
            "ew_sampling_next",
            self.params,
            self.lists,
            self.ids,
            len(ids),
            logits,
            self.work,
            self.rng,
        )

    def _of_shortlist(self, found: Candidates) -> int:
        """Chooses one of the highest logits."""
        assert self.shortlist is not None
        if self.shortlist.greedy:
            return found[0][0]
        self.shortlist.write(found)
        try:
            return self.checked("ew_sampling_pick", self.params, self.work, self.rng)
        finally:
            self.shortlist.clear(found)
