"""Plans with invalid parameters, operands or indices are refused."""

import numpy as np

from .harness import ALIAS, BOUNDS, OK, PARAM, pad, run, strides_of


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
