"""What the engine's resampling of pictures and sound takes (core/media/media.h).

`make gen` writes it to core/gen/resampling.h and web/src/gen/resampling.ts.
"""

from __future__ import annotations

__all__ = ["FILTERS", "LIMITS", "MAX_CHANNELS", "MAX_RATE", "MAX_RATIO", "MAX_SIDE", "PIECE"]

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""By the numbers of PIL.Image.Resampling, which preprocessor_config.json (`resample`) has, too."""

MAX_SIDE = 1 << 20
MAX_CHANNELS = 1024
MAX_RATE = 1 << 20
MAX_RATIO = 256
PIECE = 1 << 20

LIMITS = (
    ("MAX_SIDE", MAX_SIDE, "Pixels of a side of a picture, at most."),
    ("MAX_CHANNELS", MAX_CHANNELS, "Channels of a picture, at most."),
    ("MAX_RATE", MAX_RATE, "Hz of a sampling rate, at most."),
    ("MAX_RATIO", MAX_RATIO, "Ratio between two sampling rates, at most."),
)
