"""Deltas between two versions of a chunk of numbers, exact to the bit. web/src/release/codec.ts
decodes the same.

Floating-point numbers are compared by their ordinals: their bits, with those of negative numbers
inverted but for the sign, so that neighbours differ by 1. The differences are zigzag coded (0, -1,
1, -2, ...), in ascending order of the exponents of the base, which the decoder has, too: numbers
of like magnitude change by like ordinals. Then come all low bytes, all second bytes and so on,
deflated (zlib).

    float16             ordinals of 2 bytes, of bfloat16, too
    float32             ordinals of 4 bytes, whose upper and lower halves are coded apart
    int8                differences of bytes
    int4                differences of the two halves of each byte, one byte for each
    float32-q4          base + scale * integer in -7..7: a float16 scale for each 64 numbers, then
                        one byte for each number. The sum, in float32, is the new version.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import ReleaseError

CHUNK = 1 << 20  # most bytes of a chunk
BLOCK = 64  # numbers of a scale
LEVELS = 7
WIDTHS = {"float32": 4, "float16": 2, "int8": 1, "int4": 1, "float32-q4": 4}
CODECS = tuple(WIDTHS)
_EXPONENT = {4: 23, 2: 7}  # the lowest bit that orders numbers

Bytes: TypeAlias = npt.NDArray[np.uint8]


def payload_bytes(codec: str, nbytes: int) -> int:
    """Bytes of a delta before it is deflated, for a chunk of `nbytes`."""
    if codec == "int4":
        return 2 * nbytes
    if codec == "float32-q4":
        return -(-nbytes // (4 * BLOCK)) * 2 + nbytes // 4
    return nbytes


def _ordinals(data: bytes, width: int) -> npt.NDArray[np.unsignedinteger]:
    bits = np.frombuffer(data, f"<u{width}")
    if width == 1:
        return bits
    low = bits.dtype.type((1 << (8 * width - 1)) - 1)
    return np.where(bits > low, bits ^ low, bits)


def _order(base: bytes, width: int) -> npt.NDArray[np.intp] | slice:
    """Positions in ascending order of the exponents of the base."""
    if width == 1:
        return slice(None)
    magnitude = np.frombuffer(base, f"<u{width}") & ((1 << (8 * width - 1)) - 1)
    return np.argsort((magnitude >> _EXPONENT[width]).astype(np.uint8), kind="stable")


def _differences(new: npt.NDArray[Any], base: npt.NDArray[Any]) -> Bytes:
    """Zigzag coded, in planes of bytes: (width, numbers)."""
    width = new.dtype.itemsize
    part = min(width, 2)  # float32 has two halves, so that one without a change is all zeros
    d = (new.view(f"<u{part}") - base.view(f"<u{part}")).view(f"<i{part}")
    z = (d << 1) ^ (d >> (8 * part - 1))
    return z.view(np.uint8).reshape(-1, width).T.copy()


def _undo(planes: Bytes, base: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The numbers whose differences from the base are given."""
    width = base.dtype.itemsize
    part = min(width, 2)
    z = np.ascontiguousarray(planes.reshape(width, -1).T).reshape(-1).view(f"<u{part}")
    d = (z >> 1) ^ (0 - (z & 1)).astype(z.dtype)
    return (base.view(f"<u{part}") + d).view(base.dtype)


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


def encode(codec: str, base: bytes, new: bytes) -> bytes:
    """The delta from one version of a chunk to the next.

    Args:
        codec: one of CODECS but "float32-q4" (see `approximate`).
        base: of the same length as `new`, a multiple of the codec's width.
        new: as above.
    """
    width = WIDTHS[codec]
    if codec == "int4":
        nearest = ((_halves(new) - _halves(base) + 8) & 15) - 8  # -8..7, as uint8
        return deflate(_differences(nearest, np.zeros_like(nearest)).tobytes())
    order = _order(base, width)
    planes = _differences(_ordinals(new, width)[order], _ordinals(base, width)[order])
    return deflate(planes.tobytes())


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
    payload = scales.tobytes() + _differences(levels, np.zeros_like(levels)).tobytes()
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
    payload = inflate(delta, payload_bytes(codec, len(base)), where)
    planes, width = np.frombuffer(payload, np.uint8), WIDTHS[codec]
    if codec == "int4":
        halves = _undo(planes, _halves(base)) & 15
        return (halves[::2] | halves[1::2] << 4).astype(np.uint8).tobytes()
    if codec == "float32-q4":
        old = np.frombuffer(base, "<f4")
        scales = planes[: len(planes) - old.size].view("<f2")
        values = planes[len(planes) - old.size :]
        levels = _undo(values, np.zeros_like(values)).view(np.int8)
        if not np.isfinite(scales).all() or (np.abs(levels.astype(int)) > LEVELS).any():
            raise ReleaseError("its scales or integers are outside their range", where)
        return _sum(old, scales, levels)
    ordinals = _ordinals(base, width).copy()
    order = _order(base, width)
    ordinals[order] = _undo(planes, ordinals[order])
    return _ordinals(ordinals.tobytes(), width).tobytes()
