"""depth-estimation. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

from typing import Any

from ....compiler.arrays import as_input
from ....logic.tasks.pictures import DEPTHS, check_one_plane
from ...media.pictures import Picture, to_pillow
from .base import ImagePipeline

__all__ = ["DepthEstimationPipeline"]


class DepthEstimationPipeline(ImagePipeline):
    """Estimates the depth of each pixel: DPT, Depth Anything 1 to 3 (one picture at a time), GLPN.

    Returns:
        {"predicted_depth": float32 [height, width] of the picture, "depth": PIL.Image of mode L, in
        which the least value is 0 and the greatest 255 (without Pillow an array of uint8)} for each
        picture
    """

    task = "depth-estimation"

    def one(self, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        picture = self.picture(given)
        name = self.need_output(self.STEM, *DEPTHS)
        plane = self.planes(self.forward(picture, name)[0], picture)
        check_one_plane(plane.shape, self.task)
        size = (picture.height, picture.width)
        feeds = {"x": plane.array(1, 1, *plane.shape[-2:]), "size": list(size)}
        depth, gray = self.graphs.run("depth", feeds)
        pixels = bytes(as_input(gray, "depth")[2])
        return {"predicted_depth": depth, "depth": to_pillow(Picture(pixels, *size, 1))}
