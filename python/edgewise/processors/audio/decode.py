"""Public names of host/media/decode.py."""

from ...host.media.decode import (
    MOST_SAMPLES,
    Channels,
    Sound,
    check_finite,
    mean,
    read_sound,
    stream_samples,
)

__all__ = [
    "Channels",
    "MOST_SAMPLES",
    "Sound",
    "check_finite",
    "mean",
    "read_sound",
    "stream_samples",
]
