"""Tokens that a smaller model with the same vocabulary guesses: transformers' `assistant_model`
(Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023).

The larger model reads the guesses in one run and chooses each token from its own logits, by the
rules of the call and with the same random numbers as without. The smaller model draws its guesses
with these numbers too, so that both draw the same token wherever their distributions agree. So a
text is that without guesses, and no guess has to be corrected by another distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import InputError
from ..native import written
from .requests import Host, Logits, Loop, Steps
from .run import Output, Run, Task, log_probability
from .speculation import FEW, Pace, mean_of

TokenOf = Callable[[int], str | None]
"""f(id): the token; None or "" if there is none."""


def check_tokenizers(token_of: TokenOf, other: TokenOf, size: int, other_size: int) -> None:
    """Raises InputError if two models have other tokens, or vocabularies of other sizes.

    Args:
        token_of: of the larger model.
        other: of the smaller one.
        size, other_size: of their vocabularies, as many as there are logits.
    """
    for i in range(max(size, other_size)):
        mine, given = token_of(i) or "", other(i) or ""
        if mine != given:
            raise InputError(
                f"the assistant_model has another tokenizer: its token {i} is {written(given)}, and"
                f" that of the model is {written(mine)}",
                "pipeline",
                "Give a smaller model of the same family.",
            )
    if size != other_size:
        raise InputError(
            f"the assistant_model has the same tokens, but its vocabulary is padded to {other_size}"
            f" entries, and that of the model to {size}",
            "pipeline",
            "Give a smaller model of the same family with as many logits.",
        )


class Draft(Run):
    """Guesses of a smaller model. The host is that of the smaller model.

    Args:
        host: of the smaller model. Aborts are those of the larger model's run.
        task: of the larger model.
        target: what the larger model measured.
    """

    def __init__(self, host: Host, task: Task, target: Pace) -> None:
        super().__init__(host, task, Output([], []))
        self.drafts = True
        self.target, self.pace = target, host.pace.drafts
        self.most: int = self.config.get("num_assistant_tokens")
        self.threshold: float = self.config.get("assistant_confidence_threshold")
        self.ends = set(self.config.eos_token_ids)
        self.sequence: Any = None
        self.held: list[int] = []  # tokens of the sequence
        self.agreed = 0  # of which the first so many are those of the text
        self.round = (
            0  # tokens of the text before the guesses that are being read; 0: there are none
        )
        self.start = 0.0

    def begins(self) -> None:
        """Tells that another text follows the prompt."""
        self.agreed, self.round = min(self.read, len(self.held)), 0
        if len(self.held) >= len(self.prompt):
            self.agreed = len(self.prompt)
        self.start = self.host.now()

    def closed(self, ids: list[int]) -> None:
        """Tells of a complete text."""
        self.made = ids
        self.pace.time += self.host.now() - self.start
        self.pace.length = mean_of(self.pace.length, float(len(ids) - len(self.prompt)))

    def over(self, ids: list[int]) -> None:
        """Tells that the last of `ids` was chosen, and what follows it was not guessed."""
        if self.round:
            self.pace.over(self.target, len(ids) - self.round)
        self.round = 0
        now = self.host.now()
        self.pace.time += now - self.start
        self.start = now

    def guess(self, ids: list[int], room: int, random: bytes) -> Steps[list[int]]:
        """Tokens that may follow; none: they would not save time.

        Args:
            ids: of the text.
            room: tokens that may be read.
            random: the state of the random numbers with which the next token is drawn.
        """
        count = min(self.most, room, self.host.max_length - len(ids))
        if count < 1:
            return []
        if self.sequence is None:
            self.allocate()
            self.sequence = self.begin()
        if self.pace.guessing == 0.0:
            yield from self._measure()
        behind = len(ids) - max(self.read, self.agreed)
        if not self.pace.allows(self.target, behind):
            return []
        start = self.host.now()
        logits = yield from self._read_text(ids)
        if behind > FEW:
            now = self.host.now()
            self.pace.read(behind, now - start)
            start = now
        self.engine.write(self.rng, random)
        text = list(ids)
        while True:
            token = self._draw(text, logits)
            text.append(token)
            if len(text) - len(ids) == count or token in self.ends or self._doubts(token):
                break
            self.write_ids(len(text) - 1, [token])
            logits = yield from self.compute(self.sequence, [token], 1)
            self.held.append(token)
        self.pace.guessing = mean_of(self.pace.guessing, self.host.now() - start)
        self.round = len(ids)
        return text[len(ids) :]

    def _measure(self) -> Loop:
        """Measures a run of a token, which tells whether guesses can save time at all. The first
        one brings the weights to memory.
        """
        seconds = 0.0
        for _ in range(2):
            start = self.host.now()
            yield from self.compute(self.sequence, self.prompt[:1], 1)
            seconds = self.host.now() - start
            self.host.truncate(self.sequence, self.read)
        self.pace.began(seconds)

    def _read_text(self, ids: list[int]) -> Steps[Logits]:
        """The logits after a text. What the sequence holds besides is removed."""
        if not self.held:
            yield from self.prefill(self.sequence)
            self.held, self.agreed = list(self.prompt), len(self.prompt)
        same, most = self.agreed, min(len(self.held), len(ids) - 1)
        while same < most and self.held[same] == ids[same]:
            same += 1
        same = min(same, most)
        if same < len(self.held):
            self.host.truncate(self.sequence, same)
        self.held = list(ids)
        self.agreed = len(ids)
        self.write_ids(same, ids[same:])
        return (yield from self.compute(self.sequence, ids[same:], 1))

    def _draw(self, ids: Sequence[int], logits: Any) -> int:
        """The token after `ids`."""
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

    def _doubts(self, token: int) -> bool:
        """Whether a token that was drawn is so unlikely that the next ones are not guessed."""
        if self.threshold <= 0:
            return False
        vocab_size = self.host.vocab_size
        found = log_probability(self.engine, vocab_size, self.work, token, 1.0)
        return found < math.log(self.threshold)
