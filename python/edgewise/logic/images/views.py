"""What a model sees of a picture of any size: views of it, and the pieces that they are cut into.

A vision-language model sees tiles, patches or the whole picture. A rule chooses the views for the
size of a picture; `pieces` says in which order they are cut. The host moves the bytes, and a plan
computes the numbers of all pieces of a picture at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from ...errors import InputError
from .geometry import Rule, Size, Step, Window, layout

Form = Literal["planes", "patches", "rows"]


class ViewRule(TypedDict, total=False):
    """A rule that chooses views: its name, and its numbers.

    Rules:
        whole: the picture, after `steps`.
        split: Idefics3. Tiles of `tile` pixels of a picture whose longer side has `longest`.
        smart: Qwen2-VL. Sides are multiples of `patch` * `merge`; between `least` and `most`
            pixels. With `frames`, of GLM: each pixel counts so often, and a picture with a side
            below a multiple is enlarged first.
        patches: Pixtral. At most `longest` pixels long; sides are multiples of `patch`.
        tiles: LFM2-VL. Sides are multiples of `unit`. A picture with more than `limit` pixels
            becomes the grid of tiles of `grids` (columns, rows) that is most like it, and a view
            of the whole. Pieces have `patch` pixels, and a view has room for `room` of them.
        scan: Gemma 3. A view of `height` and `width`. With `scan`, pictures that are at least
            `ratio` times longer than wide are also cut into up to `tiles` parts of at least
            `shortest` pixels.
        naflex: SigLIP 2. The largest size in about the picture's proportions whose sides are
            multiples of `patch`, and which has at most `room` patches.
        anyres: LLaVA-OneVision. A view of the whole, and the picture at the best of several
            `sizes`, in tiles.
    """

    rule: str
    steps: list[Rule]
    filter: str
    resize: bool
    split: bool
    tile: int
    longest: int
    patch: int
    merge: int
    least: int
    most: int
    frames: int
    unit: int
    limit: float
    room: int
    grids: list[Size]
    thumbnail: bool
    height: int
    width: int
    scan: bool
    ratio: float
    tiles: int
    shortest: int
    sizes: list[Size]


@dataclass
class View:
    """A part of what a model sees.

    Attributes:
        steps: what is done to the picture.
        height, width: of the result, in pixels.
    """

    steps: list[Step]
    height: int
    width: int


@dataclass
class Seen:
    """What a model sees of one picture.

    Attributes:
        views: in order.
        piece: height and width of the pieces that views are cut into.
        merge: sides of the squares of pieces that follow one another; 1: row by row.
        rows, columns: of tiles; 0: the picture is not divided.
        size: height and width of the picture.
        resized: of the picture as a whole, as the model sees it.
        whole: whether a view of the whole picture follows those of its tiles.
        room: pieces that each view is filled up to with zeros; 0: as many as it has.
    """

    views: list[View]
    piece: Size
    size: Size
    resized: Size
    rows: int = 0
    columns: int = 0
    whole: bool = False
    merge: int = 1
    room: int = 0


@dataclass
class Further:
    """A further input of a model for one picture.

    Attributes:
        name: of the input.
        dims: of it.
        runs: (value, how often), in order.
    """

    name: str
    dims: list[int]
    runs: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Piece:
    """A piece of a view: rows and columns from `top` and `left` on."""

    top: int
    left: int


MAX_PIECES = 1 << 17
"""Pieces of a picture."""


def seen(rule: ViewRule, height: int, width: int) -> Seen:
    """What a model sees of a picture.

    Args:
        rule: of the processor.
        height, width: of the picture.

    Raises:
        InputError: the picture is empty, too large or too long.
    """
    layout([], height, width)
    out = _RULES[rule["rule"]](rule, height, width)
    if count_pieces(out) > MAX_PIECES:
        raise InputError(
            f"a picture of {height} x {width} pixels has more than {MAX_PIECES} patches",
            "image",
            "Reduce it before, or set a smaller size in preprocessor_config.json.",
        )
    return out


def count_pieces(picture: Seen) -> int:
    """Pieces of all views, without zeros."""
    high, wide = picture.piece
    return sum([(v.height // high) * (v.width // wide) for v in picture.views])


def pieces(picture: Seen, view: View) -> list[Piece]:
    """The pieces of a view, in order: square by square, each row by row."""
    high, wide = picture.piece
    merge = picture.merge
    out: list[Piece] = []
    for top in range(0, view.height, high * merge):
        for left in range(0, view.width, wide * merge):
            for row in range(merge):
                for column in range(merge):
                    out.append(Piece(top + row * high, left + column * wide))
    return out


def _to(steps: Sequence[Step], height: int, width: int, have: Size, name: str) -> list[Step]:
    """The steps, and a resize where the size differs. have: height and width before."""
    if (height, width) == (have[0], have[1]):
        return list(steps)
    resize: Step = {"op": "resize", "height": height, "width": width, "filter": name}
    return [*steps, resize]


def _one(rule: ViewRule, steps: list[Step], size: Size, given: Size) -> Seen:
    """One view of the whole picture, uncut."""
    return Seen([View(steps, size[0], size[1])], size, given, size)


def _whole(rule: ViewRule, height: int, width: int) -> Seen:
    done = layout(rule["steps"], height, width)
    return _one(rule, done.steps, (done.height, done.width), (height, width))


MAX_SIDE = 4096
"""Pixels of a side of a picture that Idefics3 divides."""


def _split(rule: ViewRule, height: int, width: int) -> Seen:
    """As Idefics3ImageProcessor."""
    tile, name = rule["tile"], rule["filter"]
    steps: list[Step] = []
    have = (height, width)
    if rule["resize"]:
        high, wide = _below(_longer(height, width, rule["longest"]))
        steps = _to(steps, high, wide, have, name)
        have = (high, wide)
    if not rule["split"]:
        steps = _to(steps, tile, tile, have, name)
        return Seen([View(steps, tile, tile)], (tile, tile), (height, width), (tile, tile))
    high, wide = have
    ratio = wide / high
    if wide >= high:
        wide = math.ceil(wide / tile) * tile
        high = math.ceil(int(wide / ratio) / tile) * tile
    else:
        high = math.ceil(high / tile) * tile
        wide = math.ceil(int(high * ratio) / tile) * tile
    high, wide = max(high, tile), max(wide, tile)
    steps = _to(steps, high, wide, have, name)
    layout([], high, wide)
    if high == tile and wide == tile:
        return Seen([View(steps, tile, tile)], (tile, tile), (height, width), (tile, tile))
    views = [View(steps, high, wide), View(_to(steps, tile, tile, (0, 0), name), tile, tile)]
    rows, columns = high // tile, wide // tile
    return Seen(views, (tile, tile), (height, width), (tile, tile), rows, columns, True)


def _longer(height: int, width: int, longest: int) -> Size:
    """The size whose longer side is `longest`; the other side is even."""
    ratio = width / height
    if width >= height:
        high = int(longest / ratio)
        return max(high + high % 2, 1), longest
    wide = int(longest * ratio)
    return longest, max(wide + wide % 2, 1)


def _below(size: Size) -> Size:
    """The size whose longer side has at most MAX_SIDE pixels."""
    high, wide = size
    ratio = wide / high
    if wide >= high and wide > MAX_SIDE:
        return max(int(MAX_SIDE / ratio), 1), MAX_SIDE
    if high > wide and high > MAX_SIDE:
        return MAX_SIDE, max(int(MAX_SIDE * ratio), 1)
    return size


MAX_RATIO = 200
"""How many times longer than high, or higher than long, a picture of Qwen2-VL may be."""


def _smart(rule: ViewRule, height: int, width: int) -> Seen:
    """As Qwen2VLImageProcessor and Glm46VImageProcessor."""
    patch, merge, frames = rule["patch"], rule["merge"], rule["frames"]
    high, wide = height, width
    if rule["resize"]:
        if frames and min(height, width) < patch * merge:
            scale = max(patch * merge / height, patch * merge / width)
            high, wide = int(height * scale), int(width * scale)
        if max(high, wide) / min(high, wide) > MAX_RATIO:
            raise InputError(
                f"a picture of {height} x {width} pixels is more than {MAX_RATIO} times longer"
                " than wide",
                "image",
                "Cut it to a shape that is less long.",
            )
        least, most = rule["least"], rule["most"]
        high, wide = smart_size(high, wide, patch * merge, least, most, 0, frames if frames else 1)
    elif height % (patch * merge) or width % (patch * merge):
        raise InputError(
            f"the sides of a picture of {height} x {width} pixels are no multiples of"
            f" {patch * merge}",
            "image",
            "Set do_resize in preprocessor_config.json, or give another picture.",
        )
    steps = _to([], high, wide, (height, width), rule["filter"])
    layout([], high, wide)
    view = View(steps, high, wide)
    return Seen([view], (patch, patch), (height, width), (high, wide), merge=merge)


def smart_size(
    height: int, width: int, factor: int, least: int, most: int, low: int, frames: int = 1
) -> Size:
    """The size most like a picture's whose sides are multiples of a number.

    Args:
        height, width: of the picture.
        factor: the number.
        least, most: pixels of the result.
        low: least length of a side before these limits.
        frames: how often each pixel counts. The encoder sees two at once.
    """
    counted = 2 * round(frames / 2) if frames > 1 else frames
    high = max(low, round(height / factor) * factor)
    wide = max(low, round(width / factor) * factor)
    if counted * high * wide > most:
        beta = math.sqrt(frames * height * width / most)
        high = max(factor, math.floor(height / beta / factor) * factor)
        wide = max(factor, math.floor(width / beta / factor) * factor)
    elif counted * high * wide < least:
        beta = math.sqrt(least / (frames * height * width))
        high = math.ceil(height * beta / factor) * factor
        wide = math.ceil(width * beta / factor) * factor
    return high, wide


def _patches(rule: ViewRule, height: int, width: int) -> Seen:
    """As PixtralImageProcessor."""
    patch, ratio = rule["patch"], max(height, width) / rule["longest"]
    high, wide = height, width
    if rule["resize"]:
        if ratio > 1:
            high, wide = math.floor(height / ratio), math.floor(width / ratio)
        # A picture without a row is one row of patches there, too.
        high, wide = ((high - 1) // patch + 1) * patch, ((wide - 1) // patch + 1) * patch
        high, wide = max(high, patch), max(wide, patch)
    steps = _to([], high, wide, (height, width), rule["filter"])
    return Seen([View(steps, high, wide)], (high, wide), (height, width), (high, wide))


def _tiles(rule: ViewRule, height: int, width: int) -> Seen:
    """As Lfm2VlImageProcessor."""
    unit, patch, name, tile = rule["unit"], rule["patch"], rule["filter"], rule["tile"]
    given = (height, width)
    high, wide = smart_size(height, width, unit, rule["least"], rule["most"], unit)
    whole = View(_to([], high, wide, given, name), high, wide)
    rough = max(patch, round(height / unit) * unit) * max(patch, round(width / unit) * unit)
    out = Seen([whole], (patch, patch), given, (high, wide), room=rule["room"])
    if rule["split"] and rough > rule["limit"]:
        columns, rows = _grid(rule, height, width)
        tall, broad = rows * tile, columns * tile
        steps = _to([], tall, broad, given, name)
        views: list[View] = []
        for row in range(rows):
            for column in range(columns):
                cut = _part(row * tile, column * tile, tile, tile)
                views.append(View([*steps, cut] if rows * columns > 1 else steps, tile, tile))
        if rule["thumbnail"] and rows * columns > 1:
            views.append(whole)
            out.whole = True
        out.views, out.rows, out.columns = views, rows, columns
        if rows * columns == 1:
            out.rows, out.columns, out.resized = 0, 0, (tile, tile)
    if max([v.height * v.width for v in out.views]) > rule["room"] * patch * patch:
        raise InputError(
            f"a picture of {height} x {width} pixels has more than {rule['room']} patches",
            "image",
            "Cut it to a shape that is less long.",
        )
    return out


def _naflex(rule: ViewRule, height: int, width: int) -> Seen:
    """As Siglip2ImageProcessor, whose search for the size it repeats."""
    patch, room = rule["patch"], rule["room"]
    low, high = NEAR / 10, 100.0
    while high - low >= NEAR:
        middle = (low + high) / 2
        if _scaled(height, middle, patch) * _scaled(width, middle, patch) <= room:
            low = middle
        else:
            high = middle
    rows, columns = _scaled(height, low, patch), _scaled(width, low, patch)
    if rows * columns > room:
        raise InputError(
            f"a picture of {height} x {width} pixels has more than {room} patches",
            "image",
            "Cut it to a shape that is less long.",
        )
    size = (rows * patch, columns * patch)
    layout([], size[0], size[1])
    view = View(_to([], size[0], size[1], (height, width), rule["filter"]), size[0], size[1])
    return Seen([view], (patch, patch), (height, width), size, room=room)


NEAR = 1e-5
"""The scale of a picture is sought until two of them are as near as this."""


def _scaled(side: int, scale: float, patch: int) -> int:
    """Patches along a side."""
    return max(1, math.ceil(side * scale / patch))


def _grid(rule: ViewRule, height: int, width: int) -> Size:
    """Columns and rows of the grid that is most like a picture; of equals, one that its pixels
    fill by half.
    """
    ratio, area, tile = width / height, width * height, rule["tile"]
    best, nearest = (1, 1), math.inf
    for columns, rows in rule["grids"]:
        difference = abs(ratio - columns / rows)
        full = area > 0.5 * tile * tile * columns * rows
        if difference < nearest or (difference == nearest and full):
            best, nearest = (columns, rows), difference
    return best


def _part(top: int, left: int, height: int, width: int) -> Window:
    return {
        "op": "window",
        "top": top,
        "left": left,
        "height": height,
        "width": width,
        "color": [0, 0, 0],
    }


def _scan(rule: ViewRule, height: int, width: int) -> Seen:
    """As Gemma3ImageProcessor."""
    size = (rule["height"], rule["width"])
    name = rule["filter"]

    def view(steps: list[Step], have: Size) -> View:
        return View(_to(steps, size[0], size[1], have, name), size[0], size[1])

    out = Seen([view([], (height, width))], size, (height, width), size)
    if not rule["scan"] or max(height, width) / min(height, width) < rule["ratio"]:
        return out
    long, short = max(height, width), min(height, width)
    count = min(long // rule["shortest"], math.floor(long / short + 0.5))
    count = min(rule["tiles"], max(2, count))
    part = math.ceil(long / count)
    if min(part, short) < rule["shortest"]:
        return out
    for i in range(count):
        size_of_part = min(part, long - i * part)
        if width >= height:
            cut, have = _part(0, i * part, height, size_of_part), (height, size_of_part)
        else:
            cut, have = _part(i * part, 0, size_of_part, width), (size_of_part, width)
        out.views.append(view([cut], have))
    return out


def _anyres(rule: ViewRule, height: int, width: int) -> Seen:
    """As LlavaOnevisionImageProcessor."""
    tile, name, given = rule["tile"], rule["filter"], (height, width)
    tall, broad = best_size(rule["sizes"], height, width)
    down, across = tall / height, broad / width
    if across < down:
        high, wide = min(math.ceil(height * across), tall), broad
    else:
        high, wide = tall, min(math.ceil(width * down), broad)
    steps = _to([], high, wide, given, name)
    if (high, wide) != (tall, broad):
        top, left = (tall - high) // 2, (broad - wide) // 2
        steps = [*steps, _part(0 - top, 0 - left, tall, broad)]
    views = [View(_to([], tile, tile, given, name), tile, tile), View(steps, tall, broad)]
    return Seen(views, (tile, tile), given, (tile, tile), tall // tile, broad // tile)


def best_size(sizes: Sequence[Size], height: int, width: int) -> Size:
    """Of several sizes, the one that keeps most of a picture, then the smallest.

    Args:
        sizes: heights and widths.
        height, width: of the picture.
    """
    best, kept, lost = sizes[0], -1, 0
    for size in sizes:
        high, wide = size[0], size[1]
        scale = min(wide / width, high / height)
        part = min(int(width * scale) * int(height * scale), width * height)
        rest = high * wide - part
        if part > kept or (part == kept and rest < lost):
            best, kept, lost = (high, wide), part, rest
    return best


_RULES: dict[str, Callable[[ViewRule, int, int], Seen]] = {
    "whole": _whole,
    "split": _split,
    "smart": _smart,
    "patches": _patches,
    "tiles": _tiles,
    "naflex": _naflex,
    "scan": _scan,
    "anyres": _anyres,
}


def further_inputs(names: Sequence[str], picture: Seen) -> list[Further]:
    """The inputs of a model for one picture, beside the numbers of its pixels.

    Args:
        names: of the inputs that the model has.
        picture: what it sees.
    """
    high, wide = picture.piece
    grids = [(v.height // high, v.width // wide) for v in picture.views]
    count, room = count_pieces(picture), picture.room
    out: list[Further] = []
    for name in names:
        runs: list[tuple[int, int]] = []
        if name == "pixel_attention_mask" and room:
            for rows, columns in grids:
                runs += [(1, rows * columns), (0, room - rows * columns)]
            out.append(Further(name, [len(grids), room], runs))
        elif name == "pixel_attention_mask":
            out.append(Further(name, [1, count, high, wide], [(1, count * high * wide)]))
        elif name == "spatial_shapes":
            for rows, columns in grids:
                runs += [(rows, 1), (columns, 1)]
            out.append(Further(name, [len(grids), 2], runs))
        elif name == "image_sizes":
            size = picture.size if len(grids) > 1 else picture.resized
            out.append(Further(name, [1, 2], [(size[0], 1), (size[1], 1)]))
        elif name in ("image_grid_thw", "grid_thw"):
            runs = [(1, 1), (grids[0][0], 1), (grids[0][1], 1)]
            out.append(Further(name, [1, 3], runs))
    return out


def pixel_dims(form: Form, temporal: int, picture: Seen, rank: int) -> list[int]:
    """Dimensions of a model's `pixel_values` for one picture.

    Args:
        form: of its processor.
        temporal: how often each patch is there.
        picture: what it sees.
        rank: how many dimensions the input has; 5: pictures, tiles, channels, rows, columns.
    """
    high, wide = picture.piece
    count = count_pieces(picture)
    if picture.room:
        dims = [len(picture.views), picture.room]
    else:
        dims = [count]
    if form == "planes":
        dims += [3, high, wide]
    else:
        dims.append(3 * temporal * high * wide)
    return [1] * max(0, rank - len(dims)) + dims
