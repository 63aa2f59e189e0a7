"""Tasks of pictures: options, which outputs are read, and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ...errors import InputError
from ..images.geometry import Layout, Size
from ..native import listed, option
from ..options import is_integer, read_choice, read_flag, read_within, refused
from ..post.classification import label_of
from ..post.detection import (
    Detection,
    NamedBox,
    focal,
    named_box,
    set_prediction,
    unletterbox,
    yolo,
)
from .inputs import Values, choose_output

FOCAL: dict[str, int | None] = {
    "conditional_detr": 100,
    "deformable_detr": 100,
    "d_fine": None,
    "lw_detr": 100,
    "rf_detr": None,
    "rt_detr": None,
    "rt_detr_v2": None,
}
"""Models with independent scores of all classes: how many scores are considered (None: as many as
there are queries)."""
MAX_FOUND = 300
"""Detections of YOLO models, as in ultralytics."""
COMPARED = (384, 384)
"""Size to which the masks of Mask2Former are enlarged before they are compared."""
PAINTED = "reconstruction"
"""Output of models that make a picture of a picture."""
DEPTHS = ("predicted_depth", "depth")
"""Outputs of models that estimate depth; the second as Depth Anything 3 names it."""
SUBTASKS = ("default", "semantic", "instance", "panoptic")


def wrong_shape(dims: Sequence[int], task: str) -> InputError:
    """The error about an output that has not the dimensions of a task."""
    return InputError(
        f"an output of shape {' x '.join([str(d) for d in dims])} is not that of this task",
        task,
        "The model was exported for another task: give a model of this one.",
    )


def kept_size(height: int, width: int, done: Layout) -> Size:
    """The part of an output's planes, from the top left on, without what a package's frame added.

    Args:
        height: of the planes.
        width: of the planes.
        done: what was done to the picture.
    """
    return (-(-done.kept[0] * height // done.height), -(-done.kept[1] * width // done.width))


def count_planes(dims: Sequence[int], task: str) -> int:
    """How many planes [height, width] an output has. Raises InputError: it has none."""
    count = 1
    for d in dims[:-2]:
        count *= d
    if len(dims) < 3:
        raise wrong_shape(dims, task)
    return count


def check_one_plane(dims: Sequence[int], task: str) -> None:
    """Raises InputError if an output is not one plane."""
    if count_planes(dims, task) != 1:
        raise wrong_shape(dims, task)


def painted_channels(dims: Sequence[int], task: str) -> int:
    """How many channels the picture of an output has: 1 or 3.

    Args:
        dims: of the output, [1, channels, height, width].
        task: of the pipeline.

    Raises:
        InputError: it is no picture.
    """
    if len(dims) != 4 or dims[0] != 1 or dims[1] not in (1, 3) or min(dims) < 1:
        raise wrong_shape(dims, task)
    return dims[1]


def feature_outputs(options: Mapping[str, Any]) -> list[str]:
    """The outputs of image-feature-extraction, in order of preference. The option `pool`: one
    vector of a picture instead of one of each patch.
    """
    if read_flag(options, "pool", False):
        return ["pooler_output", "image_embeds"]
    return ["last_hidden_state", "logits", "image_embeds"]


# object-detection


class Found(TypedDict):
    """An object in a picture."""

    score: float
    label: str
    box: NamedBox


@dataclass(frozen=True)
class Detecting:
    """How objects are found.

    Attributes:
        threshold: scores above it are kept.
        percentage: whether boxes are parts of the picture instead of pixels.
        iou: YOLO: of two boxes that overlap more, the one with the lower score is left out.
        agnostic: YOLO: whether boxes of different classes suppress each other.
    """

    threshold: float
    percentage: bool
    iou: float
    agnostic: bool


def detecting(options: Mapping[str, Any]) -> Detecting:
    """The options `threshold`, `percentage`, `iou` and `agnostic_nms`. Raises InputError."""
    return Detecting(
        read_within(options, "threshold", 0.5, 0, 1),
        read_flag(options, "percentage", False),
        read_within(options, "iou", 0.45, 0, 1),
        read_flag(options, "agnostic_nms", False),
    )


def query_boxes(
    logits: Values,
    boxes: Values,
    config: Mapping[str, Any],
    threshold: float,
    size: Size,
    task: str,
) -> list[Detection]:
    """The objects of models with queries.

    Args:
        logits: [1, queries, classes].
        boxes: [1, queries, 4].
        config: contents of config.json.
        threshold: scores above it are kept.
        size: height and width of the picture.
        task: of the pipeline.

    Raises:
        InputError: the outputs are not those of this task.
    """
    classes = logits.dims[-1]
    if boxes.dims[-1] != 4 or len(boxes.data) * classes != len(logits.data) * 4:
        raise wrong_shape(boxes.dims, task)
    kind = str(config.get("model_type"))
    height, width = size
    if kind in FOCAL:
        most = FOCAL[kind]
        return focal(logits.data, boxes.data, classes, threshold, height, width, most)
    return set_prediction(logits.data, boxes.data, classes, threshold, height, width)


def yolo_boxes(made: Values, how: Detecting, given: Size, size: Size, task: str) -> list[Detection]:
    """The objects of a YOLO model.

    Args:
        made: its output.
        how: they are found.
        given: height and width of what the model takes.
        size: of the picture.
        task: of the pipeline.

    Raises:
        InputError: the output is not that of YOLO v8 or later.
    """
    dims = made.dims
    if len(dims) != 3 or dims[0] != 1 or (dims[1] < 5 and dims[2] < 6):
        raise wrong_shape(dims, task)
    found: list[Detection] = []
    if dims[2] == 6 and dims[1] > 6:  # boxes that were chosen in the graph
        for i in range(dims[1]):
            r = made.data[i * 6 : i * 6 + 6]
            if r[4] > how.threshold:
                found.append((r[4], int(r[5]), (r[0], r[1], r[2], r[3])))
    else:
        found = yolo(made.data, dims[2], how.threshold, how.iou, how.agnostic, MAX_FOUND)
    return unletterbox(found, given, size[0], size[1])


def detected(
    found: Sequence[Detection], labels: Mapping[str, str], size: Size, percentage: bool
) -> list[Found]:
    """The result for objects in a picture.

    Args:
        found: the objects.
        labels: of the classes.
        size: height and width of the picture.
        percentage: whether boxes are parts of the picture.
    """
    return [
        {
            "score": score,
            "label": label_of(labels, label),
            "box": named_box(box, size[0], size[1], percentage),
        }
        for score, label, box in found
    ]


# image-segmentation


@dataclass(frozen=True)
class Segmenting:
    """How the parts of a picture are found.

    Attributes:
        subtask: one of SUBTASKS.
        threshold: scores of queries above it are kept.
        mask_threshold: a mask has the pixels with at least this probability.
        overlap: a query whose mask is covered by others to a greater part is left out.
        fused: classes whose segments become one.
    """

    subtask: str
    threshold: float
    mask_threshold: float
    overlap: float
    fused: list[int]


def segmenting(options: Mapping[str, Any]) -> Segmenting:
    """The options `subtask`, `threshold`, `mask_threshold`, `overlap_mask_area_threshold` and
    `label_ids_to_fuse`. Raises InputError.
    """
    given: object = options.get("label_ids_to_fuse")
    fused: list[Any] | None = [] if given is None else listed(given)
    if fused is None or not all(is_integer(i) for i in fused):
        raise refused("label_ids_to_fuse", given, "Give a list of numbers of classes.")
    subtask = read_choice(options, "subtask", "default", SUBTASKS)
    return Segmenting(
        subtask,
        read_within(options, "threshold", 0.9, 0, 1),
        read_within(options, "mask_threshold", 0.5, 0, 1),
        read_within(options, "overlap_mask_area_threshold", 0.5, 0, 1),
        [] if subtask == "instance" else fused,
    )


def in_windows(how: Segmenting) -> Segmenting:
    """How the parts of a picture are found that the model sees in windows: by classes.

    Raises:
        InputError: objects are wanted, which would be those of one window.
    """
    if how.subtask not in ("default", "semantic"):
        raise InputError(
            f"the model sees windows of pictures, so it has no {how.subtask} segmentation",
            option("subtask"),
            "Give semantic.",
        )
    return Segmenting("semantic", how.threshold, how.mask_threshold, how.overlap, how.fused)


@dataclass(frozen=True)
class Masks:
    """What the masks of a picture are made of.

    Attributes:
        form: "classes": of planes of logits of each class; "planes": the same, which are made of
            queries with masks; "segments": of queries with masks; "enlarged": of queries whose
            masks are enlarged before they are compared (EoMT); "instances" and "enlarged
            instances": the same, one over the other instead of compared.
        logits: output with the logits.
        masks: output with the masks of queries; "": there are none.
    """

    form: Literal["classes", "planes", "segments", "enlarged", "instances", "enlarged instances"]
    logits: str
    masks: str = ""


def masks_of(
    how: Segmenting, outputs: Sequence[str], task: str, config: Mapping[str, Any]
) -> Masks:
    """What the masks of a picture are made of.

    Args:
        how: they are wanted.
        outputs: names of those that the graph has.
        task: of the pipeline.
        config: contents of config.json.

    Raises:
        InputError: the model does not have the subtask, or is of another task.
    """
    pairs = [("class_queries_logits", "masks_queries_logits"), ("logits", "pred_masks")]
    for logits, masks in pairs:
        if logits not in outputs or masks not in outputs:
            continue
        if how.subtask == "semantic":
            return Masks("planes", logits, masks)
        enlarged = str(config.get("model_type")).startswith("eomt")
        if how.subtask == "instance" and logits != "logits":
            return Masks("enlarged instances" if enlarged else "instances", logits, masks)
        if enlarged:
            return Masks("enlarged", logits, masks)
        return Masks("segments", logits, masks)
    if how.subtask not in ("default", "semantic"):
        raise InputError(
            f"the model has no queries, so it has no {how.subtask} segmentation",
            option("subtask"),
            "Give semantic.",
        )
    return Masks("classes", choose_output(outputs, ["logits"], task))


def size_compared(config: Mapping[str, Any], given: Size) -> Size | None:
    """The size to which masks are enlarged before they are compared; None: as they are.

    Args:
        config: contents of config.json.
        given: of what the model takes.
    """
    if str(config.get("model_type")).startswith("eomt"):
        return given
    return COMPARED if config.get("model_type") == "mask2former" else None


def part_shown(done: Layout, before: Size) -> Size:
    """The part of what the model takes, from the top left on, that shows the picture.

    Args:
        done: to the picture.
        before: the picture's size.
    """
    height, width = before
    for step in done.steps:
        if step["op"] == "resize":
            height, width = step["height"], step["width"]
    return min(height, done.height), min(width, done.width)
