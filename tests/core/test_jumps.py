"""Steps that jump, in plans assembled by hand: which the engine takes, and how it runs them."""

import ctypes
import struct

import numpy as np
import pytest
import raw_plan
from edgewise.compiler.ops.table import word_of
from raw_plan import ARENA, BOUNDS, CONST, KERNELS, OK, PARAM, SLOT0, STOPPED, UNBOUND, plan, step

REGISTER, TRIPS, JUMP, PAUSED = 10, 15, 16, -1
F32, I64 = 1, 7
BINARY = {"type": F32, "dims": [1] * 6, "as": [0] * 6, "bs": [0] * 6, "ys": [0] * 6}
ADD = {**BINARY, "op": KERNELS["binary"].enums["op"].code["add"]}
COUNTER = struct.pack("<qqIIqqqqq", 0, 7, 0, 0, 0, 0, 0, 0, -1)
LENGTH = struct.pack("<qqIIqqqqq", 0, 7, 0, 0, 0, 0, 0, 0, 0)
DERIVED = struct.pack("<qqIIqqqqq", 0, 7, 0, 0, 0, 1, 0, 0, 1)


@pytest.fixture
def raw():
    r = raw_plan.Raw()
    r.library.ew_plan_trips.restype = ctypes.c_uint32
    yield r
    r.close()


def with_registers(data, *entries):
    """A plan with these registers, whose header says where the sections are."""
    head = list(struct.unpack_from("<8sIIIIIIQQQQQQQ", data))
    added = b"".join(entries) + bytes(-len(b"".join(entries)) % 16)
    head[2] = len(entries)
    for i in range(9, 14):  # all sections but the registers, and the end
        if i != 11:
            head[i] += len(added)
    at = head[8]
    return struct.pack("<8sIIIIIIQQQQQQQ", *head) + data[88:at] + added + data[at:]


def followed(s, offset_of, scale, reg=0):
    """A step whose operand `offset_of` moves by `scale` bytes with a register."""
    _, operands, patches, _, size, _ = struct.unpack_from("<HHHHII", s)
    at = 16 + size + -size % 8 + patches * 24 + offset_of * 24
    buffer, _, offset, _ = struct.unpack_from("<IIqq", s, at)
    return s[:at] + struct.pack("<IIqq", buffer, reg + 1, offset, scale) + s[at + 24 :]


def copy(x, y, n=1, size=4):
    dims = {"dims": [1] * 5 + [n], "xs": [0] * 5 + [1], "ys": [0] * 5 + [1], "size": size}
    return step("copy", dims, [x, y])


# sum = 0; for each of x: sum += x; y = sum
N = 8


def total(trips=N, limit=None, condition=None, body=1, back=2, counter=0):
    params = {"counter": counter, "trips": trips}
    return [
        copy((CONST, 0), (ARENA, 0)),
        step("loop_begin", {**params, "steps": body + 1}, [limit, condition]),
        followed(step("binary", ADD, [(ARENA, 0), (SLOT0, 0), (ARENA, 0)]), 1, 4),
        step("loop_end", {**params, "steps": back}, [limit, condition]),
        copy((ARENA, 0), (SLOT0 + 1, 0)),
    ]


SLOTS = [(4 * N, False), (4, True)]
UP_TO_N = COUNTER[:8] + struct.pack("<q", N - 1) + COUNTER[16:]


def loaded(raw, steps, slots=SLOTS, registers=(UP_TO_N,), const=bytes(16), init=0):
    data = with_registers(plan(steps, slots, init, 64, const), *registers)
    code, handle = raw.load(data)
    memory = [np.zeros(max(n // 4, 1), "f4") for n, _ in slots]
    if code == OK:
        for i, m in enumerate(memory):
            assert raw.bind(handle, i, m.ctypes.data, slots[i][0]) == OK
        handle.memory = memory
    return code, handle, memory


def test_a_loop_runs_and_ends(raw):
    code, handle, (x, y) = loaded(raw, total())
    assert code == OK
    x[:] = range(N)
    for _ in range(2):
        assert raw.run(handle) == OK and y[0] == x.sum()
        assert raw.library.ew_plan_trips(handle, 1 << 20) == N


@pytest.mark.parametrize("limit", [0, 1, 5, N, 100, -1, -(1 << 62)])
@pytest.mark.parametrize("condition", [0, 1])
def test_limits_and_conditions(raw, limit, condition):
    const = bytes(8) + struct.pack("<qB", limit, condition)
    code, handle, (x, y) = loaded(raw, total(N, (CONST, 8), (CONST, 16)), const=const)
    x[:] = 1
    assert code == OK and raw.run(handle) == OK
    assert y[0] == (min(max(limit, 0), N) if condition else 0)


def test_a_branch_is_taken_or_not(raw):
    steps = [
        step("branch", {"counter": -1, "steps": 2}, [(SLOT0, 0)]),
        copy((CONST, 0), (SLOT0 + 1, 0)),
        step("branch", {"counter": -1, "steps": 1}, [None]),
        copy((CONST, 4), (SLOT0 + 1, 0)),
    ]
    const = np.float32([3, 4]).tobytes()
    code, handle, (x, y) = loaded(raw, steps, [(1, False), (4, True)], (), const)
    assert code == OK
    for yes, want in ((True, 3), (False, 4)):
        x.view(np.uint8)[0] = yes
        assert raw.run(handle) == OK and y[0] == want


@pytest.mark.parametrize(
    "change",
    [
        {"body": 3},  # out of the plan
        {"body": 1 << 30},
        {"back": 5},  # before the first step
        {"counter": 1},  # no register
        {"counter": 1 << 30},
    ],
)
def test_jumps_out_of_the_plan_are_refused(raw, change):
    assert loaded(raw, total(**change))[0] == JUMP


@pytest.mark.parametrize(
    "change", [{"body": -2}, {"back": 0}, {"back": -1}, {"trips": -1}, {"counter": -1}]
)
def test_parameters_are_refused(raw, change):
    assert loaded(raw, total(**change))[0] == PARAM


def test_init_steps_may_not_jump(raw):
    branch = step("branch", {"counter": -1, "steps": 0}, [None])
    assert loaded(raw, [branch, *total()], init=1)[0] == JUMP
    assert loaded(raw, [branch, *total()])[0] == OK
    # nor may a run go back to them
    assert loaded(raw, total(back=4))[0] == OK
    assert loaded(raw, total(back=4), init=1)[0] == JUMP


def test_counters_are_registers_of_their_own(raw):
    most = COUNTER[:8] + struct.pack("<q", N - 1) + COUNTER[16:]
    assert loaded(raw, total(), registers=(LENGTH,))[0] == JUMP
    steps = [s if i != 2 else followed(total()[2], 1, 4, 2) for i, s in enumerate(total(counter=2))]
    code, handle, (x, y) = loaded(raw, steps, registers=(LENGTH, DERIVED, most))
    assert code == OK
    x[:] = 2
    for register, ok in ((0, True), (1, False), (2, False)):
        done = raw.library.ew_plan_register(handle, register, ctypes.c_int64(3))
        assert done == (OK if ok else REGISTER)
    assert raw.run(handle) == OK and y[0] == 2 * N
    for wrong in ((most, LENGTH), (LENGTH, most, DERIVED), (struct.pack("<q", 1) + most[8:],)):
        assert loaded(raw, total(counter=len(wrong) - 1), registers=wrong)[0] == REGISTER
    # it may not set one to a value beyond its range
    few = COUNTER[:8] + struct.pack("<q", 2) + COUNTER[16:]
    code, handle, _ = loaded(raw, total(), registers=(few,))
    assert code == OK and raw.run(handle) == REGISTER


def test_what_a_counter_reaches_is_checked(raw):
    most = COUNTER[:8] + struct.pack("<q", N) + COUNTER[16:]  # one more than there are numbers
    assert loaded(raw, total(N + 1), registers=(most,))[0] == BOUNDS


def test_the_steps_of_a_jump_are_no_registers(raw):
    """A parameter that says where a jump leads may not follow a register."""
    s = total()[1]
    head = list(struct.unpack_from("<HHHHII", s))
    for name, wrong in (("counter", True), ("steps", True), ("trips", False)):
        patch = struct.pack("<IIqq", word_of(KERNELS["loop_begin"], name), 0, 1, 0)
        head[2], head[5] = 1, len(s) + len(patch)
        one = struct.pack("<HHHHII", *head) + s[16:32] + patch + s[32:]
        steps = [*total()[:1], one, *total()[2:]]
        assert (loaded(raw, steps, registers=(LENGTH, COUNTER))[0] == JUMP) == wrong or not wrong


def forever(raw):
    """A loop whose condition is true and whose counter has no end."""
    most = COUNTER[:8] + struct.pack("<q", (1 << 31) - 2) + COUNTER[16:]
    params = {"counter": 0, "trips": (1 << 31) - 1}
    steps = [
        step("loop_begin", {**params, "steps": 2}, [None, None]),
        copy((SLOT0, 0), (SLOT0 + 1, 0)),
        step("loop_end", {**params, "steps": 2}, [None, None]),
    ]
    return loaded(raw, steps, [(4, False), (4, True)], (most,))


def test_no_run_is_endless(raw):
    code, handle, _ = forever(raw)
    assert code == OK and raw.run(handle) == TRIPS  # by default
    assert raw.error().detail == 1 << 20 == raw.library.ew_plan_trips(handle, 10)
    assert raw.run(handle) == TRIPS and raw.error().detail == 10
    raw.stop(1)
    assert raw.run(handle) == STOPPED
    raw.stop(0)
    assert raw.run(handle) == TRIPS


def test_a_run_in_parts(raw):
    code, handle, (x, y) = loaded(raw, total())
    code, other, _ = loaded(raw, total())
    some = raw.library.ew_plan_run_some
    x[:] = range(N)
    assert [some(handle, 3) for _ in range(3)] == [PAUSED, PAUSED, OK] and y[0] == x.sum()
    assert some(handle, 1 << 31) == OK and some(handle, 1) == PAUSED
    # Another plan has used the arena: the run begins again.
    y[:] = 0
    assert raw.run(other) == OK
    assert [some(handle, 5), some(handle, 5)] == [PAUSED, OK] and y[0] == x.sum()
    # What is unbound in between is noticed.
    assert some(handle, 2) == PAUSED and raw.bind(handle, 0, 0, 0) == OK
    assert some(handle, 2) == UNBOUND
    # Limits count all parts of a run.
    assert raw.bind(handle, 0, x.ctypes.data, 4 * N) == OK
    raw.library.ew_plan_trips(handle, 4)
    assert [some(handle, 3), some(handle, 3)] == [PAUSED, TRIPS]
    raw.library.ew_plan_trips(handle, N)
    assert raw.run(handle) == OK


def test_a_region_is_run_by_the_call_with_its_first_step(raw):
    code, handle, (x, y) = loaded(raw, total())
    x[:] = range(N)
    run_steps = raw.library.ew_plan_run_steps
    for parts in ([1] * 5, [2, 3], [3, 2], [1, 4], [4, 1]):
        y[:] = at = 0
        for count in parts:
            seconds = (ctypes.c_double * count)()
            assert run_steps(handle, at, count, seconds) == OK and min(seconds) >= 0
            at += count
        assert y[0] == x.sum()
    # slots of the whole region count
    assert raw.bind(handle, 0, 0, 0) == OK
    assert run_steps(handle, 0, 1, None) == OK and run_steps(handle, 1, 1, None) == UNBOUND
