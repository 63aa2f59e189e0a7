"""Boxes of objects from the outputs of detectors. Mirrors post_process_object_detection of
transformers' image processors, and ultralytics' non_max_suppression.

A detection is (score, class, (xmin, ymin, xmax, ymax)), in pixels of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .classification import sigmoid, softmax

__all__ = ["Detection", "focal", "non_max_suppression", "set_prediction", "yolo"]

Box = tuple[float, float, float, float]
Detection = tuple[float, int, Box]


def corners(box: Sequence[float], height: float, width: float) -> Box:
    """A box in pixels. box: center x, center y, width and height, as parts of the picture."""
    x, y, w, h = box
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
    found = []
    for q in range(len(boxes) // 4):
        scores = softmax(logits[q * classes : (q + 1) * classes])[:-1]
        best = max(scores)
        if best > threshold:
            box = corners(boxes[4 * q : 4 * q + 4], height, width)
            found.append((best, scores.index(best), box))
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
    top = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:count]
    found = []
    for i, score in zip(top, sigmoid([logits[i] for i in top])):
        if score > threshold:
            q = i // classes
            found.append((score, i % classes, corners(boxes[4 * q : 4 * q + 4], height, width)))
    return found


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
    rows = [output[i * anchors : (i + 1) * anchors] for i in range(len(output) // anchors)]
    best = [max(column) for column in zip(*rows[4:])]
    found: list[Detection] = []
    for a, score in enumerate(best):
        if score > threshold:
            x, y, w, h = (rows[i][a] for i in range(4))
            box = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
            label = next(c for c in range(len(rows) - 4) if rows[4 + c][a] == score)
            found.append((score, label, box))
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


def named_box(box: Box, height: int, width: int, percentage: bool) -> dict[str, float]:
    """{"xmin", "ymin", "xmax", "ymax"} in whole pixels, as transformers gives them; with
    `percentage` as parts of the picture.
    """
    sizes = (width, height, width, height)
    names = ("xmin", "ymin", "xmax", "ymax")
    if percentage:
        return {name: x / size for name, x, size in zip(names, box, sizes)}
    return {name: math.trunc(x) for name, x in zip(names, box)}
