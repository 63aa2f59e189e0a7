"""Embeddings from the states of tokens. Mirrors sentence-transformers' Pooling and Normalize, and
quantize_embeddings of transformers.js.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import InputError

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "last_token")
"""Ways of pooling, in the order in which several are joined."""
ALIASES = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "last_token",
    "first_token": "cls",
    "eos": "last_token",
}
PRECISIONS = ("float32", "binary", "ubinary")
MIN_SUM = 1e-9
MIN_NORM = 1e-12


def check_pooling(pooling: object) -> str:
    """The name in POOLINGS of a way of pooling, or "none". Raises InputError."""
    name = ALIASES.get(pooling, pooling) if isinstance(pooling, str) else None
    if name is None or (name != "none" and name not in POOLINGS):
        raise InputError(
            f"{pooling!r} is not a way of pooling",
            "pooling",
            f"Use none, {', '.join(POOLINGS)} or one of {', '.join(ALIASES)}.",
        )
    return name


def pool(states: Sequence[float], size: int, mask: Sequence[int], pooling: str) -> list[float]:
    """One vector of a text.

    Args:
        states: [tokens, size], flat.
        size: of a vector.
        mask: 1 for each token that counts.
        pooling: one of POOLINGS.

    Returns:
        [size]
    """
    count = len(mask)
    ones = [i for i, m in enumerate(mask) if m]
    if pooling in ("cls", "last_token"):
        at = (ones[0] if pooling == "cls" else ones[-1]) if ones else 0
        return list(states[at * size : (at + 1) * size])
    columns = [states[j : count * size : size] for j in range(size)]
    if pooling == "max":
        return [max([c[i] for i in ones], default=-1e9) for c in columns]
    weights = [float(m * (i + 1) if pooling == "weightedmean" else m) for i, m in enumerate(mask)]
    total = max(sum(weights), MIN_SUM)
    divisor = math.sqrt(total) if pooling == "mean_sqrt_len" else total
    if all(w == 1.0 for w in weights):
        return [sum(c) / divisor for c in columns]
    return [sum(c[i] * weights[i] for i in ones) / divisor for c in columns]


def normalized(vector: Sequence[float]) -> list[float]:
    """A vector of length 1; one of length 0 stays."""
    norm = max(math.sqrt(sum(x * x for x in vector)), MIN_NORM)
    return [x / norm for x in vector]


def shortened(vector: Sequence[float], dimensions: int | None) -> list[float]:
    """The first numbers of a vector. Raises InputError if it has fewer."""
    if dimensions is None:
        return list(vector)
    if type(dimensions) is not int or not 1 <= dimensions <= len(vector):
        raise InputError(
            f"{dimensions!r} is not between 1 and {len(vector)}",
            "dimensions",
            "Give at most the dimensions that the model has.",
        )
    return list(vector[:dimensions])


def packed(vector: Sequence[float], precision: str) -> list[int]:
    """The signs of a vector, eight to a byte, the first in the highest bit.

    Args:
        vector: its length is a multiple of 8.
        precision: "ubinary": bytes of 0 to 255; "binary": the same less 128.

    Raises:
        InputError: the length is no multiple of 8.
    """
    if len(vector) % 8:
        raise InputError(
            f"{len(vector)} dimensions are no multiple of 8", "precision", "Set dimensions."
        )
    less = 128 if precision == "binary" else 0
    return [
        sum((vector[i + bit] > 0) << (7 - bit) for bit in range(8)) - less
        for i in range(0, len(vector), 8)
    ]
