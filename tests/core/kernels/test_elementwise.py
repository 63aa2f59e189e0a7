"""Elementwise kernels against NumPy: all types, unusual strides, sizes around block boundaries, NaN
and infinities.
"""

import math
import struct

import numpy as np
import pytest
from edgewise.compiler.ops.elementwise.contracts import BINARY, UNARY
from edgewise.compiler.ops.elementwise.formulas import UNARY as FORMULAS

from .harness import OK, PARAM, TYPES, check, make, pad, run, strided, strides_of

SHAPES = [
    (1,),
    (7,),
    (5, 3),
    (40, 3, 5),
    (3, 300),
    (2, 3, 4, 5, 2, 3),
    (700,),
    (70000,),
    (300, 257),
    (2, 40000),
]


HOWS = ["plain", "broadcast", "transposed", "negative"]


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


A, B = 0.7, 1.3


REFERENCE = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x < 0, A * x, x),
    "elu": lambda x: np.where(x < 0, A * np.expm1(x), x),
    "selu": lambda x: B * np.where(x < 0, A * np.expm1(x), x),
    "celu": lambda x: np.where(x < 0, A * np.expm1(x / A), x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "hard_sigmoid": lambda x: np.clip(A * x + B, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * sigmoid(A * x),
    "silu": lambda x: x * sigmoid(x),
    "thresholded_relu": lambda x: np.where(x > A, x, 0),
    "clip": lambda x: np.clip(x, A, B),
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": lambda x: x * x,
    "linear": lambda x: A * x + B,
}


# Codes without a reference here are those of operators, which their cases compare.
COMPARED = [op for op in UNARY.items if op in REFERENCE or not FORMULAS[op].operators()]


# long: types, shapes and strides of one family of kernels
@pytest.mark.parametrize("op", COMPARED)
def test_unary(engine, op):
    rng = np.random.default_rng(1)
    a, b = (np.float32(A), np.float32(B))
    for code in (1, 11):
        if op in ("not", "bit_not"):
            continue
        for shape, how in [
            ((7,), "plain"),
            ((5, 700), "plain"),
            ((40, 3, 5), "transposed"),
            ((3, 300), "negative"),
            ((60000,), "plain"),
        ]:
            x, view, at, xs = strided(
                rng,
                shape,
                TYPES[code],
                how,
                [*np.linspace(-6, 6, 401), 0.0, -0.0, 1e-6, 30, -90, np.inf, -np.inf, np.nan],
            )
            bool_out = op in ("is_nan", "is_inf")
            y = np.zeros(shape, bool if bool_out else x.dtype)
            assert (
                run(
                    engine,
                    "unary",
                    {
                        "op": UNARY[op],
                        "type": code,
                        "dims": pad(shape),
                        "xs": xs,
                        "ys": strides_of(shape),
                        "alpha": a,
                        "beta": b,
                    },
                    [x, y],
                    [at],
                )
                == OK
            )
            with np.errstate(all="ignore"):
                want = REFERENCE[op](view.astype(np.float64)).astype(y.dtype)
            limits = np.isinf(view) & (
                np.isnan(want) | np.isnan(y.astype(float))
            )  # x f(x) at infinity: the limit or NaN
            check(
                np.where(limits, 0, y).astype(y.dtype),
                np.where(limits, 0, want),
                3e-6 if code == 1 else 1e-6,
                5e-7,
            )
    exact = {
        "neg": np.negative,
        "abs": np.abs,
        "sign": np.sign,
        "relu": lambda x: np.maximum(x, np.zeros_like(x)),
        "square": lambda x: x * x,
        "bit_not": np.invert,
        "clip": lambda x: np.clip(x, *(np.array([0, 9], x.dtype))),
    }
    for code in (2, 3, 4, 5, 6, 7, 12, 13):
        x = make(rng, (300,), TYPES[code])
        y = np.zeros_like(x)
        got = run(
            engine,
            "unary",
            {
                "op": UNARY[op],
                "type": code,
                "dims": pad(x.shape),
                "xs": strides_of(x.shape),
                "ys": strides_of(x.shape),
                "alpha": -0.5,
                "beta": 9.5,
            },
            [x, y],
        )
        assert got == (OK if op in exact else PARAM)
        if op in exact:
            want = exact[op](x)
            if op == "clip" and x.dtype.kind == "i":
                want = np.clip(x, 0, 9)
            check(y, want)


def test_not(engine):
    x = np.array([0, 1, 1, 0], bool)
    y = np.zeros(4, bool)
    assert (
        run(
            engine,
            "unary",
            {
                "op": UNARY["not"],
                "type": 9,
                "dims": pad((4,)),
                "xs": strides_of((4,)),
                "ys": strides_of((4,)),
            },
            [x, y],
        )
        == OK
    )
    assert (y == ~x).all()


def integer_power(a, b):
    r = np.ones(a.shape, a.dtype)
    for i, (x, n) in enumerate(zip(a.ravel().tolist(), b.ravel().tolist())):
        v = x**n if n >= 0 else (1 if x == 1 or (x == -1 and n % 2 == 0) else -1 if x == -1 else 0)
        bits = a.itemsize * 8
        v &= (1 << bits) - 1
        r.ravel()[i] = np.array(v, np.uint64).astype(a.dtype)
    return r


def divide(a, b):
    with np.errstate(all="ignore"):
        q = np.where(
            b == 0,
            0,
            np.array(
                [
                    0 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)
                    for x, y in zip(a.ravel().tolist(), b.ravel().tolist())
                ],
                object,
            ).reshape(a.shape),
        )
    bits = a.itemsize * 8
    return (
        np.array([int(v) & ((1 << bits) - 1) for v in q.ravel()], np.uint64)
        .astype(a.dtype)
        .reshape(a.shape)
    )


def shift(a, b, left):
    bits = a.itemsize * 8
    v = [
        0 if not 0 <= n < bits else (x << n if left else x >> n) & ((1 << bits) - 1)
        for x, n in zip(a.ravel().tolist(), b.ravel().tolist())
    ]
    return np.array(v, np.uint64).astype(a.dtype).reshape(a.shape)


COMPARE = {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


FLOAT = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "prelu": lambda a, b: np.where(a < 0, a * b, a),
    "silu_mul": lambda a, b: REFERENCE["silu"](a) * b,
    "gelu_mul": lambda a, b: REFERENCE["gelu"](a) * b,
    "gelu_tanh_mul": lambda a, b: REFERENCE["gelu_tanh"](a) * b,
}


INTEGER = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": divide,
    "mod": lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))).astype(a.dtype),
    "fmod": lambda a, b: np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype),
    "pow": integer_power,
    "min": np.minimum,
    "max": np.maximum,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "shift_left": lambda a, b: shift(a, b, True),
    "shift_right": lambda a, b: shift(a, b, False),
    "prelu": lambda a, b: np.where(a < 0, a * b, a),
}


LOGIC = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


# long: types, shapes and strides of one family of kernels
@pytest.mark.parametrize("op", BINARY.items)
def test_binary(engine, op):
    rng = np.random.default_rng(2)
    for code, dtype in TYPES.items():
        table = FLOAT if code in (1, 11) else LOGIC if code == 9 else INTEGER
        f = COMPARE.get(op) or table.get(op)
        for n, shape in enumerate(SHAPES if code == 1 else SHAPES[:6]):
            if code == 10 or not f:
                x = np.zeros(1, dtype)
                y = np.zeros(1, bool if op in COMPARE else dtype)
                assert (
                    run(
                        engine,
                        "binary",
                        {
                            "op": BINARY[op],
                            "type": code,
                            "dims": [1] * 6,
                            "as": [0] * 6,
                            "bs": [0] * 6,
                            "ys": [0] * 6,
                        },
                        [x, x.copy(), y],
                    )
                    == PARAM
                )
                break
            a, va, a_at, as_ = strided(rng, shape, dtype, HOWS[n % 4])
            b, vb, b_at, bs = strided(
                rng,
                shape,
                dtype,
                HOWS[(n // 4 + n) % 4],
                [0, 1, 2, 3, 5] if op in ("pow", "shift_left", "shift_right") else None,
            )
            y = np.zeros(shape, bool if op in COMPARE else dtype)
            assert (
                run(
                    engine,
                    "binary",
                    {
                        "op": BINARY[op],
                        "type": code,
                        "dims": pad(shape),
                        "as": as_,
                        "bs": bs,
                        "ys": strides_of(shape),
                    },
                    [a, b, y],
                    [a_at, b_at],
                )
                == OK
            )
            with np.errstate(all="ignore"):
                want = (
                    f(va.astype(np.float64), vb.astype(np.float64)).astype(y.dtype)
                    if code in (1, 11) and op not in COMPARE
                    else f(va, vb)
                )
            largest = (
                np.abs(vb.astype(np.float64)).max() if op.endswith("_mul") else 2
            )  # the tolerance of test_unary for activations, times b
            check(y, want, 3e-6 if code == 1 else 1e-12, 5e-7 * largest if code == 1 else 1e-12)


def test_nan_in_min_max(engine):
    x, y = (
        np.array([np.nan, 1, np.nan, 2], np.float32),
        np.array([1, np.nan, np.nan, 1], np.float32),
    )
    for op, want in (("min", [np.nan, np.nan, np.nan, 1]), ("max", [np.nan, np.nan, np.nan, 2])):
        out = np.zeros(4, np.float32)
        s = strides_of((4,))
        assert (
            run(
                engine,
                "binary",
                {"op": BINARY[op], "type": 1, "dims": pad((4,)), "as": s, "bs": s, "ys": s},
                [x, y, out],
            )
            == OK
        )
        check(out, want)


@pytest.mark.parametrize("shape", SHAPES)
def test_in_place_and_strided_output(engine, shape):
    rng = np.random.default_rng(3)
    s, x, b = strides_of(shape), make(rng, shape, np.float32), make(rng, shape, np.float32)
    want = x + b
    unused = np.zeros(1, np.float32)
    assert (
        run(
            engine,
            "binary",
            {"op": BINARY["add"], "type": 1, "dims": pad(shape), "as": s, "bs": s, "ys": s},
            [x, b, unused],
            alias=[(2, 0)],
        )
        == OK
    )
    check(x, want)
    for how in ("transposed", "negative"):
        y, view, at, ys = strided(rng, shape, np.float32, how)
        x = make(rng, shape, np.float32)
        assert (
            run(
                engine,
                "unary",
                {"op": UNARY["neg"], "type": 1, "dims": pad(shape), "xs": s, "ys": ys},
                [x, y],
                [0, at],
            )
            == OK
        )
        check(view, -x)


# long: types, shapes and strides of three kernels
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_where_copy_fill(engine, size):
    rng = np.random.default_rng(4)
    dtype = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size]
    for n, shape in enumerate(
        SHAPES
        + [(64, 100, 70), (33, 1000), (1000, 33), (130, 17, 4), (200000,), (5, 4, 3, 2, 3, 4)]
    ):
        for how in HOWS:
            other = HOWS[(n + len(how)) % 4]
            a, va, a_at, as_ = strided(rng, shape, dtype, how)
            b, vb, b_at, bs = strided(rng, shape, dtype, other)
            c, vc, c_at, cs = strided(rng, shape, bool, HOWS[(n * 3) % 4])
            y = np.zeros(shape, dtype)
            assert (
                run(
                    engine,
                    "where",
                    {
                        "size": size,
                        "dims": pad(shape),
                        "cs": cs,
                        "as": as_,
                        "bs": bs,
                        "ys": strides_of(shape),
                    },
                    [c, a, b, y],
                    [c_at, a_at, b_at],
                )
                == OK
            )
            check(y, np.where(vc, va, vb))
            y, view, y_at, ys = strided(rng, shape, dtype, how if how != "broadcast" else "plain")
            x, vx, x_at, xs = strided(rng, shape, dtype, other)
            assert (
                run(
                    engine,
                    "copy",
                    {"size": size, "dims": pad(shape), "xs": xs, "ys": ys},
                    [x, y],
                    [x_at, y_at],
                )
                == OK
            )
            check(view, vx)
            value = int(rng.integers(0, 2**63))
            low, high = struct.unpack("<ii", struct.pack("<q", value))
            assert (
                run(
                    engine,
                    "fill",
                    {
                        "size": size,
                        "dims": pad(shape),
                        "ys": ys,
                        "value_low": low,
                        "value_high": high,
                    },
                    [y],
                    [y_at],
                )
                == OK
            )
            assert (view == dtype(value & (256**size - 1))).all()
