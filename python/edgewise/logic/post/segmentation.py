"""Segments of a picture from queries with masks. Mirrors post_process_panoptic_segmentation and
post_process_instance_segmentation of transformers' image processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from .classification import softmax


class Segment(TypedDict):
    """A segment of a picture.

    Attributes:
        id: its number in the map of pixels.
        label_id: its class.
        was_fused: whether it is all segments of its class.
        score: of its query, with 6 decimals.
    """

    id: int
    label_id: int
    was_fused: bool
    score: float


def choose_queries(
    logits: Sequence[float], classes: int, threshold: float
) -> tuple[list[int], list[float], list[int]]:
    """The queries that show something.

    Args:
        logits: [queries, classes]; the last class is "no object".
        classes: with "no object".
        threshold: scores above it are kept.

    Returns:
        (queries, their scores, their classes)
    """
    queries: list[int] = []
    kept: list[float] = []
    labels: list[int] = []
    if classes < 2:
        return queries, kept, labels
    for q in range(len(logits) // classes):
        scores = softmax(logits[q * classes : (q + 1) * classes])
        best = max(scores)
        label = scores.index(best)
        if label != classes - 1 and best > threshold:
            queries.append(q)
            kept.append(best)
            labels.append(label)
    return queries, kept, labels


def choose_instances(
    logits: Sequence[float], classes: int, each: bool, threshold: float
) -> tuple[list[int], list[float], list[int]]:
    """The instances that queries may show, in the order in which they are painted.

    Args:
        logits: [queries, classes]; the last class is "no object".
        classes: with "no object".
        each: whether each query is one instance (EoMT). Else they are the pairs of queries and
            classes with the highest scores, the highest first, as many as there are queries.
        threshold: of scores; `instance_score` is never above that of the class.

    Returns:
        as choose_queries
    """
    found: list[tuple[float, int, int]] = []
    count = len(logits) // classes if classes > 1 else 0
    for q in range(count):
        scores = softmax(logits[q * classes : (q + 1) * classes])
        scores = scores[: classes - 1]
        if each:
            best = max(scores)
            found.append((best, q, scores.index(best)))
        else:
            for label, score in enumerate(scores):
                found.append((score, q, label))
    if not each:
        found = sorted(found, key=lambda one: -one[0])[:count]
    kept = [one for one in found if one[0] >= threshold]
    return [one[1] for one in kept], [one[0] for one in kept], [one[2] for one in kept]


def instance_score(score: float, inside: float, pixels: float) -> float:
    """The score of an instance: that of its class times the mean probability in its mask.

    Args:
        score: of the class.
        inside: sum of the probabilities of the mask's pixels, those above one half.
        pixels: how many they are.
    """
    return score * (inside / (pixels + 1e-6))


def instance(number: int, label: int, score: float) -> Segment:
    """An instance as a segment."""
    return {"id": number, "label_id": label, "was_fused": False, "score": round(score, 6)}


def segments(
    scores: Sequence[float],
    labels: Sequence[int],
    areas: Sequence[int],
    whole_areas: Sequence[int],
    overlap: float,
    fused: Sequence[int] = (),
) -> tuple[list[int], list[Segment]]:
    """The segments of a picture.

    Args:
        scores, labels: of the queries, as from choose_queries.
        areas: pixels where the query's mask is the strongest.
        whole_areas: pixels where the query's mask reaches the threshold of masks.
        overlap: a query with a smaller part of its whole area is left out.
        fused: classes whose segments become one.

    Returns:
        ([the number of the segment of each query; 0: none], the segments)
    """
    numbers: list[int] = []
    found: list[Segment] = []
    number_of: dict[int, int] = {}  # of classes whose segments become one
    for score, label, area, whole in zip(scores, labels, areas, whole_areas):
        if not area or not whole or not area / whole > overlap:
            numbers.append(0)
            continue
        if label in number_of:
            numbers.append(number_of[label])
            continue
        numbers.append(len(found) + 1)
        if label in fused:
            number_of[label] = numbers[-1]
        found.append(
            {
                "id": numbers[-1],
                "label_id": label,
                "was_fused": label in fused,
                "score": round(score, 6),
            }
        )
    return numbers, found
