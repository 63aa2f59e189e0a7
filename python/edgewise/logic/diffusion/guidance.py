"""Guidance of diffusion models, and previews of their latents."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

__all__ = ["guided", "preview_pixels", "scale_embedding"]

# Red, green and blue of the four latents of Stable Diffusion 1 and 2 where white is 1 and black -1:
# a regression on pictures of its decoder, published in the Hugging Face forum and widely used.
COLORS = (
    (0.298, 0.207, 0.208),
    (0.187, 0.286, 0.173),
    (-0.158, 0.189, 0.264),
    (-0.184, -0.271, -0.473),
)


def guided(
    without: Sequence[float], with_prompt: Sequence[float], scale: float, rescale: float = 0.0
) -> array[float]:
    """Classifier-free guidance.

    Args:
        without: the model's output for the negative prompt.
        with_prompt: its output for the prompt.
        scale: guidance_scale.
        rescale: guidance_rescale: how far the deviation is brought back to that of `with_prompt`.
    """
    made = array("f", [u + scale * (with_prompt[i] - u) for i, u in enumerate(without)])
    if not rescale:
        return made
    factor = rescale * _deviation(with_prompt) / _deviation(made) + 1 - rescale
    return array("f", [factor * x for x in made])


def _deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / max(len(values) - 1, 1))


def scale_embedding(scale: float, size: int) -> list[float]:
    """The input `timestep_cond` of models whose guidance is distilled.

    Args:
        scale: guidance_scale.
        size: of the embedding.
    """
    half = size // 2
    rate = math.log(10000.0) / max(half - 1, 1)
    angles = [(scale - 1) * 1000 * math.exp(-rate * i) for i in range(half)]
    return [*map(math.sin, angles), *map(math.cos, angles), *[0.0] * (size % 2)]


def preview_pixels(latents: Sequence[float], size: int) -> bytes:
    """An estimate of a picture, a pixel for each latent.

    Args:
        latents: [4, size] of a picture that the model expects (`Stepper.clean`).
        size: height times width.

    Returns:
        red, green, blue of each pixel
    """
    out = bytearray(3 * size)
    for c in range(3):
        a, b, d, e = (row[c] * 127.5 for row in COLORS)
        for i in range(size):
            p, q = latents[i], latents[size + i]
            r, s = latents[2 * size + i], latents[3 * size + i]
            value = a * p + b * q + d * r + e * s + 127.5
            if math.isfinite(value):
                out[3 * i + c] = int(min(max(value, 0.0), 255.0) + 0.5)
    return bytes(out)
