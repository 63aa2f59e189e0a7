"""image-to-image. Mirrors transformers' pipeline of this name."""

from __future__ import annotations

from typing import Any

from ....compiler.arrays import as_input
from ....compiler.task_package.images import PLAIN
from ....logic.tasks.inputs import choose_output
from ....logic.tasks.pictures import PAINTED, painted_channels
from ...media.pictures import Picture, to_pillow
from .base import ImagePipeline

__all__ = ["ImageToImagePipeline"]


class ImageToImagePipeline(ImagePipeline):
    """Makes a picture of a picture: Swin2SR and other models of super-resolution, denoising or
    style, whose input and output are [1, channels, height, width] of 0 to 1.

    Returns:
        a PIL.Image for each picture, of mode RGB or L (without Pillow an array of uint8); as in
        transformers with the margin that the image processor adds
    """

    task = "image-to-image"

    def default_processor(self) -> dict[str, Any]:
        return PLAIN

    def one(self, given: Any, options: dict[str, Any]) -> Any:
        picture, names = self.picture(given), list(self.session(self.STEM).outputs)
        name = names[0] if len(names) == 1 else choose_output(names, [PAINTED], self.task)
        (made,) = self.forward(picture, name)
        channels = painted_channels(as_input(made, "output")[1], self.task)
        plane = self.planes(made, picture)
        height, width = plane.shape[-2:]
        feeds = {"x": plane.array(1, channels, height, width)}
        (painted,) = self.graphs.run("painted", feeds)
        pixels = bytes(as_input(painted, "picture")[2])
        return to_pillow(Picture(pixels, height, width, channels))
