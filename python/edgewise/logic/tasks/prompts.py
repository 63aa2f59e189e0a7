"""Masks of what points and boxes show (SAM): prompts of a call, and inputs of the decoder.

Coordinates are pixels of the picture, x before y. Names are those of transformers' SamProcessor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ..images.geometry import Layout, Size
from ..native import listed, option
from ..options import is_integer, read_flag, read_number, refused
from ..post.detection import Box

PROMPTS = ("input_points", "input_labels", "input_boxes")
"""Options of a call with prompts."""
CHOICES = ("multimask_output", "mask_threshold")
"""Further options of such a call."""
MAX_POINTS = 256
"""Points of an object."""
MAX_OBJECTS = 1024
"""Objects of a call."""
MAX_BATCH = 64
"""Objects that run together."""
PADDING = -10
"""Label of a point that is none, and its coordinates."""
CORNERS = [2, 3]
"""Labels of the corners of a box."""
LABELS = (1, 0, -1, PADDING)

Point = tuple[float, float]


@dataclass
class Prompts:
    """What a call asks for, object by object.

    Attributes:
        points: of each object; none at all where there are only boxes.
        labels: of these points.
        boxes: one of each object, or none at all.
    """

    points: list[list[Point]] = field(default_factory=list)
    labels: list[list[int]] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)


@dataclass(frozen=True)
class Values:
    """An input of the decoder: its dimensions, and its elements in row-major order."""

    dims: list[int]
    data: list[float]


def is_prompted(options: Mapping[str, Any]) -> bool:
    """Whether a call has prompts."""
    return any(options.get(name) is not None for name in PROMPTS)


def read_prompts(options: Mapping[str, Any], size: Size) -> Prompts:
    """The options `input_points`, `input_labels` and `input_boxes` of a call.

    Points are [x, y], those of an object a list of these, those of several objects a list of such
    lists; another list around these, for the picture, changes nothing. Labels have the same form
    without [x, y], boxes are [x, y, right, bottom]. Objects with fewer points are padded.

    Args:
        options: of the call.
        size: height and width of the picture.

    Raises:
        InputError: there are no prompts, or they are not valid.
    """
    made = Prompts()
    given: object = options.get("input_points")
    if given is not None:
        made.points = [_points(one, size) for one in _nested(given, "input_points", 3)]
    labels: object = options.get("input_labels")
    if labels is not None:
        if given is None:
            raise InputError("there are no points", option("input_labels"), "Give input_points.")
        made.labels = [_labels(one) for one in _nested(labels, "input_labels", 2)]
    else:
        made.labels = [[1 for _ in points] for points in made.points]
    boxes: object = options.get("input_boxes")
    if boxes is not None:
        made.boxes = [_box(one, size) for one in _nested(boxes, "input_boxes", 2)]
    _check(made)
    _pad(made)
    return made


def _nested(given: object, name: str, depth: int) -> list[Any]:
    """A list whose elements have depth - 1 more dimensions. Raises InputError."""
    levels = 0
    inner: object = given
    while levels <= depth + 1:
        items: list[Any] | None = listed(inner)
        if items is None:
            break
        if not items:
            raise InputError("it is empty", option(name), "Give one or more.")
        levels += 1
        inner = items[0]
    if levels < 1 or levels > depth + 1:
        raise refused(name, given, "Give lists of numbers.")
    value: object = given
    while levels < depth:
        value = [value]
        levels += 1
    outer: list[Any] | None = listed(value)
    if outer is not None and levels > depth:
        if len(outer) != 1:
            raise InputError(
                f"it is for {len(outer)} pictures", option(name), "Give those of one picture."
            )
        outer = listed(outer[0])
    return [] if outer is None else outer


def _numbers(given: object, name: str, count: int) -> list[float]:
    """`count` finite numbers. Raises InputError."""
    items: list[Any] | None = listed(given)
    found: list[float] = []
    for x in [] if items is None else items:
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            found.append(x)
    whole = items is not None and len(items) == count and len(found) == count
    if not whole or not all(abs(x) < 1e9 for x in found):
        raise refused(name, given, f"Each one is {count} numbers, in pixels of the picture.")
    return found


def _points(given: object, size: Size) -> list[Point]:
    items: list[Any] | None = listed(given)
    made: list[Point] = []
    for one in [] if items is None else items:
        x, y = _numbers(one, "input_points", 2)
        if not (0 <= x <= size[1] and 0 <= y <= size[0]):
            raise _outside(f"[{_short(x)}, {_short(y)}]", "input_points", size)
        made.append((x, y))
    if not made:
        raise InputError("an object has no points", option("input_points"), "Give one or more.")
    if len(made) > MAX_POINTS:
        raise InputError(
            f"an object has {len(made)} points",
            option("input_points"),
            f"Give at most {MAX_POINTS} for an object, or each as an object of its own.",
        )
    return made


def _box(given: object, size: Size) -> Box:
    left, top, right, bottom = _numbers(given, "input_boxes", 4)
    shown = f"[{_short(left)}, {_short(top)}, {_short(right)}, {_short(bottom)}]"
    if right <= left or bottom <= top:
        raise InputError(
            f"{shown} is empty", option("input_boxes"), "A box is [left, top, right, bottom]."
        )
    if left < 0 or top < 0 or right > size[1] or bottom > size[0]:
        raise _outside(shown, "input_boxes", size)
    return left, top, right, bottom


def _short(x: float) -> str:
    return str(int(x)) if x == int(x) else str(x)


def _outside(shown: str, name: str, size: Size) -> InputError:
    return InputError(
        f"{shown} is outside of the picture, which has {size[1]} x {size[0]} pixels",
        option(name),
        "Coordinates are pixels of the picture that was given, x before y.",
    )


def _labels(given: object) -> list[int]:
    items: list[Any] | None = listed(given)
    made: list[int] = []
    for label in [] if items is None else items:
        if not is_integer(label) or label not in LABELS:
            raise refused(
                "input_labels", given, "1: of the object, 0: not of it, -1: of the background."
            )
        made.append(label)
    return made


def _check(made: Prompts) -> None:
    """Raises InputError if points, labels and boxes do not belong together."""
    if not made.points and not made.boxes:
        raise InputError(
            "there is no prompt", option("input_points"), "Give input_points or input_boxes."
        )
    if len(made.labels) != len(made.points):
        raise InputError(
            f"there are labels of {len(made.labels)} objects and points of {len(made.points)}",
            option("input_labels"),
            "Give one label for each point.",
        )
    for points, labels in zip(made.points, made.labels):
        if len(points) != len(labels):
            raise InputError(
                f"there are {len(labels)} labels for {len(points)} points",
                option("input_labels"),
                "Give one label for each point.",
            )
    if made.points and made.boxes and len(made.points) != len(made.boxes):
        raise InputError(
            f"there are {len(made.boxes)} boxes and points of {len(made.points)} objects",
            option("input_boxes"),
            "Give one box for each object.",
        )
    count = max(len(made.points), len(made.boxes))
    if count > MAX_OBJECTS:
        raise InputError(
            f"there are {count} objects", option("input_points"), f"Give at most {MAX_OBJECTS}."
        )


def _pad(made: Prompts) -> None:
    most = max([len(points) for points in made.points], default=0)
    for points, labels in zip(made.points, made.labels):
        while len(points) < most:
            points.append((PADDING, PADDING))
            labels.append(PADDING)


def scaled(prompts: Prompts, done: Layout, size: Size) -> Prompts:
    """Prompts in pixels of the picture that the model sees.

    Args:
        prompts: in pixels of the picture that was given.
        done: what was done to the picture.
        size: height and width of the picture that was given.
    """
    top, left, bottom, right = done.valid
    down, across = (bottom - top) / size[0], (right - left) / size[1]
    points: list[list[Point]] = []
    for of, labels in zip(prompts.points, prompts.labels):
        moved: list[Point] = []
        for (x, y), label in zip(of, labels):
            kept = label == PADDING
            moved.append((x, y) if kept else (x * across + left, y * down + top))
        points.append(moved)
    boxes: list[Box] = [
        (a * across + left, b * down + top, c * across + left, d * down + top)
        for a, b, c, d in prompts.boxes
    ]
    return Prompts(points, prompts.labels, boxes)


def batches(prompts: Prompts, most: int = MAX_BATCH) -> list[Prompts]:
    """Prompts that run together: objects of one point, or of a box; others run alone."""
    made: list[Prompts] = []
    count = max(len(prompts.points), len(prompts.boxes))
    alone = bool(prompts.points) and (bool(prompts.boxes) or len(prompts.points[0]) > 1)
    step = 1 if alone else max(1, min(most, MAX_BATCH))
    for at in range(0, count, step):
        end = at + step
        made.append(Prompts(prompts.points[at:end], prompts.labels[at:end], prompts.boxes[at:end]))
    return made


def prompt_inputs(
    inputs: Sequence[str], prompts: Prompts, multimask: bool, cornered: bool
) -> dict[str, Values]:
    """The inputs of the decoder that do not come from the picture.

    Args:
        inputs: their names.
        prompts: of a batch, in pixels of the picture that the model sees.
        multimask: whether the decoder gives several masks of an object.
        cornered: whether the corners of a box may be points with labels of their own.

    Raises:
        InputError: the model takes no boxes, or no points.
    """
    points, labels = prompts.points, prompts.labels
    boxes = prompts.boxes
    if boxes and "input_boxes" not in inputs:
        if not cornered:
            raise InputError(
                "the model takes no boxes", option("input_boxes"), "Give input_points."
            )
        corners: list[list[Point]] = [[(a, b), (c, d)] for a, b, c, d in boxes]
        none: list[list[Point]] = [[] for _ in boxes]
        no_labels: list[list[int]] = [[] for _ in boxes]
        points = [[*a, *b] for a, b in zip(points or none, corners)]
        labels = [[*a, *CORNERS] for a in labels or no_labels]
        boxes = []
    if points and "input_points" not in inputs:
        raise InputError("the model takes no points", option("input_points"), "Give input_boxes.")
    made: dict[str, Values] = {}
    count = max(len(points), len(boxes))
    length = len(points[0]) if points else 0
    for name in inputs:
        if name == "input_points":
            flat = [c for of in points for point in of for c in point]
            made[name] = Values([1, len(points) if points else 1, length, 2], flat)
        elif name == "input_labels":
            made[name] = Values([1, count, length], [float(x) for of in labels for x in of])
        elif name == "input_boxes":
            made[name] = Values([1, len(boxes), 4], [c for box in boxes for c in box])
        elif name == "multimask_output":
            made[name] = Values([], [1.0 if multimask else 0.0])
    return made


def embedding_names(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Which output of the encoder each other input of the decoder is: {input: output}.

    Names that both have; the rest in order, as there are as many.

    Raises:
        InputError: the files do not belong together.
    """
    wanted = [n for n in inputs if n not in (*PROMPTS, "multimask_output")]
    found: dict[str, str] = {name: name for name in wanted if name in outputs}
    left = [name for name in wanted if name not in found]
    rest = [name for name in outputs if name not in found]
    if len(left) > len(rest) or not wanted or (left and len(left) != len(rest)):
        raise InputError(
            f"the decoder takes {', '.join(wanted)}, the encoder gives {', '.join(outputs)}",
            "prompt_encoder_mask_decoder",
            "Do the two files belong together? Export them again.",
        )
    for name, output in zip(left, rest):
        found[name] = output
    return found


@dataclass(frozen=True)
class Choosing:
    """Which masks of an object a call gives.

    Attributes:
        multimask: all of them, instead of the one with the highest score.
        threshold: a mask has the pixels with a logit above it.
    """

    multimask: bool
    threshold: float


def choosing(options: Mapping[str, Any]) -> Choosing:
    """The options `multimask_output` and `mask_threshold`. Raises InputError."""
    threshold = read_number(options, "mask_threshold")
    return Choosing(
        read_flag(options, "multimask_output", True), 0 if threshold is None else threshold
    )


def chosen_masks(scores: Sequence[float], count: int, multimask: bool) -> list[int]:
    """The masks that a call gives, of all objects.

    Args:
        scores: [objects, count].
        count: masks of an object.
        multimask: all of them, instead of the one with the highest score.
    """
    if multimask or count < 2:
        return list(range(len(scores)))
    found: list[int] = []
    for at in range(0, len(scores), count):
        best = at
        for i in range(at, at + count):
            if scores[i] > scores[best]:
                best = i
        found.append(best)
    return found
