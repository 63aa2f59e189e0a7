"""Features of NeMo's, k2's and GigaAM's models by their definitions in NumPy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]


def _mel(hertz: float, scale: str) -> float:
    if scale == "htk":
        return 2595 * math.log10(1 + hertz / 700)
    if scale == "kaldi":
        return 1127 * math.log(1 + hertz / 700)
    if hertz < 1000:  # librosa's
        return hertz * 3 / 200
    return 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


def _inverse(mel: float, scale: str) -> float:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)


def filters(fft: int, mels: int, low: float, high: float, scale: str) -> Array:
    """[bins, mels] of 16 kHz."""
    edges = np.linspace(_mel(low, scale), _mel(high, scale), mels + 2)
    at = np.arange(fft // 2 + 1) * 16000 / fft
    if scale == "kaldi":
        x = np.array([_mel(f, scale) for f in at])
    else:
        x, edges = at, np.array([_inverse(m, scale) for m in edges])
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    up, down = (x[:, None] - left) / (middle - left), (right - x[:, None]) / (right - middle)
    made = np.maximum(0, np.minimum(up, down))
    return made * (2 / (right - left) if scale == "slaney" else 1)


def _power(rows: Array, window: Array, fft: int) -> Array:
    wide = np.zeros((len(rows), fft))
    start = (fft - len(window)) // 2 if rows.shape[1] == fft else 0
    size = len(window)
    wide[:, :size] = rows[:, start : start + size] * window
    return np.abs(np.fft.rfft(wide)) ** 2


def _rows(x: Array, size: int) -> Array:
    return np.lib.stride_tricks.sliding_window_view(x, size)[::160]


def nemo(sound: Array, mels: int = 80, normalized: bool = True) -> Array:
    """AudioToMelSpectrogramPreprocessor: [frames, mels] of the sound."""
    x = sound.astype(np.float64)
    x = np.append(x[:1], x[1:] - np.float32(0.97) * x[:-1])
    rows = _rows(np.pad(x, 256), 512)
    log = np.log(
        _power(rows, np.hanning(400), 512) @ filters(512, mels, 0, 8000, "slaney") + 2.0**-24
    )[: len(sound) // 160]
    return (log - log.mean(0)) / (log.std(0, ddof=1) + 1e-5) if normalized else log


def kaldi(sound: Array) -> Array:
    """Kaldi's fbank without snip_edges, of samples from -1 to 1: [frames, 80]."""
    count = (len(sound) + 80) // 160
    x = np.pad(sound.astype(np.float64), (120, 200), mode="symmetric")
    rows = _rows(x, 400)[:count]
    rows = rows - rows.mean(1, keepdims=True)
    rows = rows - 0.97 * np.concatenate([rows[:, :1], rows[:, :-1]], 1)
    power = _power(rows, np.hanning(400) ** 0.85, 512) @ filters(512, 80, 20, 7600, "kaldi")
    return np.log(np.maximum(power, 2.0**-23))


def gigaam(sound: Array, version: str) -> Array:
    """torchaudio's MelSpectrogram of GigaAM: [frames, 64]."""
    size = 400 if version == "v2" else 320
    x = np.pad(sound.astype(np.float64), 200, mode="reflect") if version == "v2" else sound
    window, table = np.hanning(size + 1)[:-1], filters(size, 64, 0, 8000, "htk")
    if version == "v3":  # its files have bfloat16
        window, table = (a.astype(ml_dtypes.bfloat16).astype(np.float64) for a in (window, table))
    power = _power(_rows(x, size), window, size) @ table
    return np.log(np.clip(power, 1e-9, 1e9))
