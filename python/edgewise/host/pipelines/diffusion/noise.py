"""The random numbers of a call: the engine's from seeds, or those of torch's generators."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.processors.diffusion.graphs import noise_graph
from ....errors import InputError
from ....logic.diffusion.options import DrawOptions
from ....seeds import seed_of_run
from ...session import RunOptions
from .parts import floats

if TYPE_CHECKING:
    from ..text_to_image import TextToImagePipeline

__all__ = ["Noise"]


class Noise:
    """Draws for each image of a call. Draw n of an image with a seed is the run of `noise_graph`
    with seed_of_run(seed, n), in Python and in pages.

    Args:
        pipe: the pipeline, whose graph is run.
        options: of the call.
        images: how many there are.
        generator: a torch.Generator, or a list of one for each image; None: seeds.

    Attributes:
        seeds: the seed of each image; None with generators.

    Raises:
        InputError: there are too few seeds or generators.
    """

    def __init__(
        self, pipe: TextToImagePipeline, options: DrawOptions, images: int, generator: Any
    ) -> None:
        self.pipe, self.generator = pipe, generator
        self.seeds = options.seeds(images) if generator is None else None
        if isinstance(generator, (list, tuple)) and len(generator) != images:
            raise InputError(f"there are {len(generator)}", "generator", f"Give {images}, or one.")

    def draw(self, image: int, number: int, shape: Sequence[int]) -> array[float]:
        """Normal numbers.

        Args:
            image: which image of the call.
            number: which draw of the image.
            shape: [channels, height, width] of the latents.
        """
        if self.seeds is None:
            return self._from_torch(image, shape)
        options = RunOptions()
        options.seed = seed_of_run(self.seeds[image], number)
        channels, height, width = shape
        name = f"noise {channels} {height} {width}"
        session = self.pipe.small(name, lambda: noise_graph(channels, height, width))
        return floats(session.run(["noise"], {}, options)[0])[1]

    def _from_torch(self, image: int, shape: Sequence[int]) -> array[float]:
        """As diffusers' randn_tensor: on the generator's device."""
        torch = sys.modules["torch"]  # imported, since the caller has a generator of it
        given = self.generator
        one = given[image] if isinstance(given, (list, tuple)) else given
        drawn = torch.randn([1, *shape], generator=one, device=one.device, dtype=torch.float32)
        return array("f", drawn.cpu().numpy().tobytes())
