"""ONNX's element types: codes, names in NumPy and ml_dtypes, and sizes."""

from __future__ import annotations

from collections.abc import Mapping

# Name and bytes by TensorProto.DataType code. The codes are used in files, in plans and in C.
DTYPES = {
    1: ("float32", 4),
    2: ("uint8", 1),
    3: ("int8", 1),
    4: ("uint16", 2),
    5: ("int16", 2),
    6: ("int32", 4),
    7: ("int64", 8),
    9: ("bool", 1),
    10: ("float16", 2),
    11: ("float64", 8),
    12: ("uint32", 4),
    13: ("uint64", 8),
    16: ("bfloat16", 2),
    17: ("float8_e4m3fn", 1),
    18: ("float8_e4m3fnuz", 1),
    19: ("float8_e5m2", 1),
    20: ("float8_e5m2fnuz", 1),
    24: ("float8_e8m0fnu", 1),
}
# Name and bits of types of less than a byte. Elements are packed, the low bits first; kernels that
# compute with them get each in a byte of its own.
PACKED = {
    21: ("uint4", 4),
    22: ("int4", 4),
    23: ("float4_e2m1fn", 4),
    25: ("uint2", 2),
    26: ("int2", 2),
    27: ("float6_e2m3fn", 6),
    28: ("float6_e3m2fn", 6),
}
BITS_BY_CODE = {
    **{code: 8 * size for code, (_, size) in DTYPES.items()},
    **{code: bits for code, (_, bits) in PACKED.items()},
}
ELEMENT_BITS: Mapping[str, int] = {
    (DTYPES | PACKED)[code][0]: BITS_BY_CODE[code] for code in sorted(BITS_BY_CODE)
}
"""Bits of an element by the name of its type, without strings."""
