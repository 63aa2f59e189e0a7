"""Boxes of objects from the outputs of detectors. Mirrors post_process_object_detection of
transformers' image processors, and ultralytics' non_max_suppression.

A detection is (score, class, (xmin, ymin, xmax, ymax)), in pixels of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from .classification import sigmoid, softmax

__all__ = ["Detection", "focal", "non_max_suppression", "set_prediction", "yolo"]

Box = tuple[float, float, float, float]
Detection = tuple[float, int, Box]


class NamedBox(TypedDict):
    """A box in whole pixels, or as parts of the picture."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


def corners(boxes: Sequence[float], query: int, height: float, width: float) -> Box:
    """A query's box in pixels. boxes: center x, center y, width and height, as parts of the
    picture.
    """
    x, y, w, h = (boxes[4 * query + i] for i in range(4))
    return (
        (x - 0.5 * w) * width,
        (y - 0.5 * h) * height,
        (x + 0.5 * w) * width,
        (y + 0.5 * h) * height,
    )


def set_prediction(
    logits: Sequence[float],
    boxes: Sequence[float],
    classes: int,
    threshold: float,
    height: int,
    width: int,
) -> list[Detection]:
    """Detections of DETR, YOLOS and Table Transformer: one class of each query, or none.

    Args:
        logits: [queries, classes]; the last class is "no object".
        boxes: [queries, 4], as `corners` takes them.
        classes: with "no object".
        threshold: scores above it are kept.
        height, width: of the picture.

    Returns:
        detections in the order of the queries
    """
    found: list[Detection] = []
    if classes < 2:
        return found
    for q in range(len(boxes) // 4):
        scores = softmax(logits[q * classes : (q + 1) * classes])[:-1]
        best = max(scores)
        if best > threshold:
            found.append((best, scores.index(best), corners(boxes, q, height, width)))
    return found


def focal(
    logits: Sequence[float],
    boxes: Sequence[float],
    classes: int,
    threshold: float,
    height: int,
    width: int,
    most: int | None = None,
) -> list[Detection]:
    """Detections of RT-DETR, D-FINE and Deformable DETR: independent scores of all classes.

    Args:
        logits: [queries, classes].
        boxes, threshold, height, width: as of set_prediction.
        classes: number of classes.
        most: how many scores of all queries and classes are considered; default: as many as there
            are queries.

    Returns:
        detections, the highest score first
    """
    count = len(boxes) // 4 if most is None else min(most, len(logits))
    least = _least_logit(threshold)
    above = [i for i, x in enumerate(logits) if x >= least]
    top = sorted(above, key=lambda i: -logits[i])[:count]
    found = []
    for i, score in zip(top, sigmoid([logits[i] for i in top])):
        if score > threshold:
            found.append((score, i % classes, corners(boxes, i // classes, height, width)))
    return found


def _least_logit(threshold: float) -> float:
    """A little less than the logit of a score, since scores are rounded."""
    if threshold <= 0:
        return -math.inf
    return math.inf if threshold >= 1 else math.log(threshold / (1 - threshold)) - 1e-6


def yolo(
    output: Sequence[float], anchors: int, threshold: float, iou: float, agnostic: bool, most: int
) -> list[Detection]:
    """Detections of YOLO v8 and later, in pixels of the model's input.

    Args:
        output: [4 + classes, anchors]: center x, center y, width, height, and scores.
        anchors: number of boxes.
        threshold: scores above it are kept.
        iou: of two boxes that overlap more, the one with the lower score is left out.
        agnostic: whether boxes of different classes suppress each other.
        most: maximum number of detections.

    Returns:
        detections, the highest score first
    """
    best = [threshold] * anchors
    labels = [-1] * anchors
    for label in range(len(output) // anchors - 4):
        first = (4 + label) * anchors
        for a in range(anchors):
            score = output[first + a]
            if score > best[a]:
                best[a] = score
                labels[a] = label
    found: list[Detection] = []
    for a, label in enumerate(labels):
        if label >= 0:
            x, y, w, h = (output[i * anchors + a] for i in range(4))
            found.append((best[a], label, (x - w / 2, y - h / 2, x + w / 2, y + h / 2)))
    return non_max_suppression(found, iou, agnostic, most)


def non_max_suppression(
    found: Sequence[Detection], iou: float, agnostic: bool, most: int
) -> list[Detection]:
    """Leaves out boxes that overlap one with a higher score. Arguments: as of `yolo`."""
    kept: list[Detection] = []
    for one in sorted(found, key=lambda d: -d[0]):
        if len(kept) == most:
            break
        if all(
            not agnostic and one[1] != other[1] or overlap(one[2], other[2]) <= iou
            for other in kept
        ):
            kept.append(one)
    return kept


def overlap(a: Box, b: Box) -> float:
    """Intersection over union of two boxes."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both
    return both / area if area > 0 else 0.0


def unletterbox(
    found: Sequence[Detection], size: tuple[int, int], height: int, width: int
) -> list[Detection]:
    """Detections in pixels of the picture, from those in a letterboxed one.

    Args:
        found: in pixels of the model's input.
        size: height and width of the model's input.
        height, width: of the picture.
    """
    scale = min(size[0] / height, size[1] / width)
    left = round((size[1] - max(1, round(width * scale))) / 2 - 0.1)
    top = round((size[0] - max(1, round(height * scale))) / 2 - 0.1)

    def back(box: Box) -> Box:
        xs = [min(max((x - left) / scale, 0.0), float(width)) for x in (box[0], box[2])]
        ys = [min(max((y - top) / scale, 0.0), float(height)) for y in (box[1], box[3])]
        return xs[0], ys[0], xs[1], ys[1]

    return [(score, label, back(box)) for score, label, box in found]


def named_box(box: Box, height: int, width: int, percentage: bool) -> NamedBox:
    """In whole pixels, as transformers gives them; with `percentage` as parts of the picture."""
    xmin, ymin, xmax, ymax = box
    if percentage:
        return {
            "xmin": xmin / width,
            "ymin": ymin / height,
            "xmax": xmax / width,
            "ymax": ymax / height,
        }
    return {
        "xmin": math.trunc(xmin),
        "ymin": math.trunc(ymin),
        "xmax": math.trunc(xmax),
        "ymax": math.trunc(ymax),
    }
