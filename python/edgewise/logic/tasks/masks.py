"""Masks of everything in a picture: mask-generation. Mirrors transformers'
MaskGenerationPipeline and the functions of its image processors.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..images.geometry import Size
from ..images.taps import Taps, composed, taps
from ..options import is_integer, read_flag, read_number, read_within, refused
from ..post.detection import Box, Detection, non_max_suppression
from .prompts import MAX_BATCH, Point, Prompts

NEAR = 20
"""Pixels: a mask that ends so near to the edge of a crop is left out."""
MAX_SIDE_POINTS = 128
MAX_LAYERS = 3
MAX_MASKS = 1 << 20


@dataclass(frozen=True)
class Generating:
    """How masks are found.

    Attributes:
        batch: points that run together.
        side: points of a side of the grid.
        layers: of crops.
        overlap: of crops of the first layer, as a part of the shorter side.
        downscale: the grid of a layer has so many times fewer points on a side.
        iou: scores above it are kept.
        stability: masks that change less than that with their threshold.
        offset: by how much the threshold is changed for that.
        threshold: a mask has the pixels with a logit above it.
        nms: of two boxes that overlap more, the one with the lower score is left out.
        rle, boxes: whether the result has run lengths and boxes, too.
    """

    batch: int
    side: int
    layers: int
    overlap: float
    downscale: float
    iou: float
    stability: float
    offset: float
    threshold: float
    nms: float
    rle: bool
    boxes: bool


GENERATING = (
    "points_per_batch",
    "points_per_crop",
    "crops_n_layers",
    "crop_overlap_ratio",
    "crop_n_points_downscale_factor",
    "pred_iou_thresh",
    "stability_score_thresh",
    "stability_score_offset",
    "crops_nms_thresh",
    "output_rle_mask",
    "output_bboxes_mask",
)
"""Options of a call without prompts, beside mask_threshold."""


def generating(options: Mapping[str, Any]) -> Generating:
    """The options of GENERATING and mask_threshold. Raises InputError."""
    return Generating(
        min(_count(options, "points_per_batch", MAX_BATCH, 1, MAX_MASKS), MAX_BATCH),
        _count(options, "points_per_crop", 32, 1, MAX_SIDE_POINTS),
        _count(options, "crops_n_layers", 0, 0, MAX_LAYERS),
        read_within(options, "crop_overlap_ratio", 512 / 1500, 0, 1),
        read_within(options, "crop_n_points_downscale_factor", 1, 1, MAX_SIDE_POINTS),
        read_within(options, "pred_iou_thresh", 0.88, 0, 1),
        read_within(options, "stability_score_thresh", 0.95, 0, 1),
        _number(options, "stability_score_offset", 1),
        _number(options, "mask_threshold", 0),
        read_within(options, "crops_nms_thresh", 0.7, 0, 1),
        read_flag(options, "output_rle_mask", False),
        read_flag(options, "output_bboxes_mask", False),
    )


def _count(options: Mapping[str, Any], name: str, otherwise: int, least: int, most: int) -> int:
    value: object = options.get(name)
    if value is None:
        return otherwise
    if not is_integer(value) or not isinstance(value, int) or not least <= value <= most:
        raise refused(name, value, f"Give an integer from {least} to {most}.")
    return value


def _number(options: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = read_number(options, name)
    return otherwise if value is None else value


@dataclass(frozen=True)
class Crop:
    """A part of a picture, in pixels."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class Encode:
    """The model sees a part of the picture. No answer."""

    crop: Crop
    kind: Literal["encode"] = "encode"


@dataclass(frozen=True)
class Decode:
    """The masks of prompts, in pixels of the picture that the model sees. The answer: their scores,
    [objects, masks].
    """

    prompts: Prompts
    kind: Literal["decode"] = "decode"


@dataclass(frozen=True)
class Measure:
    """Some of the masks of the last Decode at the size of the crop. The answer: a Measured each."""

    masks: list[int]
    kind: Literal["measure"] = "measure"


@dataclass
class Measured:
    """A mask at the size of the crop.

    Attributes:
        inner, outer: pixels with a logit above the threshold plus, and minus, the offset.
        box: the first and the last column and row: left, top, right, bottom; of an empty mask 0.
    """

    inner: int
    outer: int
    box: Box


@dataclass(frozen=True)
class Keep:
    """Keeps some of the masks of the last Decode: they are numbered on. No answer."""

    masks: list[int]
    kind: Literal["keep"] = "keep"


Request = Encode | Decode | Measure | Keep


@dataclass
class Found:
    """A mask of the result.

    Attributes:
        number: of the kept mask.
        crop: that it is of.
        score: of the model.
        box: as of Measured, in pixels of the picture.
    """

    number: int
    crop: Crop
    score: float
    box: Box


def generate(how: Generating, size: Size, longest: int) -> Generator[Request, Any, list[Found]]:
    """Finds the masks of a picture.

    Args:
        how: they are found.
        size: height and width of the picture.
        longest: size of the model's pictures, as the processor's `size` has it.

    Returns:
        the masks, the highest score first
    """
    found: list[Found] = []
    for layer, crop in crops(size, how.layers, how.overlap):
        yield Encode(crop)
        points = grid(crop, int(how.side / how.downscale**layer), longest)
        for at in range(0, len(points), how.batch):
            several = [[point] for point in points[at : at + how.batch]]
            prompts = Prompts(several, [[1] for _ in several], [])
            scores: list[float] = yield Decode(prompts)
            likely = [i for i, s in enumerate(scores) if how.iou <= 0 or s > how.iou]
            if not likely:
                continue
            measured: list[Measured] = yield Measure(likely)
            kept: list[int] = []
            for i, one in zip(likely, measured):
                if not is_stable(one, how) or is_near_edge(one.box, crop, size):
                    continue
                a, b, c, d = one.box
                box = (a + crop.left, b + crop.top, c + crop.left, d + crop.top)
                kept.append(i)
                found.append(Found(len(found), crop, scores[i], box))
            if kept:
                yield Keep(kept)
    boxes: list[Detection] = [(one.score, one.number, one.box) for one in found]
    chosen = non_max_suppression(boxes, how.nms, True, MAX_MASKS)
    return [found[number] for _, number, _ in chosen]


def is_stable(mask: Measured, how: Generating) -> bool:
    """Whether a mask changes little with its threshold."""
    if how.stability <= 0:
        return True
    return mask.outer > 0 and mask.inner / mask.outer > how.stability


def is_near_edge(box: Box, crop: Crop, size: Size) -> bool:
    """Whether a box ends at the edge of a crop that is not the edge of the picture."""
    edges = (crop.left, crop.top, crop.right, crop.bottom)
    whole = (0, 0, size[1], size[0])
    for i in range(4):
        at = box[i] + (crop.top if i % 2 else crop.left)
        if abs(at - edges[i]) <= NEAR and not abs(at - whole[i]) <= NEAR:
            return True
    return False


def crops(size: Size, layers: int, overlap: float) -> list[tuple[int, Crop]]:
    """The parts of a picture that the model sees, with their layer: the picture, then 2 x 2 parts,
    4 x 4 parts and so on, which overlap.
    """
    height, width = size
    found = [(0, Crop(0, 0, width, height))]
    for layer in range(layers):
        count = 1 << (layer + 1)
        shared = int(overlap * min(height, width) * (2 / count))
        wide = math.ceil((shared * (count - 1) + width) / count)
        high = math.ceil((shared * (count - 1) + height) / count)
        for i in range(count):
            for j in range(count):
                left, top = (wide - shared) * i, (high - shared) * j
                right, bottom = min(left + wide, width), min(top + high, height)
                if right > left and bottom > top:
                    found.append((layer + 1, Crop(left, top, right, bottom)))
    return found


def grid(crop: Crop, side: int, longest: int) -> list[Point]:
    """The points of a grid over a crop, in pixels of the picture that the model sees. As in
    transformers these are scaled by the longer side, also where the model's picture is not.
    """
    height, width = crop.bottom - crop.top, crop.right - crop.left
    scale = longest / max(height, width)
    down, across = int(height * scale + 0.5) / height, int(width * scale + 0.5) / width
    count = max(side, 1)
    first = 1 / (2 * count)
    step = (1 - 2 * first) / (count - 1) if count > 1 else 0.0
    places = [first + i * step for i in range(count)]
    return [(x * width * across, y * height * down) for y in places for x in places]


def mask_taps(size: int, whole: int, kept: int, out: int) -> Taps:
    """How the rows, or columns, of a mask become those of the picture.

    Args:
        size: of the mask.
        whole: of the picture with its padding that the model sees; 0: masks have none.
        kept: of this without the padding.
        out: of the picture.
    """
    if not whole:
        return taps("linear", size, out)
    return composed(taps("linear", kept, out), taps("linear", size, whole))


def run_lengths(mask: bytes, height: int, width: int) -> list[int]:
    """Lengths of the runs of 0 and of 1 in turn, column by column, as pycocotools has them."""
    counts: list[int] = []
    last, length = 0, 0
    for x in range(width):
        for y in range(height):
            value = 1 if mask[y * width + x] else 0
            if value != last:
                counts.append(length)
                last, length = value, 0
            length += 1
    counts.append(length)
    return counts
