"""`ImageProcessor`: pictures to the inputs of a model."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input
from ....compiler.processors.images import Description, layout, read_description
from ....compiler.processors.images.graph import image_graph, resampling_graph
from ....logic.images.taps import OWN, taps
from ...media.pictures import Picture, apply_step, read_picture
from ...session import InferenceSession

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
        self.resampling: InferenceSession | None = None

    def resized(self, image: Any) -> tuple[Picture, tuple[int, int, int, int]]:
        """The picture before the arithmetic.

        Args:
            image: as of a call.

        Returns:
            (the picture with its final size; top, left, bottom and right of the part that is not
            padding of zeros)
        """
        picture = read_picture(image)
        done = layout(self.description.steps, picture.height, picture.width)
        for step in done.steps:
            own = step["op"] == "resize" and step["filter"] in OWN
            picture = self._resampled(picture, step) if own else apply_step(picture, step)
        return picture, done.valid

    def _resampled(self, picture: Picture, step: Any) -> Picture:
        """The picture at another size, with a filter of logic.images.taps."""
        if self.resampling is None:
            self.resampling = InferenceSession(resampling_graph(), engine=self.session.engine)
        height, width = step["height"], step["width"]
        feeds = {
            "pixels": Array((picture.height, picture.width, 3), "uint8", picture.pixels),
            "rows": _matrix(step["filter"], picture.height, height),
            "columns": _matrix(step["filter"], picture.width, width),
        }
        (made,) = self.resampling.run(None, feeds)
        return Picture(bytes(as_input(made, "resized")[2]), height, width)

    def __call__(self, image: Any) -> dict[str, Any]:
        """The inputs of a model for one picture.

        Args:
            image: path of a file, its bytes, a PIL.Image, a Picture, or an array of uint8
                [height, width, 3].

        Returns:
            {"pixel_values": float32 [1, 3, height, width]}, and "pixel_mask", int64
            [1, height, width], if the model has one

        Raises:
            InputError: the picture is damaged, empty or too large.
        """
        picture, valid = self.resized(image)
        shape = (picture.height, picture.width, 3)
        feeds: dict[str, Any] = {"pixels": Array(shape, "uint8", picture.pixels)}
        if self.description.frame:
            feeds["valid"] = list(valid)
        values = self.session.run(None, feeds)
        return dict(zip(self.session.outputs, values))

    def close(self) -> None:
        """Frees the memory of the graph."""
        self.session.free()
        if self.resampling is not None:
            self.resampling.free()


def _matrix(name: Any, size: int, out: int) -> Array:
    """The weights of the source's rows for those of the result: float32 [out, size]."""
    found, rows = taps(name, size, out), array("f", bytes(4 * size * out))
    for i, (at, weight) in enumerate(zip(found.at, found.weights)):
        rows[i // found.count * size + at] += weight
    return Array((out, size), "float32", rows.tobytes())
