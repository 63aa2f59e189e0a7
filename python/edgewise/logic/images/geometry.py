"""Sizes and boxes of image processing: what is done to a picture of a given size.

A description has rules (`shortest`, `center`, ...); `layout` applies them to the size of a picture
and returns operations with numbers. tests/conformance/image_layouts.json compares with
transformers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ...errors import InputError

Size = tuple[int, int]
"""Height and width in pixels."""
Box = tuple[float, float, float, float]
"""Left, top, width and height in pixels."""
Color = Sequence[int] | Literal["symmetric"]
"""RGB, or the picture itself, mirrored with its edge."""


class Rule(TypedDict, total=False):
    """A rule of a description: the operation, the rule's name, and its numbers."""

    op: str
    rule: str
    filter: str
    color: Color | None
    height: int
    width: int
    size: int
    longest: int | None
    least: int | None
    divisor: int | None
    multiple: int
    keep: bool | None
    of: Rule
    sizes: list[Size]
    factor: float


class Resize(TypedDict):
    """The whole picture at another size."""

    op: Literal["resize"]
    height: int
    width: int
    filter: str


class Window(TypedDict):
    """A part of the picture, or more than the picture: what is outside has the color."""

    op: Literal["window"]
    top: int
    left: int
    height: int
    width: int
    color: Color


class Rotate(TypedDict):
    """A quarter turn clockwise."""

    op: Literal["rotate"]


class Warp(TypedDict):
    """A part of the picture at another size: row y of the result is row y * down + top of the
    picture, column x is x * across + left. Between pixels it is linear, and outside black.
    """

    op: Literal["warp"]
    height: int
    width: int
    top: float
    left: float
    down: float
    across: float


Step = Resize | Window | Rotate | Warp

SPLIT = "split"
"""Rule of a window of a picture: `split_of` gives the windows."""
MAX_PIXELS = 100_000_000
"""Pixels of the largest picture, as given and after each operation: 300 MB."""


@dataclass
class Layout:
    """What is done to one picture.

    Attributes:
        steps: in order.
        height, width: of the result.
        valid: (top, left, bottom, right) of the picture in the result, without the padding that
            is zero after normalization.
        kept: height and width of the part, from the top left on, that a package's frame
            ("frame", "among") did not add.
        box: the part of the picture that is looked at; None: all of it.
    """

    steps: list[Step] = field(default_factory=list)
    height: int = 0
    width: int = 0
    valid: tuple[int, int, int, int] = (0, 0, 0, 0)
    kept: Size = (0, 0)
    box: Box | None = None


def layout(steps: Sequence[Any], height: int, width: int, box: Box | None = None) -> Layout:
    """Applies the rules of a description to the size of a picture.

    Args:
        steps: each a Rule of an image processor; see `description.py`.
        height, width: of the picture.
        box: the part of the picture that is looked at, for the rule "box"; for the rule "split" the
            window, in pixels of the picture before.

    Raises:
        InputError: the picture is empty, or an operation would make it empty or too large.
    """
    out = Layout([], height, width, (0, 0, height, width), (0, 0), box)
    _check(height, width)
    for step in steps:
        rule: Rule = step
        _OPERATIONS[rule["op"]](out, rule)
        _check(out.height, out.width)
    if not out.kept[0]:
        out.kept = (out.height, out.width)
    return out


def _check(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise InputError(
            f"a picture of {height} x {width} pixels is empty", "image", "Give a larger picture."
        )
    if height * width > MAX_PIXELS:
        raise InputError(
            f"a picture of {height} x {width} pixels has more than {MAX_PIXELS}",
            "image",
            "Reduce it before.",
        )


def _resize(out: Layout, rule: Rule) -> None:
    height, width = _SIZES[rule["rule"]](rule, out.height, out.width)
    if height != out.height or width != out.width:
        _check(height, width)
        out.steps.append(
            {"op": "resize", "height": height, "width": width, "filter": rule["filter"]}
        )
    _set(out, height, width)


def _crop(out: Layout, rule: Rule) -> None:
    if rule["rule"] == SPLIT:
        if out.box is None:
            raise never_split()
        left, top, width, height = [int(number) for number in out.box]
        _window(out, top, left, height, width, [0, 0, 0])
        _set(out, height, width)
        return
    if rule["rule"] == "fraction":
        least = float(min(out.height, out.width))
        height, width = int(rule["height"] * least), int(rule["width"] * least)
    else:
        height, width = rule["height"], rule["width"]
    top, left = _centered(out.height, height), _centered(out.width, width)
    _window(out, top, left, height, width, [0, 0, 0])
    _set(out, height, width)


def never_split() -> InputError:
    """The error about a processor that splits pictures, of a task that joins no results."""
    return InputError(
        "pictures are split into windows, which only image-segmentation does",
        "preprocessor_config.json: do_split_image",
        "Set it to false.",
    )


@dataclass(frozen=True)
class Split:
    """The windows of a picture.

    Attributes:
        height, width: of the picture that they are parts of.
        boxes: the windows, squares that follow one another along the longer side.
        counts: how many windows each pixel of the longer side is in.
    """

    height: int
    width: int
    boxes: list[Box]
    counts: list[int]


def split_of(steps: Sequence[Any], height: int, width: int) -> Split | None:
    """The windows that a picture is seen in, as EomtImageProcessor splits it.

    Args:
        steps, height, width: as of `layout`.

    Returns:
        None: the picture is seen as a whole.

    Raises:
        InputError: as `layout`.
    """
    rules: list[Rule] = [*steps]
    at = [i for i, rule in enumerate(rules) if rule.get("rule") == SPLIT]
    if not at:
        return None
    size = rules[at[0]]["height"]
    before = layout(rules[: at[0]], height, width)
    longer = max(before.height, before.width)
    count = -(-longer // size)
    overlap = (count * size - longer) / (count - 1) if count > 1 else 0.0
    boxes: list[Box] = []
    counts = [0] * longer
    for i in range(count):
        start = math.floor(i * (size - overlap))
        left, top = (0, start) if before.height > before.width else (start, 0)
        boxes.append((left, top, size, size))
        for k in range(start, min(start + size, longer)):
            counts[k] += 1
    return Split(before.height, before.width, boxes, counts)


def _centered(have: int, size: int) -> int:
    """Where a centered window begins, as transformers' center_crop."""
    return (have - size) // 2 if have >= size else -((size - have + 1) // 2)


def _pad(out: Layout, rule: Rule) -> None:
    if rule["rule"] == "among":
        _among(out, rule, "symmetric")
        return
    if rule["rule"] == "strip":
        margin = strip_margin(out.height, out.width)
        height, width = out.height + 2 * margin, out.width
        _window(out, 0 - margin, 0, height, width, [0, 0, 0])
    elif rule["rule"] == "symmetric":
        divisor = _divisor(rule)
        height = (out.height // divisor + 1) * divisor
        width = (out.width // divisor + 1) * divisor
        _window(out, 0, 0, height, width, "symmetric")
    elif rule["rule"] in ("square", "corner"):
        side = max(out.height, out.width)
        square = rule["rule"] == "square"
        height = side if square else max(rule["height"], out.height)
        width = side if square else max(rule["width"], out.width)
        _window(out, 0, 0, height, width, _color(rule))
    else:
        if rule["rule"] == "within":  # the middle of a square
            height = max(out.height, out.width)
            width = height
        else:
            height, width = rule["height"], rule["width"]
        half = _letterbox_margin if rule["rule"] == "letterbox" else _half
        top, left = half(height - out.height), half(width - out.width)
        _window(out, 0 - top, 0 - left, height, width, _color(rule))
    _set(out, height, width)


def strip_margin(height: int, width: int) -> int:
    """Rows above and below a picture that is hardly more than a line, as RapidOCR adds them."""
    if height > 30 and width / height <= 8:
        return 0
    return int(abs(max(int(width / 8), 30) * 2 - height) / 2)


def _color(rule: Rule) -> Color:
    color = rule.get("color")
    return [0, 0, 0] if color is None else color


def _half(space: int) -> int:
    return space // 2


def _letterbox_margin(space: int) -> int:
    return round(space / 2 - 0.1)


def _frame(out: Layout, rule: Rule) -> None:
    """Padding that is zero after normalization: the plan sets it to zero."""
    height, width = out.height, out.width
    if rule["rule"] == "among":
        _among(out, rule, [0, 0, 0])
        return
    if rule["rule"] == "divisor":
        height = -(-height // _divisor(rule)) * _divisor(rule)
        width = -(-width // _divisor(rule)) * _divisor(rule)
        top, left = (height - out.height) // 2, (width - out.width) // 2
    else:
        height, width, top, left = rule["height"], rule["width"], 0, 0
        if height < out.height or width < out.width:
            raise InputError(
                f"a picture of {out.height} x {out.width} pixels does not fit into {height} x"
                f" {width}",
                "pad_size",
                "Choose a larger pad_size or a smaller size.",
            )
    valid = (top, left, top + out.height, left + out.width)
    _window(out, 0 - top, 0 - left, height, width, [0, 0, 0])
    _set(out, height, width)
    out.valid = valid


def _among(out: Layout, rule: Rule, color: Color) -> None:
    """The first of several frames that has room for the picture."""
    have, valid = (out.height, out.width), out.valid
    found = next((s for s in rule["sizes"] if s[0] >= have[0] and s[1] >= have[1]), None)
    if found is None:
        raise InputError(
            f"a picture of {have[0]} x {have[1]} pixels fits into no frame of the model",
            "image",
            f"Cut or reduce it: the largest is {rule['sizes'][-1][0]} x {rule['sizes'][-1][1]}.",
        )
    _window(out, 0, 0, found[0], found[1], color)
    _set(out, found[0], found[1])
    out.kept, out.valid = have, valid


def _rotate(out: Layout, rule: Rule) -> None:
    height, width = rule["height"], rule["width"]
    if (width < height and out.width > out.height) or (width > height and out.width < out.height):
        out.steps.append({"op": "rotate"})
        _set(out, out.width, out.height)


@dataclass(frozen=True)
class Frame:
    """A part of a picture, in pixels."""

    left: float
    top: float
    width: float
    height: float


def pose_frame(box: Box, height: int, width: int, factor: float) -> Frame:
    """The part of a picture that ViTPose sees: the box with a quarter more on each side, and in the
    proportions of what the model takes. As box_to_center_and_scale of its image processor.

    Args:
        box: of the person.
        height: of what the model takes.
        width: of what the model takes.
        factor: normalize_factor of the processor.
    """
    left, top, across, down = box
    x, y, aspect = left + across * 0.5, top + down * 0.5, width / height
    if across > aspect * down:
        down = across / aspect
    elif across < aspect * down:
        across = down * aspect
    more = 1.25 * POSE_UNIT / factor
    across, down = across * more, down * more
    return Frame(x - 0.5 * across, y - 0.5 * down, across, down)


POSE_UNIT = 200.0
"""What transformers multiplies scales by, whatever the factor is that divides them."""


def _warp(out: Layout, rule: Rule) -> None:
    height, width = rule["height"], rule["width"]
    box = (0.0, 0.0, float(out.width), float(out.height)) if out.box is None else out.box
    seen = pose_frame(box, height, width, rule["factor"])
    down, across = seen.height / max(height - 1, 1), seen.width / max(width - 1, 1)
    top, left = max(math.floor(seen.top), 0), max(math.floor(seen.left), 0)
    bottom = min(math.ceil(seen.top + seen.height) + 2, out.height)
    right = min(math.ceil(seen.left + seen.width) + 2, out.width)
    if bottom <= top or right <= left:
        raise InputError(
            f"a box lies outside of the picture, which has {out.height} x {out.width} pixels",
            "image",
            "Give a box within it.",
        )
    _window(out, top, left, bottom - top, right - left, [0, 0, 0])
    out.steps.append(
        {
            "op": "warp",
            "height": height,
            "width": width,
            "top": seen.top - top,
            "left": seen.left - left,
            "down": down,
            "across": across,
        }
    )
    _set(out, height, width)


def _window(out: Layout, top: int, left: int, height: int, width: int, color: Color) -> None:
    if top or left or height != out.height or width != out.width:
        _check(height, width)
        out.steps.append(
            {
                "op": "window",
                "top": top,
                "left": left,
                "height": height,
                "width": width,
                "color": color,
            }
        )


def _set(out: Layout, height: int, width: int) -> None:
    out.height, out.width, out.valid = height, width, (0, 0, height, width)


_OPERATIONS: dict[str, Callable[[Layout, Rule], None]] = {
    "resize": _resize,
    "crop": _crop,
    "pad": _pad,
    "frame": _frame,
    "rotate": _rotate,
    "warp": _warp,
}


def _divisor(rule: Rule) -> int:
    divisor = rule.get("divisor")
    return 1 if divisor is None else divisor


def _exact(rule: Rule, height: int, width: int) -> Size:
    return rule["height"], rule["width"]


def _shortest(rule: Rule, height: int, width: int) -> Size:
    """As torchvision's Resize of an integer with max_size."""
    short, long = rule["size"], int(rule["size"] * max(height, width) / min(height, width))
    longest, divisor = rule.get("longest"), _divisor(rule)
    if longest is not None and long > longest:
        short, long = int(longest * short / long), longest
    size = (long, short) if width <= height else (short, long)
    return -(-size[0] // divisor) * divisor, -(-size[1] // divisor) * divisor


def _longest(rule: Rule, height: int, width: int) -> Size:
    scale = rule["size"] / max(height, width)
    least = rule.get("least")
    low = 1 if least is None else least
    return max(low, round(height * scale)), max(low, round(width * scale))


def _longest_half_up(rule: Rule, height: int, width: int) -> Size:
    """As _get_preprocess_shape of SAM's processor."""
    scale = rule["size"] / max(height, width)
    return int(height * scale + 0.5), int(width * scale + 0.5)


def _aspect(rule: Rule, height: int, width: int) -> Size:
    """As get_size_with_aspect_ratio of DETR; with a divisor, of YOLOS."""
    size: float = rule["size"]
    raw: float = size
    longest, divisor = rule.get("longest"), _divisor(rule)
    if longest is not None and max(height, width) / min(height, width) * size > longest:
        raw = longest * float(min(height, width)) / max(height, width)
        size = round(raw)
    short = int(size)
    if min(height, width) == short and (divisor == 1 or height <= width):
        new = height, width
    elif width < height:
        new = int(raw * height / width), short
    else:
        new = short, int(raw * width / height)
    return new[0] // divisor * divisor, new[1] // divisor * divisor


def _fit(rule: Rule, height: int, width: int) -> Size:
    scale = min(rule["height"] / height, rule["width"] / width)
    return int(height * scale), int(width * scale)


def _letterbox(rule: Rule, height: int, width: int) -> Size:
    """As ultralytics' LetterBox."""
    scale = min(rule["height"] / height, rule["width"] / width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def _multiple(rule: Rule, height: int, width: int) -> Size:
    """As get_resize_output_image_size of DPT."""
    down, across = rule["height"] / height, rule["width"] / width
    if rule.get("keep"):
        down = across if abs(1 - across) < abs(1 - down) else down
        across = down
    multiple = rule["multiple"]

    def near(size: float) -> int:
        nearest = round(size / multiple) * multiple
        return nearest if nearest >= 0 else math.ceil(size / multiple) * multiple

    return near(down * height), near(across * width)


def _floor(rule: Rule, height: int, width: int) -> Size:
    return height // _divisor(rule) * _divisor(rule), width // _divisor(rule) * _divisor(rule)


def _bounded(rule: Rule, height: int, width: int) -> Size:
    """As get_resize_output_image_size of ViLT."""
    size, longest, divisor = rule["size"], rule["longest"], _divisor(rule)
    scale = size / min(height, width)
    new_height, new_width = (
        (float(size), scale * width) if height < width else (scale * height, float(size))
    )
    if longest is not None and max(new_height, new_width) > longest:
        scale = longest / max(new_height, new_width)
        new_height, new_width = scale * new_height, scale * new_width
    return (int(new_height + 0.5) // divisor * divisor, int(new_width + 0.5) // divisor * divisor)


def _thumbnail(rule: Rule, height: int, width: int) -> Size:
    """As DonutImageProcessor.thumbnail: never larger than the picture."""
    new_height, new_width = min(height, rule["height"]), min(width, rule["width"])
    if new_height == height and new_width == width:
        return height, width
    if height > width:
        new_width = int(width * new_height / height)
    elif width > height:
        new_height = int(height * new_width / width)
    return new_height, new_width


def _text(rule: Rule, height: int, width: int) -> Size:
    """As DetPreProcess of RapidOCR: the shorter side gets at least a length, and both sides become
    multiples of a number.
    """
    scale = max(rule["size"] / min(height, width), 1.0)
    longest, divisor = rule.get("longest"), _divisor(rule)
    if longest is not None:
        scale = min(scale, longest / max(height, width))
    high, wide = round(int(height * scale) / divisor), round(int(width * scale) / divisor)
    return max(high, 1) * divisor, max(wide, 1) * divisor


def _line(rule: Rule, height: int, width: int) -> Size:
    """A height, in the picture's proportions up to a width."""
    return rule["height"], min(math.ceil(rule["height"] * width / height), rule["width"])


def _nearest(rule: Rule, height: int, width: int) -> Size:
    """Of several sizes, the one that is most like the size that another rule gives."""
    inner = rule["of"]
    high, wide = _SIZES[inner["rule"]](inner, height, width)
    _check(high, wide)

    def difference(size: Size) -> float:
        a, b = size[0] / high, size[1] / wide
        return max(a, 1 / a) * max(b, 1 / b)

    return min(rule["sizes"], key=difference)


_SIZES: dict[str, Callable[[Rule, int, int], Size]] = {
    "exact": _exact,
    "shortest": _shortest,
    "longest": _longest,
    "longest_half_up": _longest_half_up,
    "aspect": _aspect,
    "fit": _fit,
    "letterbox": _letterbox,
    "multiple": _multiple,
    "floor": _floor,
    "bounded": _bounded,
    "thumbnail": _thumbnail,
    "nearest": _nearest,
    "text": _text,
    "line": _line,
}
