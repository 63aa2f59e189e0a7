"""Segments of a picture from queries with masks. Mirrors post_process_panoptic_segmentation and
post_process_instance_segmentation of transformers' image processors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ....logic.post.classification import softmax

__all__ = ["choose_queries", "segments"]


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
    queries, kept, labels = [], [], []
    for q in range(len(logits) // classes):
        scores = softmax(logits[q * classes : (q + 1) * classes])
        best = max(scores)
        label = scores.index(best)
        if label != classes - 1 and best > threshold:
            queries.append(q)
            kept.append(best)
            labels.append(label)
    return queries, kept, labels


def segments(
    scores: Sequence[float],
    labels: Sequence[int],
    areas: Sequence[int],
    whole_areas: Sequence[int],
    overlap: float,
    fused: Collection[int] = (),
) -> tuple[list[int], list[dict[str, Any]]]:
    """The segments of a picture.

    Args:
        scores, labels: of the queries, as from choose_queries.
        areas: pixels where the query's mask is the strongest.
        whole_areas: pixels where the query's mask reaches the threshold of masks.
        overlap: a query with a smaller part of its whole area is left out.
        fused: classes whose segments become one.

    Returns:
        ([the number of the segment of each query; 0: none], [{"id", "label_id", "was_fused",
        "score"}])
    """
    numbers: list[int] = []
    found: list[dict[str, Any]] = []
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
        segment = {"id": numbers[-1], "label_id": label, "was_fused": label in fused}
        found.append({**segment, "score": round(score, 6)})
    return numbers, found
