"""Numbers of float32 that float16 holds exactly: found, and converted.

All numbers of a piece are worked on at once, as one integer of lanes of 32 bits.
"""

from __future__ import annotations

from functools import lru_cache

AT_ONCE = 1 << 16  # bytes: integers that stay in a cache


def halves(data: bytes, power: int) -> bytes | None:
    """Bytes of float32 numbers w as float16 numbers of w * 2^power; None where one of them is not
    exact, or neither zero nor normal. power: at most 112.
    """
    count = len(data) // 4
    ones = _ones(count)
    x = int.from_bytes(data, "little")
    magnitudes = x & ones * 0x7FFFFFFF
    numbers = _not_zero(magnitudes, ones)
    less = (112 - power) << 23  # between the biased exponents
    # the sign's bit stays where a number is at least the least normal one
    reached = magnitudes + ones * 0x80000000 - numbers * (less + (1 << 23))
    moved = magnitudes - numbers * less
    if (
        reached & ones * 0x80000000 != ones * 0x80000000
        or moved & ones * 0xF0001FFF
        or (moved + ones * (1 << 23)) & ones * 0x10000000
    ):
        return None
    lanes = ((moved >> 13) | (x >> 16 & ones * 0x8000)).to_bytes(4 * count, "little")
    out = bytearray(2 * count)
    out[0::2], out[1::2] = lanes[0::4], lanes[1::4]
    return bytes(out)


def exponents(data: bytes) -> tuple[int, int] | None:
    """The lowest and the highest biased exponent of float32 numbers that are not zero; (255, 0)
    where all are. None where a fraction has more than float16's 10 bits, or a number is subnormal.
    """
    low, high = 255, 0
    for i in range(0, len(data), AT_ONCE):
        piece = data[i : i + AT_ONCE]
        count = len(piece) // 4
        ones = _ones(count)
        x = int.from_bytes(piece, "little")
        if x & ones * 0x1FFF:
            return None
        found = (x >> 23).to_bytes(4 * count, "little")[0::4]
        if found.count(0) != count - _not_zero(x & ones * 0x7FFFFFFF, ones).bit_count():
            return None
        rest = found.translate(None, b"\0")
        while rest:
            low, high = min(low, rest[0]), max(high, rest[0])
            rest = rest.translate(None, rest[:1])
    return low, high


@lru_cache(4)
def _ones(count: int) -> int:
    """1 in each lane."""
    return int.from_bytes(b"\1\0\0\0" * count, "little")


def _not_zero(magnitudes: int, ones: int) -> int:
    """1 in each lane that is not zero: adding the largest magnitude carries into the sign."""
    return (magnitudes + ones * 0x7FFFFFFF) >> 31 & ones
