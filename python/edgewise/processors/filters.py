"""Names of the filters that resize pictures."""

from __future__ import annotations

__all__ = ["FILTERS"]

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""By the numbers of PIL.Image.Resampling, which preprocessor_config.json (`resample`) has, too."""
