"""Windows and mel filters in float64, as transformers' audio_utils.py and Kaldi compute
them, without NumPy.
"""

from __future__ import annotations

import math

Matrix = list[list[float]]


def hann(length: int, periodic: bool) -> list[float]:
    """Hann's window."""
    return _cosine(length, periodic, 0.5)


def hamming(length: int) -> list[float]:
    """Hamming's window, symmetric."""
    return _cosine(length, False, 0.54)


def povey(length: int) -> list[float]:
    """Kaldi's default window, symmetric."""
    return [w**0.85 for w in _cosine(length, False, 0.5)]


def _cosine(length: int, periodic: bool, alpha: float) -> list[float]:
    period = length if periodic else length - 1
    return [
        max(alpha - (1 - alpha) * math.cos(2 * math.pi * n / period), 0.0) for n in range(length)
    ]


def _mel(hertz: float, scale: str) -> float:
    if scale == "htk":
        return 2595.0 * math.log10(1.0 + hertz / 700.0)
    if scale == "kaldi":
        return 1127.0 * math.log(1.0 + hertz / 700.0)
    if hertz < 1000.0:
        return 3.0 * hertz / 200.0
    return 15.0 + math.log(hertz / 1000.0) * 27.0 / math.log(6.4)


def _hertz(mel: float, scale: str) -> float:
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    if mel < 15.0:
        return 200.0 * mel / 3.0
    return 1000.0 * math.exp(math.log(6.4) / 27.0 * (mel - 15.0))


def mel_filters(
    bins: int,
    mels: int,
    low: float,
    high: float,
    sampling_rate: int,
    scale: str,
    *,
    slaney_norm: bool = False,
) -> Matrix:
    """Triangular filters. Mirrors transformers' `mel_filter_bank`.

    Args:
        bins: of the spectrum.
        mels: number of filters.
        low, high: Hz.
        sampling_rate: Hz.
        scale: "slaney", "htk", or "kaldi", whose triangles are in mels.
        slaney_norm: whether filters are divided by their widths in Hz.

    Returns:
        [mels][bins]
    """
    ends = _mel(low, scale), _mel(high, scale)
    points = [ends[0] + (ends[1] - ends[0]) * i / (mels + 1) for i in range(mels + 2)]
    if scale == "kaldi":
        width = sampling_rate / ((bins - 1) * 2)
        frequencies = [_mel(width * i, scale) for i in range(bins)]
    else:
        points = [_hertz(p, scale) for p in points]
        frequencies = [sampling_rate // 2 * i / (bins - 1) for i in range(bins)]
    filters = []
    for left, middle, right in zip(points, points[1:], points[2:], strict=False):
        factor = 2.0 / (right - left) if slaney_norm else 1.0
        filters.append(
            [
                factor * max(0.0, min((f - left) / (middle - left), (right - f) / (right - middle)))
                for f in frequencies
            ]
        )
    return filters
