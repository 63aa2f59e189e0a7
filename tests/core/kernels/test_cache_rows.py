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


def stored(x, kind):
    """(bytes [..., row], what they stand for [..., dim])"""
    dim, eight = x.shape[-1], kind == INT8
    blocks, there = blocks_of(x, 0), blocks_of(np.ones(x.shape, bool), False)
    low = np.where(there, blocks, np.inf).min(-1, keepdims=True)
    high = np.where(there, blocks, -np.inf).max(-1, keepdims=True)
    if eight:
        scale, low = halves(np.maximum(high, -low + 0.0) * np.float32(1 / 127)), np.float16([0])
    else:
        low = halves(low)
        scale = halves((high - low.astype(np.float32)) * np.float32(1 / 15))
    wide, base = scale.astype(np.float32), low.astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(wide > 0, np.float32(1) / wide, 0).astype(np.float32)
    middle, top = (128, 255) if eight else (0, 15)
    codes = np.clip(np.floor((blocks - base) * factor + np.float32(middle + 0.5)), 0, top)
    codes = np.where(there, codes, middle).astype(np.uint8)
    values = ((codes.astype(np.float32) - middle) * wide + base).reshape(*x.shape[:-1], -1)
    if not eight:
        codes = codes[..., :16] | codes[..., 16:] << 4
    heads = [scale] if eight else [scale, low]
    head = [np.ascontiguousarray(h).view(np.uint8) for h in heads]
    data = np.concatenate([*head, codes], -1).reshape(*x.shape[:-1], -1)
    return data, values[..., :dim]


def rows_of(dim, kind):
    return -(-dim // GROUP) * (34 if kind == INT8 else 20)


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
        span = blocks_of(x, 0).max(-1) - blocks_of(x, 0).min(-1)
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


@pytest.mark.parametrize("kind", [INT8, UINT8])
def test_attention(engine, kind):
    """That of the numbers that the rows stand for, with few queries and with many."""
    rng = np.random.default_rng(2)
    for heads, kv, q_len, kv_len, dim, v_dim in [
        (9, 3, 1, 300, 64, 64),
        (4, 4, 1, 5, 8, 8),
        (4, 2, 3, 131, 80, 96),
        (6, 2, 70, 200, 64, 40),
        (2, 1, 9, 33, 300, 130),
    ]:
        q = rng.standard_normal((1, heads, q_len, dim)).astype(np.float32)
        whole = {}
        for name, width in (("k", dim), ("v", v_dim)):
            x = rng.standard_normal((1, kv, kv_len, width)).astype(np.float32) * 2
            whole[name] = stored(x, kind)
        k, v = (np.ascontiguousarray(whole[name][0]) for name in "kv")
        y = np.zeros((1, heads, q_len, v_dim), np.float32)
        past = kv_len - q_len
        p = {"batch": 1, "heads": heads, "kv_heads": kv, "q_len": q_len, "kv_len": kv_len}
        p |= {"head_dim": dim, "v_dim": v_dim, "mask_type": 1, "causal": 1, "past": past}
        p |= {"kv_type": kind, "scale": dim**-0.5}
        for name, x in (("q", q), ("k", k), ("v", v), ("y", y)):
            p |= counts(x, name)
        assert run(engine, "attention", p, [q, k, v, None, None, None, y]) == OK
        keys, values = (np.repeat(whole[n][1], heads // kv, 1).astype(np.float64) for n in "kv")
        scores = q.astype(np.float64) @ keys.swapaxes(2, 3) * dim**-0.5
        hidden = np.arange(kv_len)[None] > np.arange(q_len)[:, None] + past
        want = softmax(np.where(hidden, -np.inf, scores)) @ values
        np.testing.assert_allclose(y, want, rtol=2e-4, atol=2e-5)
        assert (
            run(engine, "attention", {**p, "v_dim": 513}, [q, k, v, None, None, None, y]) == PARAM
        )
