"""Test cases of ops/quantized/qlinear.py."""

from __future__ import annotations

from ..qlinear import (
    _bytes,
    _zero_of,
    attention,
    concat,
    conv,
    conv_integer,
    dynamic,
    gemm,
    matmul,
    to_float,
)


def _scale(t, *shape, low=0.01, high=0.03):
    return t.const(t.f(*shape, low=low, high=high))


_ORT = {"trust": "ort", "why": "ONNX's reference rounds its scales in another order"}


@matmul.cases
def matmul_cases(t):
    for a, b, kinds in (
        ((3, 40), (40, 5), ("uint8", "uint8")),
        ((3, 40), (40, 5), ("uint8", "int8")),
        ((2, 3, 4), (2, 4, 5), ("int8", "int8")),
        ((2, 3, 4), (4, 5), ("uint8", "int8")),
    ):
        x, w = kinds
        yield t(
            _bytes(t, *a, dtype=x),
            _scale(t),
            _zero_of(t, x),
            _bytes(t, *b, dtype=w),
            _scale(t),
            _zero_of(t, w),
            _scale(t, low=0.1, high=0.4),
            _zero_of(t, x),
            **_ORT,
        )
    yield t(
        _bytes(t, 3, 40),
        _scale(t),
        _zero_of(t, "uint8"),
        t.const(_bytes(t, 40, 5, dtype="int8")),
        _scale(t, 5),
        t.const(t.n("int8", 5, low=0, high=0)),
        _scale(t, low=0.1, high=0.4),
        _zero_of(t, "uint8"),
        **_ORT,
    )


@gemm.cases
def gemm_cases(t):
    for turn in (0, 1):
        w = t.const(_bytes(t, *((5, 40) if turn else (40, 5)), dtype="int8"))
        inputs = [
            _bytes(t, 3, 40),
            _scale(t),
            _zero_of(t, "uint8"),
            w,
            _scale(t),
            _zero_of(t, "int8"),
            t.const(t.n("int32", 5, low=-9000, high=9000)),
        ]
        yield t(*inputs, _scale(t, low=0.1, high=0.4), _zero_of(t, "uint8"), transB=turn)
        yield t(*inputs, transB=turn, alpha=0.5)
        yield t(*inputs[:6], None, _scale(t, low=0.1, high=0.4), _zero_of(t, "uint8"), transB=turn)
    yield t(
        _bytes(t, 40, 3),
        _scale(t),
        _zero_of(t, "uint8"),
        t.const(_bytes(t, 40, 5, dtype="int8")),
        _scale(t, 5),
        t.const(t.n("int8", 5, low=0, high=0)),
        None,
        _scale(t, low=0.1, high=0.4),
        _zero_of(t, "uint8"),
        transA=1,
    )


@to_float.cases
def to_float_cases(t):
    for more in (
        (),
        (_zero_of(t, "uint8"),),
        (_zero_of(t, "uint8"), _zero_of(t, "int8")),
        (_zero_of(t, "uint8"), _zero_of(t, "int8"), t.f(5)),
    ):
        yield t(
            _bytes(t, 3, 40),
            t.const(_bytes(t, 40, 5, dtype="int8")),
            _scale(t),
            _scale(t),
            *more,
            tol=1e-4,
        )
    yield t(
        _bytes(t, 2, 3, 40),
        t.const(_bytes(t, 40, 5, dtype="int8")),
        _scale(t),
        _scale(t, 5),
        _zero_of(t, "uint8"),
        tol=1e-4,
    )


@dynamic.cases
def dynamic_cases(t):
    for more in ((), (_zero_of(t, "int8"),), (_zero_of(t, "int8"), t.f(5))):
        yield t(t.f(3, 40), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t), *more, tol=1e-4)
    yield t(t.f(2, 3, 40), t.const(_bytes(t, 40, 5, dtype="int8")), _scale(t, 5), tol=1e-4)


_CONVOLUTIONS = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 4, 9, 8), (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "strides": [2, 2]}),
    ((1, 8, 5, 5), (3, 8, 1, 1), {}),
    ((2, 24, 9, 8), (24, 1, 3, 3), {"group": 24, "pads": [1, 1, 1, 1]}),
    ((1, 48, 7, 6), (48, 1, 5, 5), {"group": 48, "strides": [2, 2], "pads": [2, 1, 2, 2]}),
    ((1, 16, 11), (16, 1, 4), {"group": 16, "dilations": [2]}),
]


@conv_integer.cases
def conv_integer_cases(t):
    for x, w, attrs in _CONVOLUTIONS:
        yield t(_bytes(t, *x), t.const(_bytes(t, *w)), **attrs)
        yield t(
            _bytes(t, *x),
            t.const(_bytes(t, *w)),
            _zero_of(t, "uint8"),
            _zero_of(t, "uint8"),
            **attrs,
        )
        yield t(_bytes(t, *x), t.const(_bytes(t, *w, dtype="int8")), _zero_of(t, "uint8"), **attrs)


@conv.cases
def conv_cases(t):
    for x, w, attrs in _CONVOLUTIONS:
        for kind in ("uint8", "int8"):
            inputs = [
                _bytes(t, *x),
                _scale(t),
                _zero_of(t, "uint8"),
                t.const(_bytes(t, *w, dtype=kind)),
                _scale(t),
                _zero_of(t, kind),
                _scale(t, low=0.1, high=0.4),
                _zero_of(t, "uint8"),
            ]
            yield t(*inputs, **attrs, **_ORT)
            yield t(*inputs, t.const(t.n("int32", w[0], low=-9000, high=9000)), **attrs, **_ORT)
        inputs[4:6] = _scale(t, w[0]), t.const(t.n("int8", w[0], low=0, high=0))
        yield t(*inputs, **attrs, **_ORT)


@concat.cases
def concat_cases(t):
    parts = [
        x
        for k in (3, 5)
        for x in (_bytes(t, 2, k), t.const(t.of("float32", 2**-k)), _zero_of(t, "uint8"))
    ]
    yield t(t.const(t.of("float32", 0.0613)), _zero_of(t, "uint8"), *parts, axis=1)


@attention.cases
def attention_cases(t):
    inputs = [
        _bytes(t, 2, 5, 12),
        t.const(_bytes(t, 12, 48, dtype="int8")),
        t.const(t.f(48)),
        _scale(t),
        _scale(t),
    ]
    yield t(*inputs, None, _zero_of(t, "uint8"), num_heads=4, tol=1e-4)
    yield t(
        *inputs,
        t.of("int32", [3, 5]),
        _zero_of(t, "uint8"),
        t.const(t.of("int8", 0)),
        num_heads=4,
        tol=1e-4,
    )
    yield t(*inputs, None, _zero_of(t, "uint8"), num_heads=4, unidirectional=1, tol=1e-4)
