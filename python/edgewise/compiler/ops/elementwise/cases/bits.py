"""Test cases of ops/elementwise/bits.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bits import bit_cast

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@bit_cast.cases
def bit_cast_cases(t: Toolbox) -> Cases:
    for a, b in (
        ("float32", 6),
        ("int32", 1),
        ("float64", 7),
        ("uint64", 11),
        ("float16", 4),
        ("int16", 10),
        ("bfloat16", 5),
        ("uint16", 16),
        ("int8", 2),
        ("bool", 2),
        ("uint8", 17),
        ("float8_e5m2", 3),
        ("int4", 21),
        ("uint4", 23),
        ("int2", 25),
    ):
        yield t(
            t.any(a, 3, 5),
            to=b,
            opset=26,
            fold=a != "int16",
            trust="onnx",
            why="onnxruntime does not have it",
        )
