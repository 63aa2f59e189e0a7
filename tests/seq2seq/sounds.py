"""The sounds that moonshine.json has the tokens of."""

from __future__ import annotations

import numpy as np

SOUNDS = [16000, 9001, 40000]  # samples


def samples(count: int, seed: int) -> np.ndarray:
    """A sound of two tones and noise, float32 [count] at 16 kHz."""
    t = np.arange(count) / 16000
    noise = np.random.default_rng(seed).standard_normal(count)
    tones = np.sin(2 * np.pi * 300 * (seed + 1) * t) + np.sin(2 * np.pi * 1100 * t * t)
    return (0.2 * tones + 0.05 * noise).astype(np.float32)
