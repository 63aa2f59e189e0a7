"""Kernels that select, move or generate elements by their indices, against NumPy."""

import numpy as np
import pytest

from .harness import INDEX, OK, PARAM, TYPES, check, make, pad, run, strides_of


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
