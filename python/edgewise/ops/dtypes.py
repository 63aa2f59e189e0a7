"""Element types by ONNX code: names, sizes, and packing of Python numbers without NumPy."""
from __future__ import annotations

import struct

from .kernel import DTYPES

FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE, UINT32, UINT64, BFLOAT16 = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16
UINT4, INT4 = 21, 22
_FORMAT = {1: "f", 2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 9: "?", 10: "e", 11: "d", 12: "I", 13: "Q"}
NAME = {code: name for code, (name, _) in DTYPES.items()} | {8: "string", UINT4: "uint4", INT4: "int4"}
CODE = {name: code for code, name in NAME.items()}
INTEGERS = {2, 3, 4, 5, 6, 7, 12, 13, UINT4, INT4}
FLOATS = {1, 10, 11, 16}
RANGE = {2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767), 6: (-2**31, 2**31 - 1), 7: (-2**63, 2**63 - 1), 12: (0, 2**32 - 1), 13: (0, 2**64 - 1)}


def size_of(dtype):
    """Bytes per element; raises KeyError for types without whole bytes."""
    return DTYPES[dtype][1]


def bytes_for(dtype, count):
    """Bytes that `count` elements take, 4-bit types packed two to a byte."""
    return (count + 1) // 2 if dtype in (UINT4, INT4) else count * size_of(dtype)


def wrap(dtype, value):
    """An integer as the type would hold it after overflow, a float rounded to the type."""
    if dtype in RANGE:
        low, high = RANGE[dtype]
        return value if low <= value <= high else (value - low) % (high - low + 1) + low
    if dtype == BOOL:
        return bool(value)
    try:
        return struct.unpack("<" + _FORMAT[dtype], struct.pack("<" + _FORMAT[dtype], value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def pack(dtype, values):
    """Flat Python numbers -> little-endian bytes."""
    if dtype == BFLOAT16:
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    if dtype in (UINT4, INT4):
        v = [x & 15 for x in values] + [0]
        return bytes(v[i] | v[i + 1] << 4 for i in range(0, len(values), 2))
    return struct.pack(f"<{len(values)}{_FORMAT[dtype]}", *values)


def unpack(dtype, data, count):
    """Little-endian bytes -> flat list of Python numbers."""
    if dtype == BFLOAT16:
        return [struct.unpack("<f", b"\0\0" + bytes(data[2 * i:2 * i + 2]))[0] for i in range(count)]
    if dtype in (UINT4, INT4):
        nibbles = [(data[i >> 1] >> (4 * (i & 1))) & 15 for i in range(count)]
        return nibbles if dtype == UINT4 else [n - 16 if n > 7 else n for n in nibbles]
    return list(struct.unpack_from(f"<{count}{_FORMAT[dtype]}", data))
