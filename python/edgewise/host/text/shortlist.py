"""Sampling from the highest logits alone, where a device finds them and no other one can be chosen.

The tokens are those of all logits: core/sampling sees the same candidates in the same order, and
where they might differ, as with ties at the limit of top_k, all logits are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import HostMemory

Candidates = Sequence[tuple[int, float]]  # (token, logit), highest first

LARGEST = 3.4028234663852886e38  # FLT_MAX
MINUS_INFINITY = struct.pack("<f", float("-inf"))
# Members of ew_sampling with which ew_sampling_process leaves the logits as they are.
NEUTRAL = {
    "min_length": 0,
    "min_new_tokens": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "encoder_no_repeat_ngram_size": 0,
    "timestamp_begin": 0,
    "forced_bos_token_id": -1,
    "remove_invalid_values": 0,
    "exponential_decay_start": -1,
    "num_beams": 1,
    "forced_eos_n": 0,
    "suppress_n": 0,
    "begin_suppress_n": 0,
    "bad_words_n": 0,
    "bias_n": 0,
}


class Shortlist:
    """The highest logits of one generation.

    Args:
        members: of ew_sampling.
        engine, work: the engine, and the address of the scores in its memory.
    """

    def __init__(self, members: Mapping[str, float], engine: HostMemory, work: int) -> None:
        self.engine, self.work = engine, work
        self.vocab = int(members["vocab_size"])
        self.greedy = not members["do_sample"]
        self.top_k = int(members["top_k"])
        (self.temperature,) = struct.unpack("<f", struct.pack("<f", members["temperature"]))
        self.cleared = False  # whether all scores are -infinity

    @staticmethod
    def suffices(members: Mapping[str, float]) -> bool:
        """Whether the highest logits decide which token is chosen."""
        if any(members[name] != value for name, value in NEUTRAL.items()):
            return False
        return not members["do_sample"] or 0 < members["top_k"] < 256

    def holds(self, found: Candidates) -> bool:
        """Whether all that top_k keeps is among the highest logits: equal scores are all kept."""
        if len(found) == self.vocab:
            return True
        return self._scaled(found[-1][1]) < self._scaled(found[self.top_k - 1][1])

    def _scaled(self, logit: float) -> float:
        """The float32 that core/sampling makes of a logit."""
        score = max(-LARGEST, min(LARGEST, logit / self.temperature))
        return float(struct.unpack("<f", struct.pack("<f", score))[0])

    def among(self, found: Candidates, draw: Callable[[], int]) -> int:
        """What `draw` draws, with these scores and -infinity for all other tokens."""
        if self.greedy:
            return found[0][0]
        if not self.cleared:
            self.engine.write(self.work, MINUS_INFINITY * self.vocab)
        self.cleared = True
        for token, logit in found:
            self.engine.write(self.work + 4 * token, struct.pack("<f", logit))
        try:
            return draw()
        finally:
            for token, _ in found:
                self.engine.write(self.work + 4 * token, MINUS_INFINITY)
