"""Public names of host/media/decode.py."""

from ...host.media.decode import (
    MAX_SAMPLES,
    Channels,
    Sound,
    check_finite,
    mean,
    read_sound,
    stream_samples,
)

__all__ = [
    "Channels",
    "MAX_SAMPLES",
    "Sound",
    "check_finite",
    "mean",
    "read_sound",
    "stream_samples",
]
