"""Masks of inpainting: which pixels of a picture are made anew."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

__all__ = ["latent_mask", "mask_of", "without_masked"]


def mask_of(pixels: Sequence[int], count: int) -> list[int]:
    """1 for each pixel that is made anew, 0 for those that are kept, as diffusers'
    VaeImageProcessor with do_binarize.

    Args:
        pixels: red, green, blue of each; white ones are made anew.
        count: of pixels.
    """
    made: list[int] = []
    for i in range(count):
        # Pillow's conversion to "L"
        light = 19595 * pixels[3 * i] + 38470 * pixels[3 * i + 1] + 7471 * pixels[3 * i + 2]
        made.append(1 if (light + 32768) // 65536 >= 128 else 0)
    return made


def latent_mask(mask: Sequence[int], height: int, width: int, scale: int) -> array[float]:
    """The mask of latents: that of the first pixel of each.

    Args:
        mask: of `mask_of`, [height * scale, width * scale].
        height, width: of the latents.
        scale: pixels for each, along one side.
    """
    made: list[float] = []
    for y in range(height):
        row = y * scale * width * scale
        made.extend([float(mask[row + x * scale]) for x in range(width)])
    return array("f", made)


def without_masked(sample: Sequence[float], mask: Sequence[int]) -> array[float]:
    """The encoder's input without the pixels that are made anew.

    Args:
        sample: [3, pixels], from -1 to 1.
        mask: of `mask_of`.
    """
    size = len(mask)
    return array("f", [0.0 if mask[i % size] else x for i, x in enumerate(sample)])
