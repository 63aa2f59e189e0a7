"""When the highest logits alone decide which token is chosen, so that a device which finds them
need not give all.

The tokens are those of all logits: core/sampling sees the same candidates in the same order, and
where they might differ, as with ties at the limit of top_k, all logits are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..native import f32

HIGHEST = 256
"""How many logits a device finds."""

_LARGEST = 3.4028234663852886e38  # FLT_MAX
# Members of ew_sampling with which ew_sampling_process leaves the logits as they are: the value of
# each.
_NEUTRAL = {
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


def suffices(members: Mapping[str, Any]) -> bool:
    """Whether the highest logits decide which token is chosen. members: of ew_sampling."""
    for name, neutral in _NEUTRAL.items():
        if members[name] != neutral:
            return False
    return members["do_sample"] == 0 or 0 < members["top_k"] < HIGHEST


def holds(members: Mapping[str, Any], logits: Sequence[float]) -> bool:
    """Whether all that top_k keeps is among the highest logits: equal scores are all kept.

    Args:
        members: of ew_sampling.
        logits: the highest ones, in descending order.
    """
    if len(logits) == members["vocab_size"]:
        return True
    top_k: int = members["top_k"]
    temperature = f32(members["temperature"])
    return _scaled(logits[-1], temperature) < _scaled(logits[top_k - 1], temperature)


def _scaled(logit: float, temperature: float) -> float:
    """The float32 that core/sampling makes of a logit."""
    return f32(max(-_LARGEST, min(_LARGEST, logit / temperature)))
