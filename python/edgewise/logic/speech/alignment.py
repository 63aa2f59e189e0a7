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
    for costs in cost:
        here, trace = array("f", [math.inf]) * (columns + 1), bytearray(columns + 1)
        diagonal, left = above[0], math.inf
        for j in range(columns):
            up = above[j + 1]
            least, step = left, 2
            if diagonal < up and diagonal < left:
                least, step = diagonal, 0
            elif up < diagonal and up < left:
                least, step = up, 1
            here[j + 1] = costs[j] + least
            trace[j + 1] = step
            left = here[j + 1]
            diagonal = up
        traces.append(trace)
        above = here
    row, column = len(cost), columns
    rows, places = [], []
    while row > 0 or column > 0:
        rows.append(row - 1)
        places.append(column - 1)
        step = 2 if row == 0 else 1 if column == 0 else traces[row - 1][column]
        if step != 2:
            row -= 1
        if step != 1:
            column -= 1
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
    rows, places = dynamic_time_warping([[-x for x in position] for position in weights])
    times: list[float] = []
    for row, place in zip(rows, places):
        if row == len(times):
            times.append(place * precision)
    return times
