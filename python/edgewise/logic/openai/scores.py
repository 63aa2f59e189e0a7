"""Log-probabilities of tokens."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

from .answers import Likely, TokenScore


def score_of(
    logits: array[float], token: int, most: int, text_of: Callable[[int], str]
) -> TokenScore:
    """The log-probability of a token, and of the likeliest ones.

    Args:
        logits: float32 [vocab_size], of which it was chosen.
        token: its id.
        most: how many of the likeliest.
        text_of: the text of a token.
    """
    high = max(logits)
    total = 0.0
    for x in logits:
        total += math.exp(x - high)
    whole = high + math.log(total)
    best: list[int] = []
    for i in range(len(logits)):
        if len(best) == most and (most == 0 or logits[i] <= logits[best[-1]]):
            continue
        at = len(best)
        while at > 0 and logits[best[at - 1]] < logits[i]:
            at -= 1
        best.insert(at, i)
        if len(best) > most:
            best.pop()
    top = [Likely(text_of(i), logits[i] - whole) for i in best]
    return TokenScore(text_of(token), logits[token] - whole, top)
