"""Image processors whose results have certain sizes, since the plans of a package do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....errors import UnsupportedOp
from ....logic.images.geometry import Size, layout
from .description import Description

__all__ = ["with_mirrors", "with_sizes"]

# Height and width of pictures, for whose shapes a package has plans: 1:1, 4:3, 3:2, 16:9, and
# upright ones.
PICTURES = [(640, 640)] + [size for side in (480, 427, 360) for size in ((side, 640), (640, side))]
FRAMES = [(480, 640), (640, 480)]
MIRRORED = [(64, 64), (128, 128), (192, 256), (256, 192), (256, 256)]
STEP = 32  # sizes of frames are multiples of it
LONGEST = 2.0  # length of frames by their height, where the processor has no limit


def with_sizes(
    description: Description, masked: bool, size: Size | None, where: str
) -> tuple[Description, list[Size]]:
    """A processor whose results have some of a few sizes.

    A processor that gives one size stays as it is. If the model has a mask, other pictures are
    padded up to one of a few frames, as transformers pads the pictures of a batch. Without a mask
    they are resized to the size that is most like the one that the processor would give.

    Args:
        description: of the processor.
        masked: whether the model has an input `pixel_mask`.
        size: the only size that the model takes, if there is one.
        where: name of the file, for errors.

    Returns:
        (the description, the sizes of its results)

    Raises:
        UnsupportedOp: the steps of the processor do not end with a resize.
    """
    steps = [_certain(step) for step in description.steps]
    description = replace(description, steps=steps)
    if description.size is not None:
        return description, [description.size]
    if masked and size is None and steps and steps[-1]["op"] == "resize":
        steps[-1] = rule = _limited(steps[-1])
        sizes = _frames(steps, rule)
        frame = {"op": "frame", "rule": "among", "sizes": [list(s) for s in sizes]}
        return replace(description, steps=[*steps, frame], frame=True), sizes
    if not steps or steps[-1]["op"] != "resize":
        raise UnsupportedOp(
            "the size of its result depends on the picture in a way that packages do not have",
            where,
            "Set size to a height and a width, or do_center_crop with crop_size.",
        )
    sizes = [size] if size is not None else _sizes(steps, PICTURES)
    last = steps[-1]
    steps[-1] = {
        "op": "resize",
        "rule": "nearest",
        "filter": last["filter"],
        "of": last,
        "sizes": [list(s) for s in sizes],
    }
    return description, sizes


def with_mirrors(description: Description, size: Size | None) -> tuple[Description, list[Size]]:
    """A processor whose results have some of a few sizes, to which pictures are continued by their
    mirror image. For models that make pictures of pictures, which must not be resized.

    Args:
        description: of the processor.
        size: the only size that the model takes, if there is one.

    Returns:
        (the description, the sizes of its results)
    """
    if description.size is not None:
        return description, [description.size]
    sizes = MIRRORED if size is None else [size]
    pad = {"op": "pad", "rule": "among", "sizes": [list(s) for s in sizes]}
    return replace(description, steps=[*description.steps, pad]), sizes


def _certain(step: dict[str, Any]) -> dict[str, Any]:
    """A step that gives one size, without saying so, as "exact"."""
    if step["op"] != "resize" or step["rule"] != "multiple" or step["keep"]:
        return step
    multiple = step["multiple"]
    if any(step[side] / multiple % 1 == 0.5 for side in ("height", "width")):
        return step
    height, width = (round(step[side] / multiple) * multiple for side in ("height", "width"))
    return {
        "op": "resize",
        "rule": "exact",
        "height": height,
        "width": width,
        "filter": step["filter"],
    }


def _sizes(steps: Sequence[dict[str, Any]], pictures: Sequence[Size]) -> list[Size]:
    """The sizes of the results for pictures, the smallest first."""
    done = {(out.height, out.width) for out in (layout(steps, *size) for size in pictures)}
    return sorted(done, key=lambda s: (s[0] * s[1], s))


def _limited(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule whose results are not longer than a frame."""
    if rule["rule"] in ("shortest", "aspect") and rule.get("longest") is None:
        return {**rule, "longest": int(LONGEST * rule["size"])}
    return rule


def _frames(steps: Sequence[dict[str, Any]], rule: dict[str, Any]) -> list[Size]:
    """Frames for pictures of 4:3, and for the longest."""
    sizes = _sizes(steps, FRAMES)
    longest = rule.get("longest")
    if longest is not None:
        sizes += [(rule["size"], longest), (longest, rule["size"])]
    up = {(-(-h // STEP) * STEP, -(-w // STEP) * STEP) for h, w in sizes}
    return sorted(up, key=lambda s: (s[0] * s[1], s))
