"""Weights of experts that are brought when a product needs them: the numbers of those that are all
in memory, bit for bit.
"""

import ctypes

import numpy as np
import pytest
from edgewise.compiler.declare.kernel import KERNELS, evaluate
from raw_plan import ARENA, ARGUMENT, BOUNDS, OK, SLOT0, STOPPED, Raw, plan, step

AWAY, EXPERTS, SLOTS, N, K = -2, 5, 40, 48, 64
R = np.random.default_rng(7)


class Page(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("used", ctypes.c_uint64)]


@pytest.fixture(params=[1, 2])
def raw(request):
    e = Raw(request.param)
    yield e
    e.close()


def floats():
    """Operands of expert_gemm and its parameters; the first ones of `paged` are weights."""
    b = R.standard_normal((EXPERTS, N, K)).astype(np.float32)
    bias = R.standard_normal((EXPERTS, N)).astype(np.float32)
    p = dict(b_expert=N * K, b_row=1, b_col=K, b_type=1, alpha=1.0)
    return "expert_gemm", p, [b, bias]


def bits():
    b = R.integers(0, 256, (EXPERTS, N, K // 16, 8)).astype(np.uint8)
    scales = R.uniform(0.01, 0.1, (EXPERTS, N, K // 16)).astype(np.float32)
    zeros = R.integers(0, 256, (EXPERTS, N, K // 32)).astype(np.uint8)
    bias = R.standard_normal((EXPERTS, N)).astype(np.float32)
    p = dict(bits=4, block=16, scale_type=1, zero_type=2, accuracy=4)
    return "expert_nbits", p, [b, scales, zeros, bias]


LAYOUTS = pytest.mark.parametrize("layout", [floats, bits])


class Mixture:
    """A plan of one product. Its slots: a, index, the weights, y."""

    def __init__(self, raw, layout, offset=0, **changed):
        kernel, own, self.weights = layout()
        self.raw = raw
        self.index = R.integers(0, EXPERTS, SLOTS).astype(np.int64)
        p = dict(slots=SLOTS, each=2, experts=EXPERTS, n=N, k=K, a_row=K, index_type=7)
        p |= own | changed
        a = R.standard_normal((SLOTS // 2, K)).astype(np.float32)
        self.y = np.full((SLOTS, N), np.nan, np.float32)
        arrays = [a, self.index, *self.weights, self.y]
        slots = [(x.nbytes, x is self.y) for x in arrays]
        scratch = 4 * evaluate(KERNELS[kernel].operands[-1].hi, p)
        operands = [(SLOT0 + i, offset if i == 2 else 0) for i in range(len(arrays))]
        code, self.plan = raw.load(
            plan([step(kernel, p, [*operands, (ARENA, 0)])], slots, arena=scratch)
        )
        assert code == OK
        self.arrays = arrays
        for i, x in enumerate(arrays):
            assert raw.bind(self.plan, i, x.ctypes.data, x.nbytes) == OK

    def whole(self):
        assert self.raw.run(self.plan) == OK
        return self.y.copy()

    def page(self, resident):
        """Leaves memory for so many experts of each weight; all are away."""
        self.room = {
            2 + i: np.zeros((resident, *w.shape[1:]), w.dtype) for i, w in enumerate(self.weights)
        }
        self.pages = {slot: (Page * EXPERTS)() for slot in self.room}
        self.held = {slot: [None] * resident for slot in self.room}
        for slot, pages in self.pages.items():
            assert self.bind_pages(slot, pages, EXPERTS) == OK
        self.brought = []

    def bind_pages(self, slot, pages, count):
        return self.raw.library.ew_plan_pages(self.plan, slot, pages, count)

    def bring(self, slot, expert):
        held, room = self.held[slot], self.room[slot]
        at = len(self.brought) % len(held)  # any but the one that is needed may go
        if held[at] is not None:
            self.pages[slot][held[at]].data = None
        room[at] = self.weights[slot - 2][expert]
        held[at] = expert
        self.pages[slot][expert].data = room[at].ctypes.data
        self.brought.append((slot, expert))

    def run(self):
        self.y[:] = np.nan
        code = self.raw.run(self.plan)
        while code == AWAY:
            e = self.raw.error()
            self.bring(e.operand, e.detail)
            code = self.raw.library.ew_plan_go_on(self.plan)
        return code


@LAYOUTS
@pytest.mark.parametrize("resident", [1, 2, EXPERTS])
def test_equal(raw, layout, resident):
    m = Mixture(raw, layout)
    want = m.whole()
    m.page(resident)
    for _ in range(2):
        assert m.run() == OK
        assert m.y.tobytes() == want.tobytes()
    if resident == EXPERTS:
        assert len(m.brought) == len(set(m.brought)) == EXPERTS * len(m.weights)
    # and with all in one place again
    for i, x in enumerate(m.arrays):
        assert raw.bind(m.plan, i, x.ctypes.data, x.nbytes) == OK
    assert m.whole().tobytes() == want.tobytes()


@LAYOUTS
def test_only_those_that_are_chosen(raw, layout):
    m = Mixture(raw, layout)
    m.index[:] = np.resize([1, 3], SLOTS)
    want = m.whole()
    m.page(2)
    assert m.run() == OK
    assert m.y.tobytes() == want.tobytes()
    assert {expert for _, expert in m.brought} == {1, 3}
    used = [page.used for page in m.pages[2]]
    assert used[3] > used[1] > 0 == used[0] == used[2] == used[4]


@LAYOUTS
def test_given_up(raw, layout):
    """A run whose page does not come can be begun again, and another plan's run ends it."""
    m = Mixture(raw, layout)
    want = m.whole()
    m.page(2)
    go_on = raw.library.ew_plan_go_on
    assert go_on(m.plan) == ARGUMENT  # none waits
    assert raw.run(m.plan) == AWAY
    assert go_on(m.plan) == AWAY  # it has not come
    assert m.run() == OK
    assert m.y.tobytes() == want.tobytes()
    assert go_on(m.plan) == ARGUMENT
    m.page(2)
    assert raw.run(m.plan) == AWAY
    other = Mixture(raw, layout)
    other.whole()
    assert go_on(m.plan) == ARGUMENT
    assert m.run() == OK
    assert m.y.tobytes() == want.tobytes()
    raw.stop(1)
    assert raw.run(m.plan) == STOPPED
    raw.stop(0)


@LAYOUTS
def test_refused(raw, layout):
    m = Mixture(raw, layout)
    pages = (Page * EXPERTS)()
    last = len(m.arrays) - 1
    for slot, count in [(0, 1), (1, 1), (last, 1), (last + 1, 1), (2, 0), (2, 7)]:
        assert m.bind_pages(slot, pages, count) == ARGUMENT
    assert m.bind_pages(2, None, EXPERTS) == ARGUMENT
    # parts of another size than an expert's
    assert m.bind_pages(2, pages, 1) == OK
    assert raw.run(m.plan) == BOUNDS


def test_more_than_a_part(raw):
    """Experts whose weights overlap are no parts."""
    for b_expert in (0, 16):
        m = Mixture(raw, floats, b_expert=b_expert)
        m.page(EXPERTS)
        assert m.run() == BOUNDS


def test_part_of_a_slot(raw):
    m = Mixture(raw, floats, offset=N * K * 4, experts=EXPERTS - 1)
    pages = (Page * EXPERTS)()
    assert m.bind_pages(2, pages, EXPERTS) == ARGUMENT
