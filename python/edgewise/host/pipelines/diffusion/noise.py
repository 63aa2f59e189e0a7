"""The random numbers of a call: the engine's from seeds, or those of torch's generators."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.processors.diffusion.graphs import noise_graph
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
        source: a seed for each image; or a torch.Generator, or a list of one for each image.
    """

    def __init__(self, pipe: TextToImagePipeline, source: Any) -> None:
        self.pipe, self.source = pipe, source
        self.drawn: dict[int, int] = {}

    @property
    def seeds(self) -> list[int] | None:
        """The seed of each image; None with generators."""
        if isinstance(self.source, list) and all(isinstance(s, int) for s in self.source):
            return list(self.source)
        return None

    def draw(self, image: int, shape: Sequence[int]) -> array[float]:
        """Normal numbers.

        Args:
            image: which image of the call.
            shape: [channels, height, width] of the latents.
        """
        if self.seeds is None:
            return self._from_torch(image, shape)
        number = self.drawn.get(image, 0)
        self.drawn[image] = number + 1
        options = RunOptions()
        options.seed = seed_of_run(self.source[image] or 0, number)
        channels, height, width = shape
        name = f"noise {channels} {height} {width}"
        session = self.pipe.small(name, lambda: noise_graph(channels, height, width))
        return floats(session.run(["noise"], {}, options)[0])[1]

    def _from_torch(self, image: int, shape: Sequence[int]) -> array[float]:
        """As diffusers' randn_tensor: on the generator's device."""
        torch = sys.modules["torch"]  # imported, since the caller has a generator of it
        one = self.source[image] if isinstance(self.source, list) else self.source
        drawn = torch.randn([1, *shape], generator=one, device=one.device, dtype=torch.float32)
        return array("f", drawn.cpu().numpy().tobytes())

    def sampled(
        self, image: int, row: Sequence[float], channels: int, size: tuple[int, int]
    ) -> Sequence[float]:
        """Latents of what a VAE's encoder returns.

        Args:
            image: which image of the call.
            row: the latents, or means and logarithms of variances.
            channels: of the latents.
            size: height and width of the latents.
        """
        count = channels * size[0] * size[1]
        if len(row) == count:
            return row
        mean, log = row[:count], row[count:]
        drawn = self.draw(image, [channels, *size])
        return [m + math.exp(min(max(v, -30.0), 20.0) / 2) * n for m, v, n in zip(mean, log, drawn)]
