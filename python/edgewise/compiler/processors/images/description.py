"""The description of an image processor: JSON that a page's worker applies as Python does."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, cast

from ....logic.manifest.processor import ImageFields

__all__ = ["Description"]

FIXED = ("exact", "center", "corner", "middle", "letterbox", "box", "split")
"""Rules whose results have their height and width."""


@dataclass
class Description:
    """What an image processor does.

    A picture is uint8 [height, width, 3]. First `steps` (see `layout` in geometry.py) change its
    size, then the graph computes `x * scale + bias` in float32 for each channel, and the result is
    [1, 3, height, width].

    Attributes:
        type: image_processor_type, without "Fast".
        steps: {"op": "resize", "rule", "filter", ...}, {"op": "crop", "rule", ...},
            {"op": "pad", "rule", "color", ...}, {"op": "frame", "rule", ...} (padding that is zero
            after normalization), {"op": "rotate", "height", "width"} and {"op": "warp", "rule":
            "box", "height", "width", "factor"}.
        scale, bias: of each channel, in the order of the output.
        flip: whether the output's channels are blue, green, red.
        frame: whether there may be padding that is zero after normalization.
        mask: whether the model has an input pixel_mask: int64 [1, height, width], 1 in the picture.
        gray: whether all channels get the brightness, as SuperPoint computes it.
    """

    type: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    scale: list[float] = field(default_factory=lambda: [1.0, 1.0, 1.0])
    bias: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    flip: bool = False
    frame: bool = False
    mask: bool = False
    gray: bool = False

    def to_dict(self) -> ImageFields:
        """As JSON."""
        return cast("ImageFields", asdict(self))

    @staticmethod
    def from_dict(value: ImageFields) -> Description:
        """A description that `to_dict` returned."""
        return Description(**cast("dict[str, Any]", value))

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the result, if they are the same for every picture."""
        for step in reversed(self.steps):
            if step["op"] == "rotate" or step["rule"] in ("fraction", "thumbnail"):
                continue
            if step["rule"] in FIXED and (step["op"] != "resize" or step["rule"] == "exact"):
                return step["height"], step["width"]
            return None
        return None
