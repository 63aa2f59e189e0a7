"""Test cases of ops/quantized/qlinear.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..qlinear import conv, conv_integer, dynamic, gemm, matmul, to_float

if TYPE_CHECKING:
    from ....declare.annotations import Cases, Toolbox


def quantized(t: Toolbox, *shape: int, dtype: str = "uint8") -> Any:
    """8-bit integers over the whole range of their type."""
    return t.n(
        dtype, *shape, low=0 if dtype == "uint8" else -128, high=255 if dtype == "uint8" else 127
    )


def zero_point(t: Toolbox, dtype: str) -> Any:
    return t.const(
        t.n(dtype, low=100, high=150) if dtype == "uint8" else t.n(dtype, low=-10, high=10)
    )


def scale(t: Toolbox, *shape: int, low: float = 0.01, high: float = 0.03) -> Any:
    return t.const(t.f(*shape, low=low, high=high))


_ORT = {"trust": "ort", "why": "ONNX's reference rounds its scales in another order"}


@matmul.cases
def matmul_cases(t: Toolbox) -> Cases:
    for a, b, kinds in (
        ((3, 40), (40, 5), ("uint8", "uint8")),
        ((3, 40), (40, 5), ("uint8", "int8")),
        ((2, 3, 4), (2, 4, 5), ("int8", "int8")),
        ((2, 3, 4), (4, 5), ("uint8", "int8")),
    ):
        x, w = kinds
        yield t(
            quantized(t, *a, dtype=x),
            scale(t),
            zero_point(t, x),
            quantized(t, *b, dtype=w),
            scale(t),
            zero_point(t, w),
            scale(t, low=0.1, high=0.4),
            zero_point(t, x),
            **_ORT,
        )
    yield t(
        quantized(t, 3, 40),
        scale(t),
        zero_point(t, "uint8"),
        t.const(quantized(t, 40, 5, dtype="int8")),
        scale(t, 5),
        t.const(t.n("int8", 5, low=0, high=0)),
        scale(t, low=0.1, high=0.4),
        zero_point(t, "uint8"),
        **_ORT,
    )


@gemm.cases
def gemm_cases(t: Toolbox) -> Cases:
    for turn in (0, 1):
        w = t.const(quantized(t, *((5, 40) if turn else (40, 5)), dtype="int8"))
        inputs = [
            quantized(t, 3, 40),
            scale(t),
            zero_point(t, "uint8"),
            w,
            scale(t),
            zero_point(t, "int8"),
            t.const(t.n("int32", 5, low=-9000, high=9000)),
        ]
        yield t(*inputs, scale(t, low=0.1, high=0.4), zero_point(t, "uint8"), transB=turn)
        yield t(*inputs, transB=turn, alpha=0.5)
        yield t(*inputs[:6], None, scale(t, low=0.1, high=0.4), zero_point(t, "uint8"), transB=turn)
    yield t(
        quantized(t, 40, 3),
        scale(t),
        zero_point(t, "uint8"),
        t.const(quantized(t, 40, 5, dtype="int8")),
        scale(t, 5),
        t.const(t.n("int8", 5, low=0, high=0)),
        None,
        scale(t, low=0.1, high=0.4),
        zero_point(t, "uint8"),
        transA=1,
    )


@to_float.cases
def to_float_cases(t: Toolbox) -> Cases:
    for more in (
        (),
        (zero_point(t, "uint8"),),
        (zero_point(t, "uint8"), zero_point(t, "int8")),
        (zero_point(t, "uint8"), zero_point(t, "int8"), t.f(5)),
    ):
        yield t(
            quantized(t, 3, 40),
            t.const(quantized(t, 40, 5, dtype="int8")),
            scale(t),
            scale(t),
            *more,
            tol=1e-4,
        )
    yield t(
        quantized(t, 2, 3, 40),
        t.const(quantized(t, 40, 5, dtype="int8")),
        scale(t),
        scale(t, 5),
        zero_point(t, "uint8"),
        tol=1e-4,
    )


@dynamic.cases
def dynamic_cases(t: Toolbox) -> Cases:
    for more in ((), (zero_point(t, "int8"),), (zero_point(t, "int8"), t.f(5))):
        yield t(t.f(3, 40), t.const(quantized(t, 40, 5, dtype="int8")), scale(t), *more, tol=1e-4)
    yield t(t.f(2, 3, 40), t.const(quantized(t, 40, 5, dtype="int8")), scale(t, 5), tol=1e-4)


_CONVOLUTIONS: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 4, 9, 8), (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "strides": [2, 2]}),
    ((1, 8, 5, 5), (3, 8, 1, 1), {}),
    ((2, 24, 9, 8), (24, 1, 3, 3), {"group": 24, "pads": [1, 1, 1, 1]}),
    ((1, 48, 7, 6), (48, 1, 5, 5), {"group": 48, "strides": [2, 2], "pads": [2, 1, 2, 2]}),
    ((1, 16, 11), (16, 1, 4), {"group": 16, "dilations": [2]}),
]


@conv_integer.cases
def conv_integer_cases(t: Toolbox) -> Cases:
    for x, w, attrs in _CONVOLUTIONS:
        yield t(quantized(t, *x), t.const(quantized(t, *w)), **attrs)
        yield t(
            quantized(t, *x),
            t.const(quantized(t, *w)),
            zero_point(t, "uint8"),
            zero_point(t, "uint8"),
            **attrs,
        )
        yield t(
            quantized(t, *x),
            t.const(quantized(t, *w, dtype="int8")),
            zero_point(t, "uint8"),
            **attrs,
        )


@conv.cases
def conv_cases(t: Toolbox) -> Cases:
    for x, w, attrs in _CONVOLUTIONS:
        for kind in ("uint8", "int8"):
            inputs = [
                quantized(t, *x),
                scale(t),
                zero_point(t, "uint8"),
                t.const(quantized(t, *w, dtype=kind)),
                scale(t),
                zero_point(t, kind),
                scale(t, low=0.1, high=0.4),
                zero_point(t, "uint8"),
            ]
            yield t(*inputs, **attrs, **_ORT)
            yield t(*inputs, t.const(t.n("int32", w[0], low=-9000, high=9000)), **attrs, **_ORT)
        inputs[4:6] = scale(t, w[0]), t.const(t.n("int8", w[0], low=0, high=0))
        yield t(*inputs, **attrs, **_ORT)
