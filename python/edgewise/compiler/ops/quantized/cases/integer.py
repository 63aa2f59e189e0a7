"""Test cases of ops/quantized/integer.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...product.cases.matmul import PRODUCTS
from ..integer import matmul_integer

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


@matmul_integer.cases
def matmul_integer_cases(t: Toolbox) -> Cases:
    for a, w in PRODUCTS:
        for x, y in (
            (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))
            if len(a) == 2
            else (("uint8", "int8"),)
        ):
            if 0 not in a and len(a) < 5:
                yield t(t.n(x, *a), t.n(y, *w))
                yield t(t.n(x, *a), t.n(y, *w), t.n(x, low=0, high=90), t.n(y, low=0, high=90))
    yield t(
        t.n("uint8", 9, 40, low=0, high=255),
        t.const(t.n("int8", 40, 50)),
        t.n("uint8", low=0, high=255),
        t.const(t.n("int8", 50)),
    )
    yield t(
        t.n("int8", 1, 300, low=-128, high=127),
        t.const(t.n("uint8", 300, 5, low=0, high=255)),
        t.n("int8", low=-128, high=127),
        t.const(t.n("uint8", 5, low=0, high=255)),
    )
    # weights of seven bits, some of which have sums of four products that leave 16 bits
    for rows, k, columns in ((9, 48, 20), (1, 1040, 8)):
        w = t.n("int8", k, columns, low=-20, high=20)
        w[5:9, 3], w[k - 24 : k - 20], w[k - 8 :, 1:] = 64, -64, 64
        a = t.n("uint8", rows, k, low=0, high=255)
        a[rows // 2, k // 2 :] = 255
        for first in (a, (a ^ 128).view("int8")):
            yield t(first, t.const(w), first[:1, :1].reshape(()), t.const(w[0, 0].reshape(())))
    yield t(t.n("uint8", 0, 4), t.n("int8", 4, 5))
    yield t(
        t.n("uint8", 3, 4),
        t.n("int8", 4, 5),
        t.n("uint8", 3, 1),
        trust="onnx",
        why="onnxruntime has no zero points by row",
    )
