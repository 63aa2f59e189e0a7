"""Deltas between two versions of a chunk of numbers, exact to the bit.
web/src/extras/release/codec.ts decodes the same.

Integers are deflated (zlib); floats.py tells of floating-point numbers.

    float16             numbers of 2 bytes, bfloat16, too
    float32             numbers of 4 bytes
    int8                differences of bytes, zigzag coded (0, -1, 1, -2, ...)
    int4                differences of the two halves of each byte, one byte for each
    float32-q4          base + scale * integer in -7..7: a float16 scale for each 64 numbers, then
                        one byte for each number. The sum, in float32, is the new version.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from . import floats
from .errors import ReleaseError

CHUNK = 1 << 20  # most bytes of a chunk
BLOCK = 64  # numbers of a scale
LEVELS = 7
WIDTHS = {"float32": 4, "float16": 2, "int8": 1, "int4": 1, "float32-q4": 4}
CODECS = tuple(WIDTHS)
FLOATS = ("float32", "float16")
Bytes: TypeAlias = npt.NDArray[np.uint8]


def payload_bytes(codec: str, nbytes: int) -> int:
    """Bytes of a delta of integers before it is deflated, for a chunk of `nbytes`."""
    if codec == "int4":
        return 2 * nbytes
    if codec == "float32-q4":
        return -(-nbytes // (4 * BLOCK)) * 2 + nbytes // 4
    return nbytes


def _zigzag(differences: npt.NDArray[Any]) -> Bytes:
    """Differences of bytes, modulo 256, zigzag coded."""
    d = differences.view(np.int8)
    return ((d << 1) ^ (d >> 7)).view(np.uint8)


def _undo(coded: Bytes) -> Bytes:
    """The differences, modulo 256."""
    return (coded >> 1) ^ (0 - (coded & 1)).astype(np.uint8)


def _halves(data: bytes) -> Bytes:
    both = np.frombuffer(data, np.uint8)
    return np.stack([both & 15, both >> 4], 1).reshape(-1)


def deflate(payload: bytes) -> bytes:
    """zlib's smaller result: runs and frequencies alone are best for most deltas."""
    found = []
    for strategy in (zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY):
        packer = zlib.compressobj(6, zlib.DEFLATED, 15, 9, strategy)
        found.append(packer.compress(payload) + packer.flush())
    return min(found, key=len)


def inflate(data: bytes, size: int, where: str) -> bytes:
    """Exactly `size` bytes.

    Raises:
        ReleaseError: the data is damaged, or has more or fewer bytes. No more are unpacked.
    """
    unpacker = zlib.decompressobj()
    try:
        out = unpacker.decompress(data, size + 1)
    except zlib.error as e:
        raise ReleaseError(f"it cannot be unpacked ({e})", where) from None
    if len(out) != size or not unpacker.eof or unpacker.unused_data:
        raise ReleaseError(f"it does not unpack to {size} bytes", where)
    return out


def encode(codec: str, base: bytes, new: bytes, place: tuple[int, int] = (0, 0)) -> bytes:
    """The delta from one version of a chunk to the next.

    Args:
        codec: one of CODECS but "float32-q4" (see `approximate`).
        base: of the same length as `new`, a multiple of the codec's width.
        new: as above.
        place: (numbers in a row, those of the first row that are in front of the chunk) of the
            matrix in which the numbers of the chunk are; (0, 0): unknown.
    """
    if codec in FLOATS:
        return floats.encode(base, new, WIDTHS[codec], place)
    if codec == "int4":
        nearest = ((_halves(new) - _halves(base) + 8) & 15) - 8  # -8..7, as uint8
        return deflate(_zigzag(nearest).tobytes())
    return deflate(_zigzag(np.frombuffer(new, "u1") - np.frombuffer(base, "u1")).tobytes())


def approximate(base: bytes, new: bytes) -> tuple[bytes, bytes] | None:
    """A delta of 4 bits for each float32, and what it makes of `base`.

    Returns:
        (delta, the new version), None where the change cannot be scaled: it is not finite, or
        larger than float16.
    """
    old, target = np.frombuffer(base, "<f4"), np.frombuffer(new, "<f4")
    with np.errstate(over="ignore", invalid="ignore"):
        change = target - old
        blocks = np.pad(change, (0, -change.size % BLOCK)).reshape(-1, BLOCK)
        scales = (np.abs(blocks).max(1) / np.float32(LEVELS)).astype("<f2")
    if not (np.isfinite(change).all() and np.isfinite(scales).all()):
        return None
    wide = scales.astype("<f4")[:, None]
    levels = np.rint(np.divide(blocks, wide, out=np.zeros_like(blocks), where=wide > 0))
    levels = np.clip(levels, -LEVELS, LEVELS).astype(np.int8)
    levels = levels.reshape(-1)[: change.size]
    payload = scales.tobytes() + _zigzag(levels).tobytes()
    return deflate(payload), _sum(old, scales, levels)


def _sum(
    base: npt.NDArray[np.float32], scales: npt.NDArray[np.float16], levels: npt.NDArray[np.int8]
) -> bytes:
    wide = np.repeat(scales.astype("<f4"), BLOCK)[: base.size]
    return (base + wide * levels.astype("<f4")).astype("<f4").tobytes()


def decode(codec: str, base: bytes, delta: bytes, where: str = "delta") -> bytes:
    """The new version of a chunk.

    Raises:
        ReleaseError: the codec is unknown, or the delta damaged or of another chunk.
    """
    if codec not in WIDTHS or len(base) % WIDTHS[codec] or len(base) > CHUNK:
        raise ReleaseError(f"{codec!r} is no codec for {len(base)} bytes", where)
    if codec in FLOATS:
        return floats.decode(base, delta, WIDTHS[codec], where)
    payload = np.frombuffer(inflate(delta, payload_bytes(codec, len(base)), where), np.uint8)
    if codec == "int4":
        halves = (_halves(base) + _undo(payload)) & 15
        return (halves[::2] | halves[1::2] << 4).astype(np.uint8).tobytes()
    if codec == "float32-q4":
        old = np.frombuffer(base, "<f4")
        scales = payload[: len(payload) - old.size].view("<f2")
        levels = _undo(payload[len(payload) - old.size :]).view(np.int8)
        if not np.isfinite(scales).all() or (np.abs(levels.astype(int)) > LEVELS).any():
            raise ReleaseError("its scales or integers are outside their range", where)
        return _sum(old, scales, levels)
    return (np.frombuffer(base, np.uint8) + _undo(payload)).tobytes()
