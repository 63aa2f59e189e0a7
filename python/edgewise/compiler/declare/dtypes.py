"""Element types by ONNX code: names, sizes, and packing of Python numbers without NumPy."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from ...element_types import BITS_BY_CODE, DTYPES, PACKED

BytesLike = bytes | bytearray | memoryview

(
    FLOAT,
    UINT8,
    INT8,
    UINT16,
    INT16,
    INT32,
    INT64,
    STRING,
    BOOL,
    FLOAT16,
    DOUBLE,
    UINT32,
    UINT64,
    BFLOAT16,
) = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16)
E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, UINT4, INT4, E2M1, E8M0, UINT2, INT2, E2M3, E3M2 = (
    17,
    18,
    19,
    20,
    21,
    22,
    23,
    24,
    25,
    26,
    27,
    28,
)
_FORMAT = {
    1: "f",
    2: "B",
    3: "b",
    4: "H",
    5: "h",
    6: "i",
    7: "q",
    9: "?",
    10: "e",
    11: "d",
    12: "I",
    13: "Q",
}
# The names of NumPy and ml_dtypes.
NAME = {code: name for code, (name, _) in (DTYPES | PACKED).items()} | {8: "string"}
CODE = {name: code for code, name in NAME.items()}
# Bits of the types that are stored packed.
BITS = {code: bits for code, (_, bits) in PACKED.items()}
INTEGERS = {2, 3, 4, 5, 6, 7, 12, 13, UINT4, INT4, UINT2, INT2}
# Types that are computed in; MINIFLOATS are only stored.
FLOATS = {1, 10, 11, 16}
# Lowest and highest number of each integer type.
RANGE = {
    2: (0, 255),
    3: (-128, 127),
    4: (0, 65535),
    5: (-32768, 32767),
    6: (-(2**31), 2**31 - 1),
    7: (-(2**63), 2**63 - 1),
    12: (0, 2**32 - 1),
    13: (0, 2**64 - 1),
    UINT4: (0, 15),
    INT4: (-8, 7),
    UINT2: (0, 3),
    INT2: (-2, 1),
}
# (mantissa bits, bias, code of the largest number, code of NaN, code of numbers out of range where
# they do not saturate, sign bit), as in core/kernels/elementwise/cast.c.
MINIFLOATS = {
    E4M3FN: (3, 7, 0x7E, 0x7F, 0x7F, 0x80),
    E4M3FNUZ: (3, 8, 0x7F, 0x80, 0x80, 0x80),
    E5M2: (2, 15, 0x7B, 0x7E, 0x7C, 0x80),
    E5M2FNUZ: (2, 16, 0x7F, 0x80, 0x80, 0x80),
    E2M1: (1, 1, 7, 8, 7, 8),
    E2M3: (3, 1, 0x1F, 0x20, 0x1F, 0x20),
    E3M2: (2, 3, 0x1F, 0x20, 0x1F, 0x20),
    E8M0: (0, 127, 254, 255, 255, 0),
}


def size_of(dtype: int) -> int:
    """Bytes per element; raises KeyError for types without whole bytes."""
    return DTYPES[dtype][1]


def bits_of(dtype: int) -> int:
    """Bits of an element."""
    return BITS_BY_CODE[dtype]


def bytes_for(dtype: int, count: int) -> int:
    """Bytes of `count` elements; those of less than a byte are packed."""
    return (count * BITS[dtype] + 7) // 8 if dtype in BITS else count * size_of(dtype)


def encode(dtype: int, x: float, saturate: bool = True, rounding: str = "up") -> int:
    """The code of a number in one of MINIFLOATS, by the tables of ONNX's Cast.

    Args:
        dtype: The type.
        x: The number; it is rounded to nearest even.
        saturate: Whether numbers out of range become the largest one.
        rounding: "up", "down" or "nearest", for E8M0 alone.
    """
    mantissa, bias, largest, nan, over, sign = MINIFLOATS[dtype]
    negative = sign if math.copysign(1, x) < 0 else 0
    if x != x:
        return nan | (negative if nan < sign else 0)
    a = abs(x)
    if dtype == E8M0:
        if not a:
            return 0 if saturate else nan
        if math.isinf(a):
            return largest if saturate else nan
        half, e = math.frexp(a)  # half in [0.5, 1)
        code = (
            e
            - 1
            + bias
            + (half > 0.5 and rounding == "up" or half >= 0.75 and rounding == "nearest")
        )
        return code if 0 <= code <= largest else nan if not saturate else largest if code > 0 else 0
    if math.isinf(a):
        code = largest + 1
    elif a:
        step = max(math.frexp(a)[1] - 1, 1 - bias) - mantissa
        code = round(math.ldexp(a, -step)) + ((step + mantissa + bias - 1) << mantissa)
    else:
        code = 0
    if code > largest:
        code = largest if saturate else over
    return code if dtype in (E4M3FNUZ, E5M2FNUZ) and code in (0, nan) else code | negative


def decode(dtype: int, code: int) -> float:
    """The number of a code of one of MINIFLOATS."""
    mantissa, bias, largest, nan, over, sign = MINIFLOATS[dtype]
    if dtype == E8M0:
        return math.nan if code == nan else math.ldexp(1.0, code - bias)
    magnitude = code & (sign - 1)
    if magnitude > largest or code == nan == sign and dtype in (E4M3FNUZ, E5M2FNUZ):
        return (
            math.nan
            if magnitude != over or nan == over
            else math.copysign(math.inf, -1 if code & sign else 1)
        )
    e, m = magnitude >> mantissa, magnitude & ((1 << mantissa) - 1)
    v = math.ldexp(m + (1 << mantissa if e else 0), (e or 1) - bias - mantissa)
    return -v if code & sign else v


def wrap(dtype: int, value: Any) -> Any:
    """A number in the range of a type: an integer wraps around, a float is rounded."""
    if dtype in RANGE:
        low, high = RANGE[dtype]
        return value if low <= value <= high else (value - low) % (high - low + 1) + low
    if dtype == BOOL:
        return bool(value)
    if dtype in MINIFLOATS:
        return decode(dtype, encode(dtype, value))
    if dtype == BFLOAT16:
        return unpack(dtype, pack(dtype, [value]), 1)[0]
    try:
        return struct.unpack("<" + _FORMAT[dtype], struct.pack("<" + _FORMAT[dtype], value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _bfloat(value: float) -> int:
    """The bits of the nearest bfloat16, ties to even.

    The float32 in between is rounded to odd: two roundings to nearest could differ from one.
    """
    try:
        f = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        f = math.copysign(math.inf, value)
    u = int.from_bytes(struct.pack("<f", f), "little")
    if value != value:
        return u >> 16 | 0x40
    if f != value and not math.isinf(f):
        u = (u - (abs(f) > abs(value))) | 1
    return (u + 0x7FFF + (u >> 16 & 1)) >> 16


def pack(dtype: int, values: Sequence[Any]) -> bytes:
    """Converts a flat sequence of numbers to little-endian bytes."""
    if dtype == BFLOAT16:
        return b"".join(_bfloat(v).to_bytes(2, "little") for v in values)
    if dtype in MINIFLOATS:
        values = [encode(dtype, v) for v in values]
    if dtype in BITS:
        return pack_codes(BITS[dtype], values)
    return struct.pack(f"<{len(values)}{_FORMAT.get(dtype, 'B')}", *values)


def pack_codes(bits: int, codes: Sequence[int]) -> bytes:
    """Packs the low bits of each number without gaps, low bits first."""
    mask, out = (1 << bits) - 1, bytearray()
    for first in range(0, len(codes), 8):  # eight codes are a whole number of bytes
        out += sum(
            (c & mask) << (i * bits) for i, c in enumerate(codes[first : first + 8])
        ).to_bytes(bits, "little")
    return bytes(out[: (len(codes) * bits + 7) // 8])


def unpack_codes(bits: int, data: BytesLike, count: int) -> list[int]:
    """The reverse of `pack_codes`."""
    mask, out = (1 << bits) - 1, []
    for first in range(0, count, 8):
        eight = int.from_bytes(bytes(data[first // 8 * bits : (first // 8 + 1) * bits]), "little")
        out += [eight >> (i * bits) & mask for i in range(min(8, count - first))]
    return out


def unpack(dtype: int, data: BytesLike, count: int) -> list[Any]:
    """Converts little-endian bytes to a flat list of numbers."""
    if dtype == BFLOAT16:
        return [
            struct.unpack("<f", b"\0\0" + bytes(data[2 * i : 2 * i + 2]))[0] for i in range(count)
        ]
    if dtype in BITS:
        codes = unpack_codes(BITS[dtype], data, count)
    else:
        codes = list(struct.unpack_from(f"<{count}{_FORMAT.get(dtype, 'B')}", data))
    if dtype in MINIFLOATS:
        return [decode(dtype, c) for c in codes]
    if dtype in (INT4, INT2):
        return [wrap(dtype, c) for c in codes]
    return list(codes)
