"""Products of experts against NumPy."""

import numpy as np
import pytest
from edgewise.compiler.declare.kernel import KERNELS, evaluate

from .harness import INDEX, OK, check, make
from .harness import run as run_step

# slots, slots of a row, experts, n, k; more than 256 slots of one expert take several products
SIZES = [
    (1, 1, 3, 5, 7),
    (6, 2, 4, 40, 33),
    (12, 3, 2, 17, 64),
    (600, 2, 2, 24, 20),
    (70, 1, 90, 8, 16),
]


def run(engine, kernel, params, operands):
    """A step with the working memory that its contract demands, of NaNs."""
    floats = evaluate(KERNELS[kernel].operands[-1].hi, params)
    return run_step(engine, kernel, params, [*operands, np.full(floats, np.nan, np.float32)])


def chosen(rng, slots, experts, dtype, ordered):
    index = rng.integers(0, experts, slots).astype(dtype)
    return np.sort(index) if ordered else index


@pytest.mark.parametrize("ordered", [False, True])
def test_floats(engine, ordered):
    rng = np.random.default_rng(1)
    for slots, each, experts, n, k in SIZES:
        for half in (False, True):
            for turned in (False, True):
                index = chosen(rng, slots, experts, np.int64 if half else np.int32, ordered)
                rows = -(-slots // each)
                a = make(rng, (rows, k + 3), np.float32)
                b = make(rng, (experts, n, k) if turned else (experts, k, n), np.float32)
                b = b.astype(np.float16) if half else b
                bias = make(rng, (experts, n), np.float32) if turned else None
                y = np.full((slots, n), np.nan, np.float32)
                p = {
                    **dict(slots=slots, each=each, experts=experts, n=n, k=k, a_row=k + 3),
                    **dict(b_expert=n * k, b_row=1 if turned else n, b_col=k if turned else 1),
                    **dict(b_type=10 if half else 1, index_type=7 if half else 6, alpha=0.5),
                }
                assert run(engine, "expert_gemm", p, [a, index, b, bias, y]) == OK
                w = b.astype(np.float64)[index]
                w = w if turned else w.swapaxes(1, 2)
                want = 0.5 * np.einsum("sk,snk->sn", a[np.arange(slots) // each, :k], w)
                check(y, want + (0 if bias is None else bias[index]), 1e-4, 1e-3)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("transposed", [0, 1])
def test_bits(engine, bits, transposed):
    rng = np.random.default_rng(2)
    for slots, each, experts, n, k in SIZES:
        blocks = -(-k // 16)
        index = chosen(rng, slots, experts, np.int64, False)
        q = rng.integers(0, 256, (experts, n, blocks, 2 * bits)).astype(np.uint8)
        scales = rng.uniform(0.01, 0.1, (experts, n, blocks)).astype(np.float32)
        zeros = rng.integers(0, 256, (experts, n, -(-blocks * bits // 8))).astype(np.uint8)
        fields = lambda v: np.stack(
            [v >> s & (1 << bits) - 1 for s in range(0, 8, bits)], -1
        ).reshape(experts, n, -1)
        zero = fields(zeros)[..., :blocks].astype(np.float64)
        w = ((fields(q) - zero.repeat(16, 2)) * scales.repeat(16, 2))[index, :, :k]
        width, out = (n, k) if transposed else (k, n)
        a = make(rng, (-(-slots // each), width), np.float32)
        bias = make(rng, (experts, out), np.float32)
        y = np.full((slots, out), np.nan, np.float32)
        p = {
            **dict(slots=slots, each=each, experts=experts, n=n, k=k, a_row=width, bits=bits),
            **dict(block=16, scale_type=1, zero_type=2, transposed=transposed, index_type=7),
        }
        assert run(engine, "expert_nbits", p, [a, index, q, scales, zeros, bias, y]) == OK
        x = a[np.arange(slots) // each].astype(np.float64)
        product = np.einsum("sn,snk->sk" if transposed else "sk,snk->sn", x, w)
        check(y, product + bias[index], 1e-4, 1e-3)


def test_outer_products(engine):
    rng = np.random.default_rng(3)
    for slots, each, experts, n, k in SIZES:
        for a_each, b_each in ((each, 1), (1, each)):
            index = chosen(rng, slots, experts, np.int32, False)
            a = make(rng, (-(-slots // a_each), n), np.float32)
            b = make(rng, (-(-slots // b_each), k + 1), np.float32)
            y = np.full((experts, n, k), np.nan, np.float32)
            p = {
                **dict(slots=slots, a_each=a_each, b_each=b_each, experts=experts, n=n, k=k),
                **dict(a_row=n, b_row=k + 1, index_type=6),
            }
            assert run(engine, "expert_outer", p, [a, b, index, y]) == OK
            slot = np.arange(slots)
            each_one = np.einsum(
                "sn,sk->snk", a[slot // a_each].astype(np.float64), b[slot // b_each, :k]
            )
            want = np.zeros((experts, n, k))
            np.add.at(want, index, each_one)
            check(y, want, 1e-4, 1e-3)


@pytest.mark.parametrize("wrong", [4, -5, 2**40])
def test_no_such_expert(engine, wrong):
    index = np.array([0, wrong], np.int64)
    a, b, y = (np.ones(s, np.float32) for s in ((2, 8), (4, 8, 8), (2, 8)))
    p = dict(slots=2, each=1, experts=4, n=8, k=8, a_row=8, b_expert=64, b_row=8, b_col=1)
    p |= dict(b_type=1, index_type=7, alpha=1.0)
    assert run(engine, "expert_gemm", p, [a, index, b, None, y]) == INDEX
    assert (y == 1).all()
