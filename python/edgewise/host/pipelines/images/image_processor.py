"""`ImageProcessor`: pictures to the inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array
from ....compiler.processors.images import Description, layout, read_description
from ....compiler.processors.images.graph import image_graph
from ...media.pictures import Picture, apply, read_picture
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
        return apply(picture, done), done.valid

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
