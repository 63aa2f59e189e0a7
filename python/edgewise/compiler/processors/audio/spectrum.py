"""Power spectra of frames of sound, as nodes of a graph.

Windows are symmetric. With phases counted from a window's middle, the real part depends on the sums
of samples at the same distance from it, and the imaginary part on their differences. So a spectrum
is two products of half the size, which also halves float32's rounding errors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64

if TYPE_CHECKING:
    from .build import Builder
    from .filters import Matrix

MAX_BLOCKS = 64  # slices that frames are made of


def frames(b: Builder, audio: str, frame: int, hop: int) -> str:
    """[frames, frame] of audio [1, n], without what is left at the end.

    A frame is made of whole blocks, each frame begins some blocks after the last one.
    """
    block = math.gcd(frame, hop)
    per_frame, per_hop = frame // block, hop // block
    length = b.op("Shape", audio, start=1, end=2)
    if per_frame > MAX_BLOCKS:
        return _gathered(b, audio, length, frame, hop)
    blocks = b.op("Div", length, b.indices(block))
    whole = b.op("Mul", blocks, b.indices(block))
    audio = b.op("Slice", audio, b.indices(0), whole, b.indices(1))
    rows = b.op("Reshape", audio, b.indices(-1, block))
    span = b.op("Sub", blocks, b.indices(per_frame))
    last = b.op("Mul", b.op("Div", span, b.indices(per_hop)), b.indices(per_hop))
    axis, step = b.indices(0), b.indices(per_hop)
    parts = [
        b.op("Slice", rows, b.indices(i), b.op("Add", last, b.indices(i + 1)), axis, step)
        for i in range(per_frame)
    ]
    return b.op("Concat", *parts, axis=1)


def _gathered(b: Builder, audio: str, length: str, frame: int, hop: int) -> str:
    """`frames` by indices, for lengths without a large common divisor."""
    end = b.op("Squeeze", b.op("Sub", length, b.indices(frame - 1)))
    zero, step = b.constant([0], [], INT64), b.constant([hop], [], INT64)
    starts = b.op("Unsqueeze", b.op("Range", zero, end, step), b.indices(1))
    index = b.op("Add", starts, b.indices(*range(frame)))
    return b.op("Gather", b.op("Squeeze", audio, b.indices(0)), index, axis=0)


def power(
    b: Builder, x: str, window: list[float], fft: int, *, scale: float = 1.0, dtype: int = FLOAT
) -> str:
    """|spectrum|^2 [frames, fft // 2 + 1].

    Args:
        x: frames [frames, len(window)].
        window: symmetric, or periodic, which is symmetric without its first 0.
        fft: length of the Fourier transform.
        scale: factor of the samples.
        dtype: of x and of the result.
    """
    size, skip = len(window), 0
    if not math.isclose(window[1], window[-2], abs_tol=1e-12):
        window, skip = window[1:], 1
    half, length = len(window) // 2, len(window)
    middle = length % 2
    axis, forward, backward = b.indices(1), b.indices(1), b.indices(-1)
    begin, end = b.indices(skip), b.indices(skip + half)
    left = b.op("Slice", x, begin, end, axis, forward)
    right = b.op("Slice", x, b.indices(-1), b.indices(-half - 1), axis, backward)
    even, odd = b.op("Add", left, right), b.op("Sub", left, right)
    if middle:
        centre = b.indices(skip + half), b.indices(skip + half + 1)
        even = b.op("Concat", even, b.op("Slice", x, *centre, axis, forward), axis=1)
    assert skip + length == size
    parts = []
    for folded, function, count in ((even, math.cos, half + middle), (odd, math.sin, half)):
        table = [function(math.pi * i / fft) * scale for i in range(2 * fft)]
        weights = [
            window[n] * table[k * (2 * n + 1 - length) % (2 * fft)]
            for n in range(count)
            for k in range(fft // 2 + 1)
        ]
        rows = b.constant(weights, [count, fft // 2 + 1], dtype)
        part = b.op("MatMul", folded, rows)
        parts.append(b.op("Mul", part, part))
    return b.op("Add", *parts)


def mel(b: Builder, spectrum: str, filters: Matrix, dtype: int = FLOAT) -> str:
    """[frames, mels] of spectra [frames, bins]. filters: [mels][bins]."""
    columns = [row[k] for k in range(len(filters[0])) for row in filters]
    return b.op("MatMul", spectrum, b.constant(columns, [len(filters[0]), len(filters)], dtype))
