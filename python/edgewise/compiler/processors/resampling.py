"""What the engine's resampling of pictures and sound takes (core/media/media.h).

`make gen` writes it to core/gen/resampling.h and web/src/gen/resampling.ts.
"""

from __future__ import annotations

__all__ = ["FILTERS", "LIMITS", "MOST_CHANNELS", "MOST_RATE", "MOST_RATIO", "MOST_SIDE", "PIECE"]

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""By the numbers of PIL.Image.Resampling, which preprocessor_config.json (`resample`) has, too."""

MOST_SIDE = 1 << 20
MOST_CHANNELS = 1024
MOST_RATE = 1 << 20
MOST_RATIO = 256
PIECE = 1 << 20

LIMITS = (
    ("MOST_SIDE", MOST_SIDE, "Pixels of a side of a picture, at most."),
    ("MOST_CHANNELS", MOST_CHANNELS, "Channels of a picture, at most."),
    ("MOST_RATE", MOST_RATE, "Hz of a sampling rate, at most."),
    ("MOST_RATIO", MOST_RATIO, "Ratio between two sampling rates, at most."),
)
