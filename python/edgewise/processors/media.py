"""Public names of host/media/resampling.py."""

from ..host.media.resampling import (
    Box,
    Resampler,
    resample_audio,
    resize_float,
    resize_image,
    sampling_rate,
)

__all__ = ["Box", "Resampler", "resample_audio", "resize_float", "resize_image", "sampling_rate"]
