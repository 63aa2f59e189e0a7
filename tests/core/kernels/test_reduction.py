"""Reductions, cumulative sums and TopK against NumPy."""

import numpy as np
import pytest
from edgewise.compiler.ops.reduce.contracts import REDUCE

from .harness import OK, PARAM, TYPES, check, make, run


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


# long: types, shapes and strides of one family of kernels
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
