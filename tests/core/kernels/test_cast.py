"""Casts against NumPy."""

import math

import numpy as np
import pytest

from .harness import OK, TYPES, pad, run, strided, strides_of


# long: types, values and shapes of one kernel
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
