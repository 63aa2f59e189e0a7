"""Entropy coding of bytes in segments, each with frequencies of its own: interleaved rANS (J. Duda,
arXiv:1311.2540; F. Giesen, arXiv:1402.3392). web/src/extras/release/entropy.ts decodes the same.

    u32     bytes of what follows: for each segment 256 u16 that sum to 4096, deflated (zlib)
    u32     number of lanes: MAX_LANES, or more than one for 2 * SPACING coded bytes
    u32     for each lane: its state
    u16     words, which states take when they fall below 65536

Bytes of a segment that has only one value are not coded. Of all others the n-th belongs to the lane
n modulo their number.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import ReleaseError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]

BITS = 12
TOTAL = 1 << BITS
LOWEST = 1 << 16
MAX_LANES = 128  # arithmetic on so many numbers at once is fast in NumPy
SPACING = 512  # bytes of a lane at least; with few lanes, decoding takes minutes


def _frequencies(counts: Integers) -> Integers:
    """Frequencies that sum to TOTAL, at least 1 where there is a count."""
    found = np.maximum(counts * TOTAL // counts.sum(), counts > 0)
    while (rest := TOTAL - int(found.sum())) < 0:
        found[int(found.argmax())] -= min(-rest, max(1, int(found.max()) // 64))
    found[int(found.argmax())] += rest
    return found


def cost(segments: Sequence[Bytes]) -> float:
    """About the bytes that `encode` needs."""
    total = 0.0
    for segment in segments:
        counts = np.bincount(segment, minlength=256)
        used = counts[counts > 0]
        total += float((used * (np.log2(max(1, segment.size)) - np.log2(used))).sum()) / 8
        total += used.size  # of the frequencies
    return total


def encode(segments: Sequence[Bytes]) -> bytes:
    """Codes segments; the decoder must know their sizes."""
    tables = [_frequencies(np.bincount(s, minlength=256)) for s in segments if s.size]
    rows = np.repeat(np.arange(len(tables)), [s.size for s in segments if s.size])
    frequencies = np.array(tables, np.int64).reshape(-1, 256)
    values = np.concatenate([np.empty(0, np.uint8), *segments])
    coded = (frequencies.max(1) < TOTAL)[rows]
    rows, values = rows[coded], values[coded]
    width = (frequencies[rows, values]).astype(np.uint64)
    start = (np.cumsum(frequencies, 1) - frequencies)[rows, values].astype(np.uint64)
    lanes = int(np.clip(1 << max(0, (values.size // SPACING).bit_length() - 1), 1, MAX_LANES))
    states, words = np.full(lanes, LOWEST, np.uint64), [np.empty(0, "<u2")]
    bits, half = np.uint64(BITS), np.uint64(16)
    for at in range((values.size - 1) // lanes * lanes, -1, -lanes):
        f, c = width[at : at + lanes], start[at : at + lanes]
        x = states[: f.size]
        full = x >= f << np.uint64(32 - BITS)
        words.append((x[full] & np.uint64(0xFFFF)).astype("<u2"))
        x = np.where(full, x >> half, x)
        states[: f.size] = (x // f << bits) + x % f + c
    table = zlib.compress(frequencies.astype("<u2").tobytes(), 9)
    head = np.array([len(table)], "<u4").tobytes() + table + np.array([lanes], "<u4").tobytes()
    return head + states.astype("<u4").tobytes() + np.concatenate(words[::-1]).tobytes()


def _read_frequencies(data: bytes, count: int, where: str) -> tuple[Integers, bytes]:
    """Frequencies of the segments, and what follows them."""
    length = int.from_bytes(data[:4], "little")
    unpacker = zlib.decompressobj()
    try:
        out = unpacker.decompress(data[4 : 4 + length], 512 * count + 1)
    except zlib.error as e:
        raise ReleaseError(f"it cannot be unpacked ({e})", where) from None
    if len(out) != 512 * count or not unpacker.eof or unpacker.unused_data:
        raise ReleaseError("it has the frequencies of other segments", where)
    found = np.frombuffer(out, "<u2").astype(np.int64).reshape(count, 256)
    if (found.sum(1) != TOTAL).any():
        raise ReleaseError("its frequencies do not have the right sum", where)
    return found, data[4 + length :]


def decode(data: bytes, sizes: Sequence[int], where: str) -> Bytes:
    """The bytes of all segments, one after the other.

    Args:
        data: as `encode` made it.
        sizes: of the segments.
        where: for errors.

    Raises:
        ReleaseError: it is damaged.
    """
    sizes = [n for n in sizes if n]
    frequencies, rest = _read_frequencies(data, len(sizes), where)
    lanes = int.from_bytes(rest[:4], "little")
    if not 1 <= lanes <= MAX_LANES or len(rest) < 4 + 4 * lanes or len(rest) % 2:
        raise ReleaseError("its lanes are cut off", where)
    states = np.frombuffer(rest, "<u4", lanes, 4).astype(np.int64)
    words = np.frombuffer(rest, "<u2", offset=4 + 4 * lanes).astype(np.int64)
    starts = np.cumsum(frequencies, 1) - frequencies
    values = np.tile(np.arange(256, dtype=np.uint8), len(sizes))
    slots = np.repeat(values, frequencies.reshape(-1)).reshape(-1, TOTAL)
    all_rows = np.repeat(np.arange(len(sizes)), sizes)
    out = slots[all_rows, 0]
    coded = np.flatnonzero((frequencies.max(1, initial=0) < TOTAL)[all_rows])
    if lanes < MAX_LANES and coded.size >= 2 * SPACING * lanes:
        raise ReleaseError("it has too few lanes", where)
    rows, at_word = all_rows[coded], 0
    for at in range(0, coded.size, lanes):
        row = rows[at : at + lanes]
        x = states[: row.size]
        slot = x & (TOTAL - 1)
        value = slots[row, slot]
        out[coded[at : at + lanes]] = value
        x = frequencies[row, value] * (x >> BITS) + slot - starts[row, value]
        low = np.flatnonzero(x < LOWEST)
        if at_word + low.size > words.size:
            raise ReleaseError("its words end too early", where)
        x[low] = x[low] << 16 | words[at_word : at_word + low.size]
        at_word += low.size
        states[: row.size] = x
    if at_word < words.size or (states != LOWEST).any():
        raise ReleaseError("its words do not end where its bytes do", where)
    return out
