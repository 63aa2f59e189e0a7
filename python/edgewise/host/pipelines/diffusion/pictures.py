"""Pictures before and after the latents of a diffusion model: its encoder and decoder, and the
safety checker.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import Array, as_input, as_output
from ....compiler.declare.dtypes import FLOAT, UINT8
from ....compiler.processors.diffusion.facts import SAFETY_CONFIG, json_of
from ....compiler.processors.diffusion.graphs import picture_graph, pixels_graph
from ....errors import InputError
from ....logic.diffusion.denoising import Inpainted, for_decoder
from ....logic.diffusion.masks import latent_mask, mask_of, without_masked
from ....logic.diffusion.options import DrawOptions
from ...media.pictures import Picture, read_picture, to_pillow
from ...media.resampling import resize_image
from .parts import array_of, floats

if TYPE_CHECKING:
    from ..text_to_image import TextToImagePipeline

__all__ = ["Pictures"]


class Pictures:
    """The pictures of a pipeline.

    Args:
        pipe: the pipeline.
        safety_checker: False: none is used; True: it is needed; None: the model's, if any.

    Raises:
        InputError: there is none, or its preprocessor_config.json is missing.
    """

    def __init__(self, pipe: TextToImagePipeline, safety_checker: bool | None) -> None:
        self.pipe = pipe
        self.safety = self._safety(safety_checker)

    def inpainted(
        self, given: Any, mask: Any, asked: DrawOptions, images: int, size: tuple[int, int]
    ) -> Inpainted:
        """The pictures of inpainting.

        Args:
            given: a picture, or several.
            mask: a picture: white is made anew.
            asked: options of the call.
            images: how many are made.
            size: height and width of the latents.
        """
        facts = self.pipe.facts
        height, width = (n * facts.scale for n in size)
        pictures = self._read(given, asked, images)
        white = mask_of(_resized(read_picture(mask), height, width), height * width)
        encoded, without = [], []
        with self.pipe.part("vae_encoder") as part:
            for picture in pictures:
                sample = self._sample(picture, height, width)
                shape = [3, height, width]
                encoded += part.rows([{"sample": (shape, sample)}])
                if facts.inputs != facts.channels:
                    without += part.rows([{"sample": (shape, without_masked(sample, white))}])
        return Inpainted(
            encoded,
            without,
            latent_mask(white, *size, facts.scale),
            facts.channels,
            facts.factor,
            facts.inputs != facts.channels,
        )

    def _read(self, given: Any, asked: DrawOptions, images: int) -> list[Picture]:
        given = list(given) if isinstance(given, (list, tuple)) else [given]
        pictures = [read_picture(one) for one in given]
        asked.check_pictures(len(pictures), images)
        return pictures

    def _sample(self, picture: Picture, height: int, width: int) -> array[float]:
        """The encoder's input: [3, height, width]."""
        pixels = _resized(picture, height, width)
        (sample,) = self.pipe.small("pixels", pixels_graph).run(
            ["sample"], {"pixels": Array((height, width, 3), "uint8", pixels)}
        )
        return floats(sample)[1]

    def encoded(
        self, given: Any, asked: DrawOptions, images: int
    ) -> tuple[list[array[float]], int, int]:
        """(outputs of the encoder for the pictures, height and width of the latents)."""
        pictures = self._read(given, asked, images)
        first = pictures[0]
        height, width = (
            n - n % self.pipe.facts.scale
            for n in (asked.height or first.height, asked.width or first.width)
        )
        if not height or not width:
            raise InputError(
                "the picture is too small", "image", f"It needs {self.pipe.facts.scale} pixels."
            )
        asked.check_size(height, width)
        made = []
        with self.pipe.part("vae_encoder") as part:
            for picture in pictures:
                sample = self._sample(picture, height, width)
                made += part.rows([{"sample": ([3, height, width], sample)}])
        scale = self.pipe.facts.scale
        return made, height // scale, width // scale

    def decoded(
        self, latents: Sequence[Sequence[float]], height: int, width: int, output_type: str
    ) -> tuple[Any, list[bool] | None]:
        """(pictures, what the safety checker found), one picture at a time."""
        shape = [self.pipe.facts.channels, height, width]
        factor, shift = self.pipe.facts.factor, self.pipe.facts.shift
        made: list[tuple[Any, Any]] = []
        graph = self.pipe.small("picture", picture_graph)
        with self.pipe.part("vae_decoder") as part:
            for row in latents:
                scaled = for_decoder(row, factor, shift)
                (sample,) = part.rows([{"latent_sample": (shape, scaled)}], ("sample",))
                size = [1, 3, height * self.pipe.facts.scale, width * self.pipe.facts.scale]
                outputs = graph.run(["image", "pixels"], {"sample": array_of(size, sample)})
                made.append((outputs[0], outputs[1]))
        found = self._checked(made) if self.safety is not None else None
        for i, unsafe in enumerate(found or ()):
            if unsafe:
                made[i] = (_black(made[i][0], FLOAT), _black(made[i][1], UINT8))
        if output_type == "np":
            parts = [as_input(image, "image") for image, _ in made]
            data = b"".join(bytes(p[2]) for p in parts)
            return as_output(FLOAT, [len(parts), *parts[0][1]], data), found
        pictures = []
        for _, pixels in made:
            _, (rows, columns, _), data = as_input(pixels, "pixels")
            pictures.append(to_pillow(Picture(bytes(data), rows, columns)))
        return pictures, found

    def _checked(self, made: Sequence[tuple[Any, Any]]) -> list[bool]:
        """Whether the safety checker refuses a picture, for each."""
        found = []
        with self.pipe.part("safety_checker") as part:
            for image, pixels in made:
                _, (height, width, _), data = as_input(pixels, "pixels")
                inputs = self.safety(Picture(bytes(data), height, width))
                shape, numbers = floats(inputs["pixel_values"])
                feeds = {"clip_input": part.feed("clip_input", shape, numbers)}
                if part.has("images"):
                    _, row = floats(image)
                    feeds["images"] = part.feed("images", [1, height, width, 3], row)
                _, flags = part.run(feeds, ("has_nsfw_concepts",))
                found.append(any(flags))
        return found

    def _safety(self, wanted: bool | None) -> Any:
        """The image processor of the safety checker; None if none is used."""
        if wanted is not None and type(wanted) is not bool:
            raise InputError(f"{wanted!r} is not a bool", "safety_checker", "Give False or None.")
        if wanted is False:
            return None
        if not self.pipe.has("safety_checker"):
            if wanted:
                raise InputError(
                    "the model has none", "safety_checker", "Put its graph into safety_checker/."
                )
            if self.pipe.facts.checked:
                warnings.warn(
                    "the model has no safety checker: its pictures are not checked. Check what you"
                    " show to others, or pass safety_checker=False",
                    stacklevel=4,
                )
            return None
        from ..images.image_processor import ImageProcessor

        files = self.pipe.files
        config = json_of(files.read(SAFETY_CONFIG) if files else None, SAFETY_CONFIG)
        if not config:
            raise InputError(
                "the safety checker needs it", SAFETY_CONFIG, "Copy it from the model."
            )
        return ImageProcessor(config, SAFETY_CONFIG, engine=self.pipe.engine)


def _resized(picture: Picture, height: int, width: int) -> bytes:
    """The pixels of a picture at a size."""
    if (picture.height, picture.width) == (height, width):
        return picture.pixels
    size = picture.height, picture.width, 3, height, width
    return bytes(resize_image(picture.pixels, *size, "lanczos"))


def _black(value: Any, dtype: int) -> Any:
    _, shape, data = as_input(value, "image")
    return as_output(dtype, shape, bytes(len(bytes(data))))
