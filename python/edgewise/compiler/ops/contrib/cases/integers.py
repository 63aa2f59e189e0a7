"""Test cases of ops/contrib/integers.py: MatMulInteger16 by onnxruntime, the others, which it runs
on GPUs only, by their definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..integers import matmul, mul, reduce_sum

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox

WHY = "onnxruntime has no kernel for the processor"


@mul.cases
def mul_cases(t: Toolbox) -> Cases:
    for dtype, low, high, zeros in (
        ("uint8", 0, 255, (7, 130)),
        ("int8", -128, 127, (-3, 5)),
        ("uint8", 0, 255, (None, 9)),
        ("int8", -128, 127, (None, None)),
    ):
        a, b = t.n(dtype, 3, 1, 7, low=low, high=high), t.n(dtype, 4, 1, low=low, high=high)
        first, second = (t.of(dtype, z) if z is not None else None for z in zeros)
        y = (a.astype("int32") - (zeros[0] or 0)) * (b.astype("int32") - (zeros[1] or 0))
        yield t(a, first, b, *([second] if second is not None else []), expect=[y], why=WHY)


@reduce_sum.cases
def reduce_sum_cases(t: Toolbox) -> Cases:
    for dtype, low, high, axes, keep in (
        ("uint8", 0, 255, [1], 1),
        ("int8", -128, 127, [0, -1], 0),
        ("int8", -128, 127, [0, 1, 2], 1),
    ):
        x = t.n(dtype, 3, 5, 7, low=low, high=high)
        wide = "uint32" if dtype == "uint8" else "int32"
        y = x.sum(tuple(axes), wide, keepdims=bool(keep))
        yield t(x, axes=axes, keepdims=keep, expect=[y], why=WHY)


@matmul.cases
def matmul_cases(t: Toolbox) -> Cases:
    yield t(t.n("int16", 3, 5), t.n("int16", 5, 7))
    yield t(t.n("int16", 2, 3, 5, low=-9000, high=9000), t.n("int16", 5, 4))
