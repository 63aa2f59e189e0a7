"""Tests of single kernels against NumPy, each as a plan of one step.

They cover all types, unusual strides, sizes around block boundaries, NaN and infinities.
"""

import ctypes
import math
import os
import struct

import numpy as np
import pytest
from edgewise.declare.kernel import KERNELS
from edgewise.ops.elementwise.contracts import BINARY, UNARY
from edgewise.ops.reduce.contracts import REDUCE
from edgewise.ops.table import kernel_table

TYPES = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
    12: np.uint32,
    13: np.uint64,
}
CODE = {np.dtype(t): c for c, t in TYPES.items()}


def library():
    if os.environ.get("EDGEWISE_LIBRARY"):
        return os.environ["EDGEWISE_LIBRARY"]
    from edgewise.engine.native import library_path

    return library_path()


LIB = ctypes.CDLL(library())
for name in ("ew_open", "ew_last_error"):
    getattr(LIB, name).restype = ctypes.c_void_p
OK, PARAM, BOUNDS, ALIAS, INDEX = 0, 5, 6, 7, 11


@pytest.fixture(params=[1, 3], scope="module")
def engine(request):
    e = ctypes.c_void_p(LIB.ew_open(request.param))
    yield e
    LIB.ew_close(e)


def run(engine, kernel, params, operands, offsets=(), alias=()):
    """Run one step and return the error code.

    operands: arrays (written in place), or None if absent. offsets: in bytes. alias: (output,
    input) pairs that share a slot.
    """
    k, table = KERNELS[kernel], kernel_table()
    packed = b""
    for name, kind in k.params.items():
        v = params.get(name, 0)
        if kind == "f32":
            packed += struct.pack("<f", v)
        elif kind == "i32":
            packed += struct.pack("<i", v)
        else:
            packed += struct.pack("<6i", *v)
    size = len(packed)
    packed += bytes(-size % 8)
    slots = [a for a in operands if a is not None]
    number = {id(a): i for i, a in enumerate(slots)}
    ops = b""
    for i, a in enumerate(operands):
        target = next((operands[j] for o, j in alias if o == i), a)
        ops += struct.pack(
            "<IIqq",
            0xFFFFFFFF if a is None else 2 + number[id(target)],
            0,
            offsets[i] if i < len(offsets) else 0,
            0,
        )
    step = (
        struct.pack("<HHHHII", k.id, len(operands), 0, 0, size, 16 + len(packed) + len(ops))
        + packed
        + ops
    )
    slot_bytes = b"".join(struct.pack("<QII", a.nbytes, 1, 0) for a in slots)
    at = 96 + len(slot_bytes)
    plan = (
        struct.pack(
            "<8sIIIIIIQQQQQQQ",
            b"EDGEPLN1",
            table.hash,
            0,
            len(slots),
            0,
            1,
            0,
            0,
            96,
            96,
            at,
            0,
            at,
            at + len(step),
        ).ljust(96, b"\0")
        + slot_bytes
        + step
    )
    p = ctypes.c_void_p()
    code = LIB.ew_plan_load(engine, plan, ctypes.c_size_t(len(plan)), ctypes.byref(p))
    if code:
        return code
    for i, a in enumerate(slots):
        assert (
            LIB.ew_plan_bind(p, i, ctypes.c_void_p(a.ctypes.data), ctypes.c_size_t(a.nbytes)) == 0
        )
    code = LIB.ew_plan_run(p)
    LIB.ew_plan_free(p)
    return code


def strided(rng, shape, dtype, how, values=None):
    """A view of `shape` (padded to 6 dimensions) into a larger array.

    Returns the array, the byte offset of the view, and its strides in elements.
    """
    shape = tuple(shape)
    if how == "broadcast":
        inner = tuple(n if rng.random() < 0.5 else 1 for n in shape)
        base = make(rng, inner, dtype, values)
        view = np.broadcast_to(base, shape)
    elif how == "transposed":
        order = rng.permutation(len(shape))
        base = make(rng, tuple(shape[i] for i in order), dtype, values)
        view = base.transpose(np.argsort(order))
    elif how == "negative":
        base = make(rng, tuple(2 * n for n in shape), dtype, values)
        view = base[tuple(slice(None, None, -2) for _ in shape)]
    else:
        base = make(rng, shape, dtype, values)
        view = base
    offset = view.__array_interface__["data"][0] - base.ctypes.data
    strides = [s // view.itemsize if n > 1 else 0 for s, n in zip(view.strides, shape)]
    return base, view, offset, [0] * (6 - len(shape)) + strides


def make(rng, shape, dtype, values=None):
    dtype = np.dtype(dtype)
    if values is not None:
        return rng.choice(np.asarray(values, dtype), shape)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(max(info.min, -9), 10, shape).astype(dtype)
        return np.where(
            rng.random(shape) < 0.2,
            rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True),
            small,
        ).astype(dtype)
    return (rng.standard_normal(shape) * 3).astype(dtype)


def pad(shape):
    return [1] * (6 - len(shape)) + list(shape)


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


def check(got, want, tolerance=0.0, absolute=0.0):
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            np.asarray(got, np.float64) if got.dtype.kind == "f" else got,
            np.asarray(want, np.float64) if got.dtype.kind == "f" else want,
            rtol=tolerance,
            atol=absolute,
            equal_nan=True,
        )


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


@pytest.mark.parametrize("op", UNARY.items)
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


def strides_of(shape):
    return [0] * (6 - len(shape)) + [
        int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))
    ]


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


@pytest.mark.parametrize("source", list(TYPES))
def test_cast(engine, source):
    rng = np.random.default_rng(5)
    for target in TYPES:
        for shape, how in [((5,), "plain"), ((3, 300), "transposed"), ((2, 40000), "plain")]:
            if np.dtype(TYPES[source]).kind == "f":
                top = 60000 if 10 in (source, target) else 3e38
                values = [
                    0,
                    -0.0,
                    0.5,
                    -0.5,
                    1.5,
                    2.5,
                    -7.9,
                    127.6,
                    128,
                    255.5,
                    256,
                    -129,
                    300,
                    32767.5,
                    65535.4,
                    1e-7,
                    6e-8,
                    0.1,
                    top,
                    -top,
                    np.nan,
                    np.inf,
                    -np.inf,
                ] + ([2.0**31, 2.0**40, -(2.0**63), 2.0**64] if source != 10 else [])
                x, view, at, xs = strided(rng, shape, TYPES[source], how, values)
            else:
                x, view, at, xs = strided(rng, shape, TYPES[source], how)
            y = np.zeros(shape, TYPES[target])
            assert (
                run(
                    engine,
                    "cast",
                    {
                        "x_type": source,
                        "y_type": target,
                        "mode": 0,
                        "dims": pad(shape),
                        "xs": xs,
                        "ys": strides_of(shape),
                    },
                    [x, y],
                    [at],
                )
                == OK
            )
            with np.errstate(all="ignore"):
                if np.dtype(TYPES[source]).kind == "f" and np.dtype(TYPES[target]).kind in "iu":
                    info = np.iinfo(TYPES[target])
                    want = np.array(
                        [
                            (
                                0
                                if math.isnan(v)
                                else (
                                    info.max
                                    if v >= info.max
                                    else info.min
                                    if v <= info.min
                                    else int(v)
                                )
                            )
                            for v in view.astype(np.float64).ravel().tolist()
                        ],
                        y.dtype,
                    ).reshape(shape)
                else:
                    want = view.astype(TYPES[target])
            np.testing.assert_array_equal(y, want)


def test_cast_float16(engine):
    """Conversions of all halves to float32, and back.

    The way back includes the midpoints of neighbouring halves, their neighbours, and random bits.
    """
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    whole = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    between = (whole[1:] + whole[:-1]) / 2
    edges = np.array([65519.996, 65520, 65536, 1e38, np.inf, np.nan], np.float32)
    floats = np.concatenate(
        [
            whole,
            between,
            np.nextafter(between, np.float32(np.inf)),
            np.nextafter(between, -np.float32(np.inf)),
            edges,
            -edges,
            np.random.default_rng(9).integers(0, 1 << 32, 1 << 20, np.uint32).view(np.float32),
        ]
    )
    for x, source, dtype in ((halves, 10, np.float32), (floats, 1, np.float16)):
        y, s = np.zeros(x.size, dtype), strides_of(x.shape)
        assert (
            run(
                engine,
                "cast",
                {
                    "x_type": source,
                    "y_type": 11 - source,
                    "mode": 0,
                    "dims": pad(x.shape),
                    "xs": s,
                    "ys": s,
                },
                [x, y],
            )
            == OK
        )
        with np.errstate(all="ignore"):
            want = x.astype(dtype)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(np.signbit(y), np.signbit(want))


def test_cast_bfloat16(engine):
    x = np.array([1, 1.00390625, 1.01171875, 3e38, np.inf, np.nan, -0.0, 1e-40], np.float32)
    y, back, s = np.zeros(8, np.uint16), np.zeros(8, np.float32), strides_of((8,))
    assert (
        run(
            engine,
            "cast",
            {"x_type": 1, "y_type": 16, "mode": 0, "dims": pad((8,)), "xs": s, "ys": s},
            [x, y],
        )
        == OK
    )
    assert (
        run(
            engine,
            "cast",
            {"x_type": 16, "y_type": 1, "mode": 0, "dims": pad((8,)), "xs": s, "ys": s},
            [y, back],
        )
        == OK
    )
    assert y[:3].tolist() == [0x3F80, 0x3F80, 0x3F82] and np.isnan(back[5]) and np.isinf(back[4])
    np.testing.assert_allclose(back[[0, 3]], x[[0, 3]], rtol=1 / 128)


def test_range(engine):
    for code, dtype in TYPES.items():
        y = np.zeros(50, dtype)
        got = run(
            engine,
            "range",
            {"type": code, "n": 50, "start": 3, "delta": 2, "f_start": 0.5, "f_delta": 0.25},
            [y],
        )
        assert got == (PARAM if code in (9, 10) else OK)
        if got == OK:
            check(y, 0.5 + 0.25 * np.arange(50) if y.dtype.kind == "f" else 3 + 2 * np.arange(50))


@pytest.mark.parametrize("index_type", [6, 7])
def test_gather(engine, index_type):
    rng = np.random.default_rng(6)
    for outer, count, rows, inner in [
        (1, 5, 9, 4),
        (3, 7, 5, 1),
        (3, 1300, 50, 1),
        (2, 300, 50, 130),
        (1, 1, 1, 1),
    ]:
        for dtype in (np.uint8, np.float16, np.float32, np.int64):
            x, index = (
                make(rng, (outer, rows, inner), dtype),
                rng.integers(-rows, rows, count).astype(TYPES[index_type]),
            )
            y = np.zeros((outer, count, inner), dtype)
            p = {
                "size": x.itemsize,
                "index_type": index_type,
                "outer": outer,
                "count": count,
                "rows": rows,
                "inner": inner,
                "x_outer": rows * inner,
                "x_row": inner,
                "y_outer": count * inner,
            }
            assert run(engine, "gather", p, [x, index, y]) == OK
            np.testing.assert_array_equal(y, x[:, index])
            index[-1] = rows
            assert run(engine, "gather", p, [x, index, y]) == INDEX
    for axis in range(3):
        x = make(rng, (4, 5, 6), np.float32)
        shape = [3, 4, 5]
        shape[axis] = 7
        index = rng.integers(-x.shape[axis], x.shape[axis], shape).astype(TYPES[index_type])
        y = np.zeros(shape, np.float32)
        p = {
            "size": 4,
            "index_type": index_type,
            "dims": pad(shape),
            "rows": x.shape[axis],
            "x_axis": [30, 6, 1][axis],
            "xs": [0, 0, 0] + [s if d != axis else 0 for d, s in enumerate((30, 6, 1))],
            "is": strides_of(shape),
        }
        big = np.zeros(4096, np.float32)
        big[: x.size] = x.ravel()
        assert run(engine, "gather_elements", p, [big, index, y]) == OK
        np.testing.assert_array_equal(
            y,
            np.take_along_axis(
                x[tuple(slice(n) if d != axis else slice(None) for d, n in enumerate(shape))],
                np.where(index < 0, index + x.shape[axis], index).astype(np.int64),
                axis,
            ),
        )


@pytest.mark.parametrize("index_type", [6, 7])
def test_gather_nd_scatter_nd(engine, index_type):
    rng = np.random.default_rng(7)
    x = make(rng, (2, 5, 6, 3), np.float32)
    index = np.stack([rng.integers(-5, 5, (2, 4)), rng.integers(-6, 6, (2, 4))], -1).astype(
        TYPES[index_type]
    )
    y = np.zeros((2, 4, 3), np.float32)
    p = {
        "size": 4,
        "index_type": index_type,
        "batch": 2,
        "count": 4,
        "depth": 2,
        "inner": 3,
        "x_batch": 90,
        "sizes": [5, 6, 1, 1, 1, 1],
        "strides": [18, 3, 0, 0, 0, 0],
    }
    assert run(engine, "gather_nd", p, [x, index, y]) == OK
    np.testing.assert_array_equal(y, np.stack([x[b][tuple(index[b].T)] for b in range(2)]))
    index = np.array([[1], [-1], [1]], TYPES[index_type])
    for reduction, f in enumerate([None, np.add, np.multiply, np.minimum, np.maximum]):
        for code in (1, 11, 6, 7, 2, 3):
            data, updates = make(rng, (4, 5), TYPES[code]), make(rng, (3, 5), TYPES[code])
            want = data.copy()
            for i, u in zip(index[:, 0], updates):
                with np.errstate(all="ignore"):
                    want[i] = u if f is None else f(want[i], u)
            p = {
                "size": data.itemsize,
                "type": code,
                "index_type": index_type,
                "reduction": reduction,
                "count": 3,
                "depth": 1,
                "inner": 5,
                "sizes": [4, 1, 1, 1, 1, 1],
                "strides": [5, 0, 0, 0, 0, 0],
            }
            assert run(engine, "scatter_nd", p, [index, updates, data]) == OK
            np.testing.assert_array_equal(data, want)


def test_trilu(engine):
    rng = np.random.default_rng(8)
    for rows, cols in [(5, 5), (3, 7), (7, 3)]:
        for k in (-9, -2, 0, 1, 3, 9):
            for upper in (0, 1):
                x = make(rng, (2, rows, cols), np.float32)
                y = np.ones_like(x)
                p = {
                    "size": 4,
                    "batch": 2,
                    "rows": rows,
                    "cols": cols,
                    "k": k,
                    "upper": upper,
                    "x_row": cols,
                    "x_batch": rows * cols,
                    "y_row": cols,
                    "y_batch": rows * cols,
                }
                want = np.triu(x, k) if upper else np.tril(x, k)
                assert run(engine, "trilu", p, [x, y]) == OK
                np.testing.assert_array_equal(y, want)
                assert run(engine, "trilu", p, [x, y], alias=[(1, 0)]) == OK
                np.testing.assert_array_equal(x, want)


def log_sum_exp(x, axis):
    m = x.max(axis, keepdims=True)
    return np.log(np.exp(x - m).sum(axis)) + m.squeeze(axis)


REDUCTIONS = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "l1": lambda x, axis: np.abs(x).sum(axis),
    "l2": lambda x, axis: np.sqrt((x * x).sum(axis)),
    "sum_square": lambda x, axis: (x * x).sum(axis),
    "log_sum": lambda x, axis: np.log(x.sum(axis)),
    "log_sum_exp": log_sum_exp,
}


@pytest.mark.parametrize("op", REDUCE.items)
def test_reduce(engine, op):
    rng = np.random.default_rng(9)
    for code in (1, 11, 6, 7, 2, 3, 9):
        for outer, n, inner in [
            (1, 1, 1),
            (3, 5, 1),
            (2, 9, 7),
            (1, 1000, 1),
            (4, 300, 300),
            (1, 70, 513),
            (3, 65, 1),
        ]:
            x = make(rng, (outer, n, inner), TYPES[code])
            if code in (6, 7):
                x = x % 5
            y = np.zeros((outer, inner), x.dtype)
            got = run(
                engine,
                "reduce",
                {
                    "op": REDUCE[op],
                    "type": code,
                    "outer": outer,
                    "n": n,
                    "inner": inner,
                    "x_outer": n * inner,
                    "x_n": inner,
                    "x_inner": 1,
                    "y_outer": inner,
                },
                [x, y],
            )
            if code in (2, 3, 9) and op not in ("max", "min"):
                assert got == PARAM
                continue
            assert got == OK
            with np.errstate(all="ignore"):
                wide = (
                    x.astype(np.float64)
                    if code in (1, 11)
                    else (
                        x
                        if code in (2, 3, 9) or op not in ("l2", "log_sum", "log_sum_exp", "mean")
                        else x.astype(np.float64)
                    )
                )
                want = REDUCTIONS[op](wide, axis=1)
                if y.dtype.kind == "i" and np.asarray(want).dtype.kind == "f":
                    if op == "log_sum" and not np.isfinite(want).all():
                        continue
                    want = np.trunc(want)
                want = np.asarray(want).astype(y.dtype)
            if code == 1 and op == "prod" and n > 70:
                continue
            check(
                y,
                want,
                1e-5 if code == 1 else 1e-9,
                (1e-5 * n if code == 1 else 1e-9) if op in ("sum", "mean", "log_sum") else 1e-30,
            )
    x, y = np.zeros(1, np.float32), np.ones(1, np.float32)
    run(
        engine,
        "reduce",
        {
            "op": REDUCE[op],
            "type": 1,
            "outer": 1,
            "n": 0,
            "inner": 1,
            "x_outer": 0,
            "x_n": 0,
            "x_inner": 1,
            "y_outer": 1,
        },
        [x, y],
    )
    want = {
        "sum": 0,
        "mean": np.nan,
        "max": -np.inf,
        "min": np.inf,
        "prod": 1,
        "l1": 0,
        "l2": 0,
        "sum_square": 0,
        "log_sum": -np.inf,
        "log_sum_exp": -np.inf,
    }
    check(y, [want[op]])


def test_reduce_strided(engine):
    x = np.random.default_rng(10).standard_normal((6, 5, 4)).astype(np.float32)
    y = np.zeros((4, 6), np.float32)
    assert (
        run(
            engine,
            "reduce",
            {
                "op": 0,
                "type": 1,
                "outer": 4,
                "n": 5,
                "inner": 6,
                "x_outer": 1,
                "x_n": 4,
                "x_inner": 20,
                "y_outer": 6,
            },
            [x, y],
        )
        == OK
    )
    check(y, x.sum(1).T, 1e-5, 1e-6)
    one = np.full((1, 1 << 20), 0.1, np.float32)
    y = np.zeros(1, np.float32)
    assert (
        run(
            engine,
            "reduce",
            {
                "op": 0,
                "type": 1,
                "outer": 1,
                "n": 1 << 20,
                "inner": 1,
                "x_outer": 0,
                "x_n": 1,
                "x_inner": 1,
                "y_outer": 1,
            },
            [one, y],
        )
        == OK
    )
    check(y, one.astype(np.float64).sum(1), 1e-5)


@pytest.mark.parametrize("code", [c for c in TYPES if c != 10])
def test_arg_reduce(engine, code):
    rng = np.random.default_rng(11)
    for outer, n, inner in [(1, 1, 1), (3, 5, 4), (2, 1000, 1), (1, 50000, 1), (5, 33, 1)]:
        x = make(rng, (outer, n, inner), TYPES[code])
        for largest in (0, 1):
            for last in (0, 1):
                y = np.zeros((outer, inner), np.int64)
                assert (
                    run(
                        engine,
                        "arg_reduce",
                        {
                            "type": code,
                            "largest": largest,
                            "last": last,
                            "outer": outer,
                            "n": n,
                            "inner": inner,
                        },
                        [x, y],
                    )
                    == OK
                )
                f = np.argmax if largest else np.argmin
                np.testing.assert_array_equal(y, n - 1 - f(x[:, ::-1], 1) if last else f(x, 1))


@pytest.mark.parametrize("code", [1, 11, 6, 7, 2, 3])
def test_top_k(engine, code):
    rng = np.random.default_rng(12)
    for outer, n, inner, k in [
        (1, 1, 1, 1),
        (3, 7, 4, 3),
        (2, 1000, 1, 50),
        (2, 300, 3, 300),
        (1, 40000, 1, 1),
    ]:
        x = make(rng, (outer, n, inner), TYPES[code])
        for largest in (0, 1):
            v, i = np.zeros((outer, k, inner), x.dtype), np.zeros((outer, k, inner), np.int64)
            assert (
                run(
                    engine,
                    "top_k",
                    {
                        "type": code,
                        "outer": outer,
                        "n": n,
                        "inner": inner,
                        "k": k,
                        "largest": largest,
                        "sorted": 1,
                    },
                    [x, v, i],
                )
                == OK
            )
            key = x.astype(object) if x.dtype.kind != "f" else x
            order = np.argsort(-key if largest else key, axis=1, kind="stable")[:, :k]
            np.testing.assert_array_equal(i, order)
            np.testing.assert_array_equal(v, np.take_along_axis(x, order.astype(np.int64), 1))


@pytest.mark.parametrize("code", [1, 11, 6, 7])
def test_cumsum(engine, code):
    rng = np.random.default_rng(13)
    for outer, n, inner in [(1, 1, 1), (2, 9, 1), (3, 5, 130)]:
        for exclusive in (0, 1):
            for reverse in (0, 1):
                x = make(rng, (outer, n, inner), TYPES[code])
                y = np.zeros_like(x)
                w = x[:, ::-1] if reverse else x
                with np.errstate(all="ignore"):
                    want = np.cumsum(w, 1, dtype=x.dtype)
                    want = (
                        np.concatenate([np.zeros_like(w[:, :1]), want[:, :-1]], 1)
                        if exclusive
                        else want
                    )
                want = want[:, ::-1] if reverse else want
                p = {
                    "type": code,
                    "outer": outer,
                    "n": n,
                    "inner": inner,
                    "x_outer": n * inner,
                    "y_outer": n * inner,
                    "exclusive": exclusive,
                    "reverse": reverse,
                }
                assert run(engine, "cumsum", p, [x, y]) == OK
                check(y, want, 1e-5, 1e-5)
                assert run(engine, "cumsum", p, [x, y], alias=[(1, 0)]) == OK
                check(x, want, 1e-5, 1e-5)


def scales(p, s):
    """Scale (or zero point) of each element of [outer, axis, inner]."""
    o, a, i, block = p["outer"], p["axis"], p["inner"], p["block"]
    if block < 0:
        return np.broadcast_to(s.reshape(1, 1, 1), (o, a, i))
    if block == 0:
        return np.broadcast_to(s.reshape(1, a, 1), (o, a, i))
    return np.repeat(s.reshape(o, -(-a // block), i), block, 1)[:, :a]


LAYOUTS = [(1, 1, 1), (3, 5, 7), (2, 40, 1), (2, 33, 3), (4, 300, 1), (1, 2, 400), (30, 3, 400)]


@pytest.mark.parametrize("block", [-1, 0, 16])
def test_quantize_dequantize(engine, block):
    rng = np.random.default_rng(14)
    for outer, axis, inner in LAYOUTS:
        p = {"outer": outer, "axis": axis, "inner": inner, "block": block}
        n = 1 if block < 0 else axis if block == 0 else outer * -(-axis // block) * inner
        for code in (2, 3, 4, 5):
            for with_zero in (False, True):
                x = make(rng, (outer, axis, inner), np.float32)
                x.ravel()[:3] = [0.5, 1e9, -1e9][: x.size]
                scale = rng.choice(np.array([0.5, 0.02, 0.125], np.float32), n)
                zero = make(rng, (n,), TYPES[code]) if with_zero else None
                y = np.zeros(x.shape, TYPES[code])
                assert run(engine, "quantize", {**p, "type": code}, [x, scale, zero, y]) == OK
                info = np.iinfo(TYPES[code])
                z = scales(p, zero.astype(np.float64)) if with_zero else 0
                want = np.clip(np.rint(x / scales(p, scale)) + z, info.min, info.max)
                np.testing.assert_array_equal(y, want.astype(TYPES[code]))
                back = np.zeros(x.shape, np.float32)
                assert (
                    run(
                        engine,
                        "dequantize",
                        {**p, "type": code, "bits": 8 * y.itemsize},
                        [y, scale, zero, back],
                    )
                    == OK
                )
                check(back, (y.astype(np.float64) - z) * scales(p, scale), 1e-6)
        for code in (21, 22):
            for with_zero in (False, True):
                q = (
                    rng.integers(0, 16, (outer, axis, inner))
                    if code == 21
                    else rng.integers(-8, 8, (outer, axis, inner))
                )
                z = rng.integers(0, 8, n)
                scale = rng.random(n).astype(np.float32)
                y = np.zeros(q.shape, np.float32)
                assert (
                    run(
                        engine,
                        "dequantize",
                        {**p, "type": code, "bits": 4},
                        [nibbles(q), scale, nibbles(z) if with_zero else None, y],
                    )
                    == OK
                )
                check(
                    y,
                    (q - (scales(p, z) if with_zero else 0)) * scales(p, scale.astype(np.float64)),
                    1e-6,
                )


def nibbles(v):
    v = (np.asarray(v).ravel() & 15).astype(np.uint8)
    v = np.append(v, np.zeros(v.size % 2, np.uint8))
    return v[::2] | v[1::2] << 4


def test_dynamic_quantize(engine):
    rng = np.random.default_rng(15)
    for x in (
        make(rng, (1,), np.float32),
        make(rng, (777,), np.float32),
        np.zeros(5, np.float32),
        np.abs(make(rng, (100,), np.float32)) + 3,
    ):
        y, scale, zero = np.zeros(x.shape, np.uint8), np.zeros(1, np.float32), np.zeros(1, np.uint8)
        assert run(engine, "dynamic_quantize", {"n": x.size}, [x, y, scale, zero]) == OK
        low, high = min(x.min(), 0), max(x.max(), 0)
        s = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
        z = np.clip(np.rint(-low / s), 0, 255)
        check(scale, [s], 1e-6)
        assert zero[0] == z
        np.testing.assert_array_equal(y, np.clip(np.rint(x / s) + z, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gather_quantized(engine, bits):
    rng = np.random.default_rng(16)
    for rows, cols, block, count in [(5, 32, 16, 3), (9, 100, 32, 40), (7, 17, 16, 5)]:
        for signed in (0, 1):
            for with_zero in (False, True):
                per, blocks = 8 // bits, -(-cols // block)
                low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
                q, z = (
                    rng.integers(low, high, (rows, cols)),
                    rng.integers(low, high, (rows, blocks)),
                )

                def pack(v):
                    v = np.pad(v & ((1 << bits) - 1), ((0, 0), (0, -v.shape[1] % per))).reshape(
                        rows, -1, per
                    )
                    return (v << (np.arange(per) * bits)).sum(-1).astype(np.uint8)

                scale = rng.random((rows, blocks)).astype(np.float32)
                index = rng.integers(-rows, rows, count)
                for half in (False, True):
                    s = scale.astype(np.float16) if half else scale
                    y = np.zeros((count, cols), np.float32)
                    p = {
                        "bits": bits,
                        "count": count,
                        "rows": rows,
                        "cols": cols,
                        "block": block,
                        "index_type": 7,
                        "scale_type": 10 if half else 1,
                        "signed": signed,
                        "zeros": int(with_zero),
                    }
                    assert (
                        run(
                            engine,
                            "gather_quantized",
                            p,
                            [pack(q), index, s, pack(z) if with_zero else None, y],
                        )
                        == OK
                    )
                    zero = z if with_zero else np.full_like(z, 0 if signed else 1 << (bits - 1))
                    want = (q - np.repeat(zero, block, 1)[:, :cols]) * np.repeat(
                        s.astype(np.float64), block, 1
                    )[:, :cols]
                    check(y, want[index], 1e-6)


def test_refusals(engine):
    x, y = np.zeros(10, np.float32), np.zeros(10, np.float32)
    good = {
        "op": 0,
        "type": 1,
        "dims": pad((10,)),
        "xs": strides_of((10,)),
        "ys": strides_of((10,)),
    }
    assert run(engine, "unary", good, [x, y]) == OK
    assert run(engine, "unary", {**good, "dims": pad((11,))}, [x, y]) == BOUNDS
    assert run(engine, "unary", {**good, "dims": pad((-1,))}, [x, y]) == PARAM
    assert (
        run(
            engine, "unary", {**good, "dims": [2**31 - 1] * 6, "xs": [0] * 6, "ys": [0] * 6}, [x, y]
        )
        == PARAM
    )
    assert run(engine, "unary", {**good, "dims": pad((0,))}, [x, y]) == OK
    assert run(engine, "unary", {**good, "op": 47}, [x, y]) == PARAM
    assert run(engine, "unary", {**good, "type": 99}, [x, y]) == BOUNDS
    assert run(engine, "unary", good, [x, y], [4]) == BOUNDS
    assert run(engine, "unary", good, [x, y], [-4]) == BOUNDS
    assert (
        run(engine, "unary", {**good, "dims": pad((5,))}, [x, y], [0, 4], alias=[(1, 0)]) == ALIAS
    )
    assert run(engine, "unary", {**good, "dims": pad((5,))}, [x, y], [0, 20], alias=[(1, 0)]) == OK
    assert run(engine, "unary", {**good, "xs": [0, 0, 0, 0, 0, -1]}, [x, y]) == BOUNDS
    assert run(engine, "unary", {**good, "xs": [0, 0, 0, 0, 0, -1]}, [x, y], [36]) == OK
