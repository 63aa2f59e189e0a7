"""`ImageProcessor`: pictures to the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ....compiler.arrays import Array, as_input
from ....compiler.processors.images import Description, layout, read_description
from ....compiler.processors.images.graph import image_graph, resampling_graph
from ....logic.images.geometry import Box, Step
from ....logic.images.taps import OWN, Filter, Taps, straight, taps
from ...media.pictures import Picture, apply_step, read_picture
from ...session import InferenceSession
from .weights import matrix

if TYPE_CHECKING:
    from ...engine import Engine

__all__ = ["ImageProcessor"]


class ImageProcessor:
    """Makes the inputs of a model from a picture, as preprocessor_config.json says.

        processor = ImageProcessor(config)
        processor("cat.png")["pixel_values"]  # float32 [1, 3, height, width]

    The picture is resized by the engine's resize_image, whose results are those of Pillow, then
    cropped and padded; a graph computes the numbers.

    Args:
        config: contents of preprocessor_config.json, or a Description.
        where: name of the file, for errors.
        engine: the Engine to use; by default that of the process.

    Attributes:
        description: of the processing.

    Raises:
        InputError: the type or a field is not supported.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | Description,
        where: str = "preprocessor_config.json",
        engine: Engine | None = None,
    ) -> None:
        self.description = (
            config if isinstance(config, Description) else read_description(config, where)
        )
        self.session = InferenceSession(image_graph(self.description), engine=engine)
        self.resampling: dict[bool, InferenceSession] = {}

    def resized(
        self, image: Any, box: Box | None = None
    ) -> tuple[Picture, tuple[int, int, int, int]]:
        """The picture before the arithmetic.

        Args:
            image: as of a call.
            box: the part of the picture that is looked at.

        Returns:
            (the picture with its final size; top, left, bottom and right of the part that is not
            padding of zeros)
        """
        picture = read_picture(image)
        done = layout(self.description.steps, picture.height, picture.width, box)
        for step in done.steps:
            picture = self._applied(picture, step)
        return picture, done.valid

    def _applied(self, picture: Picture, step: Step) -> Picture:
        if step["op"] == "warp":
            rows = straight(step["top"], step["down"], picture.height, step["height"])
            columns = straight(step["left"], step["across"], picture.width, step["width"])
            return self._resampled(picture, rows, columns, True)
        if step["op"] == "resize" and step["filter"] in OWN:
            kind = cast("Filter", step["filter"])
            rows = taps(kind, picture.height, step["height"])
            columns = taps(kind, picture.width, step["width"])
            return self._resampled(picture, rows, columns, False)
        return apply_step(picture, step)

    def _resampled(self, picture: Picture, rows: Taps, columns: Taps, half_up: bool) -> Picture:
        """The picture at another size, by taps of logic.images.taps."""
        if half_up not in self.resampling:
            made = InferenceSession(resampling_graph(half_up), engine=self.session.engine)
            self.resampling[half_up] = made
        height, width = (len(taps.at) // taps.count for taps in (rows, columns))
        feeds = {
            "pixels": Array((picture.height, picture.width, 3), "uint8", picture.pixels),
            "rows": matrix(rows, picture.height, height),
            "columns": matrix(columns, picture.width, width),
        }
        (made,) = self.resampling[half_up].run(None, feeds)
        return Picture(bytes(as_input(made, "resized")[2]), height, width)

    def __call__(self, image: Any, box: Box | None = None) -> dict[str, Any]:
        """The inputs of a model for one picture.

        Args:
            image: path of a file, its bytes, a PIL.Image, a Picture, or an array of uint8
                [height, width, 3].
            box: (left, top, width, height) of the part that is looked at, for ViTPose.

        Returns:
            {"pixel_values": float32 [1, 3, height, width]}, and "pixel_mask", int64
            [1, height, width], if the model has one

        Raises:
            InputError: the picture is damaged, empty or too large.
        """
        picture, valid = self.resized(image, box)
        shape = (picture.height, picture.width, 3)
        feeds: dict[str, Any] = {"pixels": Array(shape, "uint8", picture.pixels)}
        if self.description.frame:
            feeds["valid"] = list(valid)
        values = self.session.run(None, feeds)
        return dict(zip(self.session.outputs, values))

    def close(self) -> None:
        """Frees the memory of the graph."""
        self.session.free()
        for session in self.resampling.values():
            session.free()
