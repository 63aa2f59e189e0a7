"""Times of tokens from weights of attention: dynamic time warping. Mirrors openai/whisper's
timing.py and transformers' `_extract_token_timestamps`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

TIME_PRECISION = 0.02  # seconds of a position of Whisper's encoder


def dynamic_time_warping(cost: Sequence[Sequence[float]]) -> tuple[list[int], list[int]]:
    """The path of least cost from the first to the last element of a matrix.

    Args:
        cost: [rows][columns], at least one of each.

    Returns:
        (rows, columns) of the path's elements. Sums are float32, as in the mirrored code, so that
        ties are decided alike.
    """
    columns = len(cost[0])
    above = array("f", [math.inf]) * (columns + 1)
    above[0] = 0.0
    traces = []
    for row in cost:
        here, trace = array("f", [math.inf]) * (columns + 1), bytearray(columns + 1)
        diagonal, left = above[0], math.inf
        for j in range(1, columns + 1):
            up = above[j]
            if diagonal < up and diagonal < left:
                least, step = diagonal, 0
            elif up < diagonal and up < left:
                least, step = up, 1
            else:
                least, step = left, 2
            here[j] = row[j - 1] + least
            left, diagonal, trace[j] = here[j], up, step
        traces.append(trace)
        above = here
    i, j = len(cost), columns
    rows, places = [], []
    while i > 0 or j > 0:
        rows.append(i - 1)
        places.append(j - 1)
        step = 2 if i == 0 else 1 if j == 0 else traces[i - 1][j]
        i -= step != 2
        j -= step != 1
    return rows[::-1], places[::-1]


def token_times(
    weights: Sequence[Sequence[float]], precision: float = TIME_PRECISION
) -> list[float]:
    """When each token is spoken.

    Args:
        weights: [tokens][positions] of attention; higher is likelier.
        precision: seconds of a position.

    Returns:
        for each token the position at which the path reaches it, in seconds.
    """
    rows, places = dynamic_time_warping([[-x for x in row] for row in weights])
    times: list[float] = []
    for row, place in zip(rows, places):
        if row == len(times):
            times.append(place * precision)
    return times
