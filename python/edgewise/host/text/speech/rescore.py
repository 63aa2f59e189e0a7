"""Probabilities of tokens that were chosen before: those of beams, whose steps are not kept."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from ..arguments import resolve
from ..results import GenerateOutput
from ..run import Decoder, GenerateCall, Generation


class _Rescoring(Generation):
    """Runs given tokens. Yields the logarithm of the probability of each."""

    tokens: Sequence[int] = ()

    def scores(self) -> Iterator[float]:
        """For each token, given those before it, under the same rules as the search."""
        sequence, x = self.open_sequence(), self.alloc(4)
        ids = list(self.prompt)
        logits = self.compute(sequence, ids)
        for i, token in enumerate(self.tokens):
            self.length = len(ids)
            self.process(self.ids, lambda: list(ids), logits)
            self.checked("ew_sampling_warp", self.params, self.work)
            self.engine.write(x, struct.pack("<f", 1.0))
            vocab = self.decoder.vocab_size
            self.checked("ew_sampling_log_probability", self.work, vocab, token, x)
            yield struct.unpack("<f", bytes(self.engine.read(x, 4)))[0]
            self.write_ids(len(ids), [token])
            ids.append(token)
            if i < len(self.tokens) - 1:
                logits = self.forward(sequence, ids)


def log_probability(
    decoder: Decoder, prompt: list[int], tokens: Sequence[int], fields: dict[str, Any]
) -> float:
    """The sum of the logarithms of the probabilities of tokens.

    Args:
        decoder: computes logits.
        prompt: ids before the tokens.
        tokens: those after the prompt.
        fields: of GenerationConfig that they were chosen with.
    """
    config = resolve(decoder, None, fields)
    limit = len(prompt) + len(tokens)
    if config.max_length is not None and config.max_new_tokens is None:
        limit = max(limit, config.max_length)
    call = GenerateCall(None, None, None, None, [], [])
    result = GenerateOutput(sequences=[], finish_reasons=[])
    run = _Rescoring(decoder, prompt, config, limit, call, 0, 0, result)
    run.tokens = tokens
    try:
        run.allocate()
        return sum(run.scores())
    finally:
        run.free()
