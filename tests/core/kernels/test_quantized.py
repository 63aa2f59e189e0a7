"""Quantization, and products of quantized tensors, against NumPy."""

import numpy as np
import pytest

from .harness import OK, TYPES, check, make, run


def scales(p, s):
    """Scale (or zero point) of each element of [outer, axis, inner]."""
    o, a, i, block = p["outer"], p["axis"], p["inner"], p["block"]
    if block < 0:
        return np.broadcast_to(s.reshape(1, 1, 1), (o, a, i))
    if block == 0:
        return np.broadcast_to(s.reshape(1, a, 1), (o, a, i))
    return np.repeat(s.reshape(o, -(-a // block), i), block, 1)[:, :a]


LAYOUTS = [(1, 1, 1), (3, 5, 7), (2, 40, 1), (2, 33, 3), (4, 300, 1), (1, 2, 400), (30, 3, 400)]


@pytest.mark.parametrize("block", [-1, 0, 16])
def test_quantize_dequantize(engine, block):
    rng = np.random.default_rng(14)
    for outer, axis, inner in LAYOUTS:
        p = {"outer": outer, "axis": axis, "inner": inner, "block": block}
        n = 1 if block < 0 else axis if block == 0 else outer * -(-axis // block) * inner
        for code in (2, 3, 4, 5):
            for with_zero in (False, True):
                x = make(rng, (outer, axis, inner), np.float32)
                x.ravel()[:3] = [0.5, 1e9, -1e9][: x.size]
                scale = rng.choice(np.array([0.5, 0.02, 0.125], np.float32), n)
                zero = make(rng, (n,), TYPES[code]) if with_zero else None
                y = np.zeros(x.shape, TYPES[code])
                assert run(engine, "quantize", {**p, "type": code}, [x, scale, zero, y]) == OK
                info = np.iinfo(TYPES[code])
                z = scales(p, zero.astype(np.float64)) if with_zero else 0
                want = np.clip(np.rint(x / scales(p, scale)) + z, info.min, info.max)
                np.testing.assert_array_equal(y, want.astype(TYPES[code]))
                back = np.zeros(x.shape, np.float32)
                assert (
                    run(
                        engine,
                        "dequantize",
                        {**p, "type": code, "bits": 8 * y.itemsize},
                        [y, scale, zero, back],
                    )
                    == OK
                )
                check(back, (y.astype(np.float64) - z) * scales(p, scale), 1e-6)
        for code in (21, 22):
            for with_zero in (False, True):
                q = (
                    rng.integers(0, 16, (outer, axis, inner))
                    if code == 21
                    else rng.integers(-8, 8, (outer, axis, inner))
                )
                z = rng.integers(0, 8, n)
                scale = rng.random(n).astype(np.float32)
                y = np.zeros(q.shape, np.float32)
                assert (
                    run(
                        engine,
                        "dequantize",
                        {**p, "type": code, "bits": 4},
                        [nibbles(q), scale, nibbles(z) if with_zero else None, y],
                    )
                    == OK
                )
                check(
                    y,
                    (q - (scales(p, z) if with_zero else 0)) * scales(p, scale.astype(np.float64)),
                    1e-6,
                )


def nibbles(v):
    v = (np.asarray(v).ravel() & 15).astype(np.uint8)
    v = np.append(v, np.zeros(v.size % 2, np.uint8))
    return v[::2] | v[1::2] << 4


def test_dynamic_quantize(engine):
    rng = np.random.default_rng(15)
    for x in (
        make(rng, (1,), np.float32),
        make(rng, (777,), np.float32),
        np.zeros(5, np.float32),
        np.abs(make(rng, (100,), np.float32)) + 3,
    ):
        y, scale, zero = np.zeros(x.shape, np.uint8), np.zeros(1, np.float32), np.zeros(1, np.uint8)
        assert run(engine, "dynamic_quantize", {"n": x.size}, [x, y, scale, zero]) == OK
        low, high = min(x.min(), 0), max(x.max(), 0)
        s = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
        z = np.clip(np.rint(-low / s), 0, 255)
        check(scale, [s], 1e-6)
        assert zero[0] == z
        np.testing.assert_array_equal(y, np.clip(np.rint(x / s) + z, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gather_quantized(engine, bits):
    rng = np.random.default_rng(16)
    for rows, cols, block, count in [(5, 32, 16, 3), (9, 100, 32, 40), (7, 17, 16, 5)]:
        for signed in (0, 1):
            for with_zero in (False, True):
                per, blocks = 8 // bits, -(-cols // block)
                low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
                q, z = (
                    rng.integers(low, high, (rows, cols)),
                    rng.integers(low, high, (rows, blocks)),
                )

                def pack(v):
                    v = np.pad(v & ((1 << bits) - 1), ((0, 0), (0, -v.shape[1] % per))).reshape(
                        rows, -1, per
                    )
                    return (v << (np.arange(per) * bits)).sum(-1).astype(np.uint8)

                scale = rng.random((rows, blocks)).astype(np.float32)
                index = rng.integers(-rows, rows, count)
                for half in (False, True):
                    s = scale.astype(np.float16) if half else scale
                    y = np.zeros((count, cols), np.float32)
                    p = {
                        "bits": bits,
                        "count": count,
                        "rows": rows,
                        "cols": cols,
                        "block": block,
                        "index_type": 7,
                        "scale_type": 10 if half else 1,
                        "signed": signed,
                        "zeros": int(with_zero),
                    }
                    assert (
                        run(
                            engine,
                            "gather_quantized",
                            p,
                            [pack(q), index, s, pack(z) if with_zero else None, y],
                        )
                        == OK
                    )
                    zero = z if with_zero else np.full_like(z, 0 if signed else 1 << (bits - 1))
                    want = (q - np.repeat(zero, block, 1)[:, :cols]) * np.repeat(
                        s.astype(np.float64), block, 1
                    )[:, :cols]
                    check(y, want[index], 1e-6)
