"""Keys and values in rows of 8 and 4 bits, against NumPy, and attention to them."""

import numpy as np
import pytest

from .harness import OK, PARAM, run

INT8, UINT8, GROUP = 3, 2, 32


def blocks_of(x, fill):
    """[..., blocks, GROUP], the last block padded."""
    pad = -x.shape[-1] % GROUP
    padded = np.concatenate([x, np.full((*x.shape[:-1], pad), fill, x.dtype)], -1)
    return padded.reshape(*x.shape[:-1], -1, GROUP)


def halves(x):
    return x.astype(np.float16)


def scales(x):
    """(12 bits, numbers) of scales of 4-bit blocks that are at least x: 5 bits of exponent, as
    float16 has, and 7 of fraction.
    """
    every = np.arange(1 << 12)
    exponent, fraction = every >> 7, every & 127
    sizes = np.where(
        exponent > 0, np.ldexp(1 + fraction / 128, exponent - 15), np.ldexp(fraction / 128, -14)
    ).astype(np.float32)
    codes = np.minimum(np.searchsorted(sizes, x), len(every) - 1)
    return codes, sizes[codes]


def stored(x, kind):
    """(bytes [..., row], what they stand for [..., dim])"""
    dim, eight = x.shape[-1], kind == INT8
    blocks, there = blocks_of(x, 0), blocks_of(np.ones(x.shape, bool), False)
    low = np.minimum(blocks.min(-1, keepdims=True), 0)
    high = np.maximum(blocks.max(-1, keepdims=True), 0)
    if eight:
        head = halves((np.maximum(high, -low) + np.float32(0)) * np.float32(1 / 127))
        wide = head.astype(np.float32)
    else:
        head, wide = scales((high - low) * np.float32(1 / 15))
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(wide > 0, np.float32(1) / wide, 0).astype(np.float32)
    top = 255 if eight else 15
    half = np.float32(0.5)
    middle = np.full_like(low, 128) if eight else np.clip(np.floor(-low * factor + half), 0, top)
    codes = np.clip(np.floor(blocks * factor + (middle + half)), 0, top)
    codes = np.where(there, codes, middle).astype(np.uint8)
    values = ((codes.astype(np.float32) - middle) * wide).reshape(*x.shape[:-1], -1)
    if not eight:
        codes = codes[..., :16] | codes[..., 16:] << 4
        head = (head << 4 | middle.astype(int)).astype(np.uint16)
    head = np.ascontiguousarray(head).view(np.uint8)
    data = np.concatenate([head, codes], -1).reshape(*x.shape[:-1], -1)
    return data, values[..., :dim]


def rows_of(dim, kind):
    return -(-dim // GROUP) * (34 if kind == INT8 else 18)


def counts(x, name):
    return {f"{name}_{axis}": s // x.itemsize for axis, s in zip("bhs", x.strides)}


@pytest.mark.parametrize("kind", [INT8, UINT8])
def test_store_and_load(engine, kind):
    rng = np.random.default_rng(1)
    for batch, heads, count, dim in [(1, 1, 1, 1), (2, 3, 5, 64), (1, 2, 7, 80), (1, 4, 3, 33)]:
        room = rng.standard_normal((batch, count, heads, dim + 3)).astype(np.float32) * 9
        x = room.transpose(0, 2, 1, 3)[..., 1 : dim + 1]  # strides other than those of the shape
        x[0, 0, 0] = 0
        row = rows_of(dim, kind)
        y = np.full((batch, heads, count + 2, row), 7, np.uint8)
        p = {"batch": batch, "heads": heads, "count": count, "dim": dim, "type": kind}
        p |= {**counts(x, "x"), **counts(y, "y")}
        assert run(engine, "store_rows", p, [room, y], offsets=(4,)) == OK
        data, values = stored(x, kind)
        np.testing.assert_array_equal(y[:, :, :count], data)
        assert (y[:, :, count:] == 7).all()
        low = np.minimum(blocks_of(x, 0).min(-1), 0)
        span = np.maximum(blocks_of(x, 0).max(-1), 0) - low
        most = np.repeat(span, GROUP, -1)[..., :dim] / (100 if kind == INT8 else 25)
        assert (abs(values - x) <= most + 1e-6).all()
        back = np.full((batch, heads, count, dim + 1), 5, np.float32)
        p |= {**counts(y, "x"), **counts(back, "y")}
        assert run(engine, "load_rows", p, [y, back]) == OK
        np.testing.assert_allclose(back[..., :dim], values, rtol=1e-6, atol=1e-6)
        assert (back[..., dim] == 5).all()
        again = np.zeros_like(y)
        p |= {**counts(back, "x"), **counts(y, "y")}
        assert run(engine, "store_rows", p, [back, again]) == OK
        if kind == INT8:  # what was loaded is stored as it was
            np.testing.assert_array_equal(again[:, :, :count], data)
        assert run(engine, "store_rows", {**p, "dim": dim + 32}, [back, again]) != OK
        assert run(engine, "store_rows", {**p, "type": 1}, [back, again]) == PARAM


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(engine, q, k, v, kind, v_dim):
    """y [1, heads, q_len, v_dim] of queries that are at the end of the keys."""
    (_, heads, q_len, dim), (_, kv, kv_len, _) = q.shape, k.shape
    y = np.zeros((1, heads, q_len, v_dim), np.float32)
    p = {"batch": 1, "heads": heads, "kv_heads": kv, "q_len": q_len, "kv_len": kv_len}
    p |= {"head_dim": dim, "v_dim": v_dim, "mask_type": 1, "causal": 1, "past": kv_len - q_len}
    p |= {"kv_type": kind, "scale": dim**-0.5}
    for name, x in (("q", q), ("k", k), ("v", v), ("y", y)):
        p |= counts(x, name)
    operands = [q, k, v, None, None, None, y]
    assert run(engine, "attention", p, operands) == OK
    assert run(engine, "attention", {**p, "v_dim": 513}, operands) == PARAM
    return y


def rows_of_numbers(rng, kv, kv_len, dim, kind):
    """(rows, what they stand for)"""
    data, values = stored(rng.standard_normal((1, kv, kv_len, dim)).astype(np.float32) * 2, kind)
    return np.ascontiguousarray(data), values


@pytest.mark.parametrize("kind", [INT8, UINT8])
def test_attention(engine, kind):
    """That of the numbers that the rows stand for, with few queries and with many.

    Few queries are rounded to 16 bits, and those of rows of 4 bits to 8, where there are products
    of bytes. So are the weights of values times the scales of their rows.
    """
    rng = np.random.default_rng(2)
    for heads, kv, q_len, kv_len, dim, v_dim in [
        (9, 3, 1, 300, 64, 64),
        (4, 4, 1, 5, 8, 8),
        (4, 2, 3, 131, 80, 96),
        (7, 1, 1, 1000, 512, 31),
        (2, 1, 1, 259, 40, 512),
        (6, 2, 70, 200, 64, 40),
        (2, 1, 9, 33, 300, 130),
    ]:
        k, keys = rows_of_numbers(rng, kv, kv_len, dim, kind)
        v, values = rows_of_numbers(rng, kv, kv_len, v_dim, kind)
        keys, values = (np.repeat(x, heads // kv, 1).astype(np.float64) for x in (keys, values))
        hidden = np.arange(kv_len)[None] > np.arange(q_len)[:, None] + kv_len - q_len
        few = heads // kv * q_len <= 6
        for size in (0, 1):
            q = size * rng.standard_normal((1, heads, q_len, dim)).astype(np.float32)
            scores = q.astype(np.float64) @ keys.swapaxes(2, 3) * dim**-0.5
            want = softmax(np.where(hidden, -np.inf, scores)) @ values
            y = attend(engine, q, k, v, kind, v_dim)
            within = 2e-5
            if few:
                share, within = (0.025, 0.1) if kind == UINT8 else (2e-4, 1e-3)
                assert np.sqrt(np.mean((y - want) ** 2)) < share * np.sqrt(np.mean(want**2))
            np.testing.assert_allclose(y, want, rtol=2e-4, atol=within if size else within / 10)


@pytest.mark.parametrize("kind", [INT8, UINT8])
def test_queries_alone(engine, kind):
    """A query's bits are those that it has alone, and what is not finite stays in its row."""
    rng = np.random.default_rng(3)
    k, _ = rows_of_numbers(rng, 1, 100, 64, kind)
    v, _ = rows_of_numbers(rng, 1, 100, 80, kind)
    q = rng.standard_normal((1, 6, 1, 64)).astype(np.float32)
    alone = [attend(engine, q[:, i : i + 1].copy(), k, v, kind, 80) for i in range(6)]
    for n in range(2, 7):
        together = attend(engine, q[:, :n].copy(), k, v, kind, 80)
        np.testing.assert_array_equal(together, np.concatenate(alone[:n], 1))
    for bad in (np.nan, np.inf):
        q[0, 1, 0, 5] = bad
        y = attend(engine, q[:, :3].copy(), k, v, kind, 80)
        assert np.isnan(y[:, 1]).all()
        np.testing.assert_array_equal(y[:, [0, 2]], np.concatenate([alone[0], alone[2]], 1))
    q[0, 1, 0] = 1e-35  # too small for an inverse: as 0
    y = attend(engine, q[:, :2].copy(), k, v, kind, 80)
    zero = attend(engine, np.zeros((1, 1, 1, 64), np.float32), k, v, kind, 80)
    np.testing.assert_array_equal(y[:, 1:], zero)
