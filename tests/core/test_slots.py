"""Slots bound to memory that they must not share: the loader compares buffers by number, so the
engine compares what they are bound to.
"""

import numpy as np
import pytest
from raw_plan import ALIAS, ARGUMENT, BOUNDS, CONST, OK, SLOT0, UNBOUND, Raw, plan, step

N = 64
FILL = {"size": 1, "dims": [1, 1, 1, 1, 1, N], "ys": [0, 0, 0, 0, 0, 1]}
COPY = {"size": 1, "dims": [1, 1, 1, 1, 1, N], "xs": [0, 0, 0, 0, 0, 1], "ys": [0, 0, 0, 0, 0, 1]}
COUNTS = pytest.mark.parametrize(
    "extra", [0, 6, 30]
)  # few slots are compared in pairs, many are sorted


@pytest.fixture
def raw():
    e = Raw()
    yield e
    e.close()


class Bound:
    """A plan of copies from slot 0 to 1, with so many more slots; memory for `extra + 3` slots of N
    bytes.
    """

    def __init__(
        self,
        raw: Raw,
        extra: int,
        writable: tuple = (1,),
        init: int = 0,
        used_by_init: bool = False,
    ):
        self.raw, self.n = raw, extra + 3
        slots = [(N, i in writable) for i in range(self.n)]
        steps = [step("copy", COPY, [(SLOT0, 0), (SLOT0 + 1, 0)])]
        code, self.plan = raw.load(plan(steps, slots, arena=256))
        assert code == OK
        self.memory = np.zeros((self.n + 4) * N, np.uint8)
        self.base = self.memory.ctypes.data
        for i in range(self.n):
            self.bind(i, i * N)

    def bind(self, slot: int, offset: int) -> None:
        assert self.raw.bind(self.plan, slot, self.base + offset, N) == OK

    def run(self) -> tuple:
        code = self.raw.run(self.plan)
        e = self.raw.error()
        return (code, e.step, {e.operand, e.detail}) if code else (code,)


@COUNTS
def test_overlap_with_what_is_written_is_refused(raw, extra):
    b = Bound(raw, extra)
    assert b.run() == (OK,)
    last = b.n - 1
    for offset in (N, N - 1, 2 * N - 1, 1):
        b.bind(last, offset)
        assert b.run() == (ALIAS, -1, {1, last})
        assert b.run() == (ALIAS, -1, {1, last})  # and is still rejected
    b.bind(last, last * N)
    assert b.run() == (OK,)
    b.bind(1, 2 * N + 1)  # the writable slot moves onto a read-only one
    assert b.run() == (ALIAS, -1, {1, 2})
    b.bind(1, (b.n + 1) * N)
    assert b.run() == (OK,)


@COUNTS
def test_what_is_only_read_may_overlap(raw, extra):
    b = Bound(raw, extra)
    for i in range(2, b.n):
        b.bind(i, (b.n + 1) * N + i % 7)
    b.bind(0, (b.n + 1) * N)
    assert b.run() == (OK,)


@COUNTS
def test_slots_beside_each_other_and_empty_ones(raw, extra):
    b = Bound(raw, extra)
    b.bind(2, 0)  # ends where slot 1 begins; overlaps slot 0, which is read-only too
    assert b.run() == (OK,)
    code, handle = raw.load(
        plan([step("copy", COPY, [(SLOT0, 0), (SLOT0 + 1, 0)])], [(N, False), (N, True), (0, True)])
    )
    assert code == OK
    for slot, offset in enumerate((0, N, N + 8)):
        assert raw.bind(handle, slot, b.base + offset, N) == OK
    assert raw.run(handle) == OK  # an empty slot overlaps nothing


def test_unbound_slots_do_not_count(raw):
    b = Bound(raw, 0)
    b.bind(2, N)
    assert raw.bind(b.plan, 2, 0, 0) == OK
    assert b.run() == (OK,)
    b.bind(2, N)
    assert b.run()[0] == ALIAS
    assert raw.bind(b.plan, 1, 0, 0) == OK
    assert raw.run(b.plan) == UNBOUND


def test_a_range_of_steps_needs_its_own_slots_only(raw):
    steps = [
        step("copy", COPY, [(SLOT0 + i, 0), (SLOT0 + i + 1, 0)])
        for i in (0, 2)  # the second one uses slots 2 and 3
    ]
    code, handle = raw.load(plan(steps, [(N, i in (1, 3)) for i in range(4)], arena=256))
    assert code == OK
    memory = np.arange(2 * N, dtype=np.uint8)
    for slot, offset in ((2, 0), (3, N)):
        assert raw.bind(handle, slot, memory.ctypes.data + offset, N) == OK
    run_steps = raw.library.ew_plan_run_steps
    assert run_steps(handle, 0, 1, None) == UNBOUND == run_steps(handle, 0, 2, None)
    assert run_steps(handle, 1, 1, None) == OK
    np.testing.assert_array_equal(memory[:N], memory[N:])


@COUNTS
def test_many_slots_moved_at_once(raw, extra):
    """Slots in an order that is not that of their memory; then all of them one further, on what
    others held.
    """
    b = Bound(raw, extra, writable=tuple(range(1, extra + 3)))
    order = np.random.default_rng(0).permutation(b.n)
    for i in range(b.n):
        b.bind(i, int(order[i]) * N)
    assert b.run() == (OK,)
    for i in range(b.n):
        b.bind(i, (int(order[i]) + 1) * N)
    assert b.run() == (OK,)
    at = int(np.argmin(order))
    b.bind(at, (int(order.max()) + 1) * N + N // 2)
    assert b.run() == (ALIAS, -1, {at, int(np.argmax(order))})


def test_the_arena_and_the_plan_itself(raw):
    import ctypes

    code, handle = raw.load(
        plan(
            [step("copy", COPY, [(SLOT0, 0), (SLOT0 + 1, 0)]), step("fill", FILL, [(0, 0)])],
            [(N, False), (N, True)],
            arena=4096,
        )
    )
    assert code == OK
    memory = np.zeros(2 * N, np.uint8)
    assert (
        raw.bind(handle, 0, memory.ctypes.data, N) == OK
        and raw.bind(handle, 1, memory.ctypes.data + N, N) == OK
    )
    assert raw.run(handle) == OK
    words = ctypes.cast(raw.engine, ctypes.POINTER(ctypes.c_uint64))
    arena = next(
        words[i] for i in range(1, 4) if words[i + 1] == 4096
    )  # core/vm.h: arena, arena_bytes
    for slot in (0, 1):
        assert raw.bind(handle, slot, arena + 64, N) == OK
        assert raw.run(handle) == ALIAS
        assert (raw.error().step, raw.error().operand, raw.error().detail) == (-1, slot, -1)
        assert raw.bind(handle, slot, memory.ctypes.data + slot * N, N) == OK
    assert raw.run(handle) == OK


def test_bind_refuses_memory_that_is_too_small_or_wraps(raw):
    b = Bound(raw, 0)
    assert raw.bind(b.plan, 0, b.base, N - 1) == 12
    assert raw.bind(b.plan, 0, 2**64 - N, N + 1) == 12
    assert raw.bind(b.plan, 99, b.base, N) == 12


def test_a_kernel_that_reads_what_it_wrote_keeps_within_its_memory(raw):
    """`unique` takes numbers from an output for indices: in memory that another output shares they
    were any numbers.
    """
    n = 512
    data = np.random.default_rng(1).integers(0, 1 << 40, n)
    operands = [(CONST, 0)] + [(SLOT0 + i, 0) for i in range(5)]
    code, handle = raw.load(
        plan(
            [step("unique", {"type": 7, "n": n, "cols": 1}, operands)],
            [(8 * n, True)] * 3 + [(8, True), (8 * n, True)],
            const=data.tobytes(),
        )
    )
    assert code == OK
    memory = np.zeros((6, 8 * n), np.uint8)
    for i in range(5):
        assert raw.bind(handle, i, memory[i].ctypes.data, 8 * n) == OK
    assert raw.run(handle) == OK
    assert raw.bind(handle, 4, memory[0].ctypes.data, 8 * n) == OK  # scratch and `first` overlap
    assert raw.run(handle) == ALIAS


def test_a_slot_that_grows(raw):
    """Takes less memory than it may have; steps are held to what is bound, also after a run."""
    grows = 2
    code, p = raw.load(plan([step("copy", COPY, [(SLOT0, 0), (SLOT0 + 1, 0)])], [(N, 1)] * 2))
    assert code == OK and raw.bind(p, 0, 4096, N - 1) == ARGUMENT
    code, p = raw.load(
        plan([step("copy", COPY, [(SLOT0, 0), (SLOT0 + 1, 0)])], [(N, 1 | grows)] * 2)
    )
    memory = np.arange(4 * N, dtype=np.uint8)
    base = memory.ctypes.data
    assert code == OK and raw.bind(p, 0, base, N) == raw.bind(p, 1, base + N, N - 1) == OK
    for _ in range(2):
        assert raw.run(p) == BOUNDS and raw.error().operand == 1
    assert raw.bind(p, 1, base + 2 * N, 2 * N) == OK
    assert raw.run(p) == OK and (memory[2 * N : 3 * N] == memory[:N]).all()
    assert raw.bind(p, 0, base, N - 1) == OK  # the same place, and less of it
    assert raw.run(p) == BOUNDS and raw.error().operand == 0
    assert raw.bind(p, 0, base + N + 1, N) == OK
    assert raw.run(p) == ALIAS
    assert raw.bind(p, 1, base + 3 * N, N // 2) == raw.bind(p, 0, base + 2 * N + N // 2, N) == OK
    assert raw.run(p) == ALIAS
