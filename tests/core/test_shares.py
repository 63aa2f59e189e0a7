"""Runs of an engine that shares the processors: they return after so many steps, go on with the
same results, and may be given up.
"""

import ctypes
import struct

import pytest
from raw_plan import ARENA, ARGUMENT, CONST, INDEX, OK, SLOT0, STOPPED, Raw, step
from test_jumps import PAUSED, N, copy, loaded, total

TURN = -3
INT64 = 7
# one number of a row
GATHER = {"size": 4, "index_type": INT64, "outer": 1, "count": 1, "inner": 1}
GATHER |= {"x_outer": 2, "x_row": 1, "y_outer": 1}


@pytest.fixture(params=[1, 2])
def raw(request):
    r = Raw(request.param)
    r.library.ew_plan_trips.restype = ctypes.c_uint32
    yield r
    r.close()


def share(raw, steps, threads=1):
    raw.library.ew_share(raw.engine, threads, steps)


def finished(raw, handle, code):
    """The code that a run ends with, and how often it returned before."""
    turns = 0
    while code == TURN:
        turns += 1
        code = raw.library.ew_plan_go_on(handle)
    return code, turns


def test_runs_return_after_steps(raw):
    code, handle, (x, y) = loaded(raw, total())
    assert code == OK
    x[:] = range(N)
    all_steps = 2 * N + 3
    for steps in (1, 0, -1, 2, 7, all_steps - 1, all_steps, 1 << 30, 1):
        share(raw, steps, threads=1 + steps % 2)
        y[0] = -1
        turns = (all_steps - 1) // steps if steps > 0 else 0
        assert finished(raw, handle, raw.run(handle)) == (OK, turns)
        assert y[0] == x.sum()
        assert raw.library.ew_plan_trips(handle, 1 << 20) == N
    # and with it from the middle of a run on
    assert raw.run(handle) == TURN
    share(raw, 0)
    assert finished(raw, handle, raw.library.ew_plan_go_on(handle)) == (OK, 0)
    assert y[0] == x.sum()


def test_parts_of_runs_and_steps(raw):
    """It counts the iterations of loops of all parts, and writes the times of all steps."""
    code, handle, (x, y) = loaded(raw, total())
    assert code == OK
    x[:] = 1
    share(raw, 1)
    some = raw.library.ew_plan_run_some
    pauses = 0
    while (code := finished(raw, handle, some(handle, 3))[0]) == PAUSED:
        pauses += 1
    assert (code, pauses) == (OK, N // 3) and y[0] == N
    times = (ctypes.c_double * 5)(*[-1] * 5)
    code = raw.library.ew_plan_run_steps(handle, 0, 5, times)
    assert finished(raw, handle, code) == (OK, 2 * N + 2)
    assert all(t >= 0 for t in times) and sum(times) > 0


def test_init_steps(raw):
    steps = [copy((CONST, 0), (SLOT0, 0)), copy((CONST, 4), (SLOT0, 4))]
    const = struct.pack("<ff", 3, 4) + bytes(8)
    code, handle, (x,) = loaded(raw, steps, [(8, True)], (), const, init=2)
    assert code == OK
    share(raw, 1)
    assert finished(raw, handle, raw.init(handle)) == (OK, 1)
    assert x.tolist() == [3, 4]


def test_given_up(raw):
    code, handle, (x, y) = loaded(raw, total())
    assert code == OK
    x[:] = 2
    go_on = raw.library.ew_plan_go_on
    assert go_on(handle) == ARGUMENT  # none waits
    share(raw, 1)
    assert raw.run(handle) == raw.run(handle) == TURN  # it begins again
    assert finished(raw, handle, go_on(handle))[0] == OK and y[0] == 2 * N
    assert raw.run(handle) == TURN
    raw.stop(1)
    assert go_on(handle) == STOPPED
    raw.stop(0)
    assert go_on(handle) == ARGUMENT
    assert finished(raw, handle, raw.run(handle))[0] == OK and y[0] == 2 * N
    other = loaded(raw, total())[1]
    assert raw.run(handle) == TURN and raw.run(other) == TURN
    assert go_on(handle) == ARGUMENT
    assert finished(raw, other, go_on(other))[0] == OK


def test_an_error_ends_the_run(raw):
    """What a step returns comes before its turn, and nothing goes on after it."""
    code, handle, (x, i, y) = loaded(
        raw,
        [
            copy((SLOT0, 0), (ARENA, 0)),
            step("gather", {**GATHER, "rows": 2}, [(SLOT0, 0), (SLOT0 + 1, 0), (ARENA, 0)]),
            copy((ARENA, 0), (SLOT0 + 2, 0)),
        ],
        [(8, False), (8, False), (4, True)],
        (),
    )
    assert code == OK
    x[:], index = (3, 4), i.view("i8")
    share(raw, 1)
    for bad in (2, -3):
        index[0], y[0] = bad, -1
        assert raw.run(handle) == TURN
        assert raw.library.ew_plan_go_on(handle) == INDEX
        assert raw.library.ew_plan_go_on(handle) == ARGUMENT
        assert y[0] == -1
    index[0] = 1
    assert finished(raw, handle, raw.run(handle)) == (OK, 2) and y[0] == 4
