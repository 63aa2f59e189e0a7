"""keypoint-detection: options, which outputs are read, and results. Mirrors the image processors of
ViTPose and SuperPoint of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ...errors import InputError
from ..images.geometry import POSE_UNIT, Box, Size, pose_frame
from ..native import f32, listed, option
from ..options import read_count, read_number, refused
from ..post.classification import label_of
from ..post.keypoints import KERNEL, refined
from .inputs import Values, row
from .pictures import wrong_shape

HEATMAPS = "heatmaps"
POINTS = ("keypoints", "scores", "descriptors", "mask")
"""Outputs of models that find any salient points."""
BOXES = "Give [left, top, width, height] of each, or the results of object-detection."


class Corners(TypedDict):
    """A box in pixels."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Pose(TypedDict):
    """The keypoints of one box: (x, y) in pixels, scores and labels."""

    keypoints: list[tuple[float, float]]
    scores: list[float]
    labels: list[str]
    box: Corners


class Points(TypedDict):
    """Salient points of a picture: (x, y) in whole pixels, scores and descriptors."""

    keypoints: list[tuple[int, int]]
    scores: list[float]
    descriptors: list[list[float]]


@dataclass(frozen=True)
class Posing:
    """How keypoints are found.

    Attributes:
        boxes: (left, top, width, height) of each person; None: the whole picture.
        threshold: scores above it are kept; None: all.
        kernel: side of the Gaussian that heatmaps are blurred with.
    """

    boxes: list[Box] | None
    threshold: float | None
    kernel: int


def posing(options: Mapping[str, Any]) -> Posing:
    """The options `boxes`, `threshold` and `kernel_size`. Raises InputError."""
    kernel = read_count(options, "kernel_size")
    given: object = options.get("boxes")
    boxes: list[Box] | None = None
    if given is not None:
        found = listed(given)
        if found is None:
            raise refused("boxes", given, BOXES)
        boxes = [_box(one, i) for i, one in enumerate(found)]
    return Posing(boxes, read_number(options, "threshold"), KERNEL if kernel is None else kernel)


def _box(given: object, at: int) -> Box:
    """A box of the option `boxes`. Raises InputError."""
    numbers = listed(given)
    if numbers is None and isinstance(given, dict):
        inner: object = given.get("box", given)
        names = ("xmin", "ymin", "xmax", "ymax")
        if isinstance(inner, dict) and all(name in inner for name in names):
            left, top, right, bottom = [_number(inner.get(name), at) for name in names]
            return _checked((left, top, right - left, bottom - top), at)
    if numbers is None or len(numbers) != 4:
        raise InputError(f"box {at} is none", option("boxes"), BOXES)
    a, b, c, d = [_number(x, at) for x in numbers]
    return _checked((a, b, c, d), at)


def _number(value: object, at: int) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e9:
        raise InputError(f"box {at} has a side that is no number", option("boxes"), BOXES)
    return value


def _checked(box: Box, at: int) -> Box:
    if box[2] <= 0 or box[3] <= 0:
        raise InputError(f"box {at} is empty", option("boxes"), BOXES)
    return box


def boxes_of(how: Posing, size: Size) -> list[Box]:
    """The boxes of a picture: those that are asked for, or all of it. size: its height and width.

    Raises:
        InputError: one lies outside of the picture.
    """
    height, width = size
    if how.boxes is None:
        return [(0.0, 0.0, float(width), float(height))]
    for at, (left, top, across, down) in enumerate(how.boxes):
        if left >= width or top >= height or left + across <= 0 or top + down <= 0:
            raise InputError(
                f"box {at} lies outside of the picture, which has {height} x {width} pixels",
                option("boxes"),
                BOXES,
            )
    return how.boxes


def pose(
    maps: Values, box: Box, shown: Size, how: Posing, labels: Mapping[str, str], task: str
) -> Pose:
    """The keypoints of one box.

    Args:
        maps: [1, keypoints, height, width].
        box: that the model has seen.
        shown: height and width of what the model takes.
        how: they are found.
        labels: of the keypoints.
        task: of the pipeline.

    Raises:
        InputError: the output is not that of this task.
    """
    dims = maps.dims
    if len(dims) != 4 or dims[0] != 1 or min(dims) < 1:
        raise wrong_shape(dims, task)
    count, height, width = dims[1], dims[2], dims[3]
    frame = pose_frame(box, shown[0], shown[1], POSE_UNIT)
    down, across = frame.height / max(height - 1, 1), frame.width / max(width - 1, 1)
    left, top, wide, high = box
    corners: Corners = {"xmin": left, "ymin": top, "xmax": left + wide, "ymax": top + high}
    made: Pose = {"keypoints": [], "scores": [], "labels": [], "box": corners}
    for k, ((x, y), score) in enumerate(refined(maps.data, count, height, width, how.kernel)):
        if how.threshold is None or score > how.threshold:
            made["keypoints"].append((x * across + frame.left, y * down + frame.top))
            made["scores"].append(score)
            made["labels"].append(label_of(labels, k))
    return made


def points(made: Sequence[Values], size: Size, threshold: float | None, task: str) -> Points:
    """The salient points of a picture.

    Args:
        made: POINTS of the model: [1, points, 2] as parts of the picture, [1, points],
            [1, points, size], and [1, points], 0 where there is none.
        size: height and width of the picture.
        threshold: scores above it are kept; None: all.
        task: of the pipeline.

    Raises:
        InputError: the outputs are not those of this task.
    """
    places, scores, descriptors, mask = made
    count = len(scores.data)
    size_of = descriptors.dims[-1] if descriptors.dims else 0
    if len(places.data) != 2 * count or len(descriptors.data) != size_of * count:
        raise wrong_shape(places.dims, task)
    height, width = size
    found: Points = {"keypoints": [], "scores": [], "descriptors": []}
    for i in range(min(count, len(mask.data))):
        score = scores.data[i]
        if not mask.data[i] or (threshold is not None and score <= threshold):
            continue
        x, y = places.data[2 * i], places.data[2 * i + 1]
        found["keypoints"].append((int(f32(x * width)), int(f32(y * height))))
        found["scores"].append(score)
        found["descriptors"].append(list(row(descriptors, i)))
    return found
