"""The results of `generate`, and the ids that streamers receive."""

from __future__ import annotations

from typing import Any


class Tokens(list[int]):
    """Token ids as a list with `.shape` and `.tolist()`, which transformers' streamers use."""

    @property
    def shape(self) -> tuple[int]:
        """(number of ids,), as a NumPy array's."""
        return (len(self),)

    def tolist(self) -> list[int]:
        """A plain list, as a NumPy array's."""
        return list(self)


class GenerateOutput(dict[str, Any]):
    """Result of `generate` with return_dict_in_generate=True. Entries are also attributes.

    Attributes:
        sequences: a list of ids per result, prompt included, prompt by prompt, without padding.
        finish_reasons: one per sequence: "eos", "length", "stop_string", "max_time" or
            "stopping_criteria".
        scores, logits: with output_scores, output_logits: per step a list with an array('f')
            [vocab_size] per sequence (None once it has ended; with beams, one per running beam).
        sequences_scores: with num_beams > 1: sum of log-probabilities / length ** length_penalty.
    """

    __getattr__ = dict.get
