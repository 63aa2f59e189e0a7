"""Operators of onnxruntime, and of later versions of ONNX."""

from __future__ import annotations

import numpy as np

from ..graph import MS


def tokens(g):
    return g.pick(
        lambda v: (
            v.rank == 3
            and v.size < 20
            and g.is_fixed(v.dims[2])
            and v.dims[2][0] > 1
            and min(map(min, v.dims)) > 0
        )
    )


def activation(g):
    """GELUs in one node, with a bias or without."""
    x = tokens(g)
    if not x:
        return None
    op = g.rng.choice(("BiasGelu", "FastGelu", "QuickGelu", "Gelu"))
    if op == "FastGelu" and g.rng.random() < 0.5 or op == "BiasGelu":
        return g.node(op, [x, g.weight(x.dims[-1][0])], x.dims, size=x.size + 3, domain=MS)
    how = {"alpha": 1.5} if op == "QuickGelu" else {}
    return g.node(op, [x], x.dims, domain=MS, **how)


def fused_product(g):
    """FusedMatMul: transposed and scaled."""
    x = tokens(g)
    y = x and g.pick(
        lambda v: v.rank == 3 and v.dims[0] == x.dims[0] and v.dims[2] == x.dims[2] and v.size < 20
    )
    if not y:
        return None
    dims = (x.dims[0], x.dims[1], y.dims[1])
    return g.fits(dims) and g.node(
        "FusedMatMul", [x, y], dims, size=9.0, domain=MS, transB=1, alpha=0.3
    )


def skip_norm(g):
    """SkipSimplifiedLayerNormalization, with the sum as a further output."""
    x = tokens(g)
    y = x and g.pick(lambda v: v.dims == x.dims)
    if not y:
        return None
    scale = g.weight(x.dims[-1][0], positive=True)
    outs = g.many(
        "SkipSimplifiedLayerNormalization",
        [x, y, scale],
        [x.dims, None, None, x.dims],
        size=4.0,
        domain=MS,
        epsilon=1e-5,
    )
    return outs[0]


def block_weights(g):
    """MatMulNBits: weights of 4 bits in blocks."""
    x = g.pick(
        lambda v: v.rank >= 2 and v.size < 20 and g.is_fixed(v.dims[-1]) and v.dims[-1][0] > 1
    )
    if not x or g.floats != np.float32:
        return None
    k, n, block = x.dims[-1][0], g.rng.choice((4, 8)), 16
    blocks = -(-k // block)
    packed = g.const(g.numpy.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8))
    scales = g.const((g.numpy.random((n, blocks)) * 0.1 + 0.02).astype(np.float32), 1.0)
    dims = (*x.dims[:-1], g.fixed(n))
    how = {"K": k, "N": n, "bits": 4, "block_size": block}
    return g.node("MatMulNBits", [x, packed, scales], dims, size=x.size + 5, domain=MS, **how)


def rotary(g):
    """RotaryEmbedding with positions that are fed or counted from a number."""
    x = g.pick(
        lambda v: (
            v.rank == 4
            and v.size < 30
            and v.dims[3] in (g.fixed(2), g.fixed(4))
            and min(map(min, v.dims)) > 0
        )
    )
    if not x or max(x.dims[2]) > 44:
        return None
    half = x.dims[3][0] // 2
    angles = np.arange(48)[:, None] * 100.0 ** (-np.arange(half) / half)
    tables = [g.const(f(angles).astype(g.floats), 1.0) for f in (np.cos, np.sin)]
    start = g.ints(g.rng.choice((0, 0, 3)))
    return g.node("RotaryEmbedding", [x, start, *tables], x.dims, domain=MS, size=x.size * 2)


# Operators of one input and an output of its dimensions: (first opset, attributes, size)
PLAIN = {
    "Mish": (18, {}, None), "Celu": (13, {"alpha": 0.7}, None),
    "Shrink": (13, {"lambd": 0.3}, None), "Hardmax": (13, {"axis": -1}, 1.0),
    "Gelu": (20, {}, None),
    "LpNormalization": (13, {}, 1.0),
    "MeanVarianceNormalization": (13, {"axes": [-1]}, 4.0), "Ceil": (13, {}, None),
    "Atan": (13, {}, 2.0), "Sinh": (13, {}, 30.0), "Trilu": (14, {}, None),
}  # fmt: skip


def plain(g):
    op = g.rng.choice([k for k, (least, *_) in PLAIN.items() if g.opset >= least])
    _, attrs, size = PLAIN[op]
    x = g.pick(lambda v: v.rank >= 2 and v.size < 6 and min(map(min, v.dims)) > 0)
    if not x or g.floats != np.float32:
        return None
    if op == "MeanVarianceNormalization" and min(x.dims[-1]) < 3:
        return None  # onnxruntime takes the root of a negative variance
    return g.node(op, [x], x.dims, size=size, **attrs)


def attention(g):
    """Attention of ONNX: heads of one dimension or of their own, causal, with a mask or a past."""
    x = tokens(g)
    if not x or g.opset < 23 or g.floats != np.float32 or x.dims[2][0] % 2:
        return None
    c, b = x.dims[2][0], x.dims[0]
    if max(x.dims[1]) > 40:
        return None
    how = {"q_num_heads": 2, "kv_num_heads": g.rng.choice((1, 2))}
    wide = how["kv_num_heads"] * c // 2
    q = g.node("MatMul", [x, g.weight(c, c, scale=c**-0.5)], x.dims, size=3.0, keep=False)
    dims = (*x.dims[:2], g.fixed(wide))
    k, v = (
        g.node("MatMul", [x, g.weight(c, wide, scale=c**-0.5)], dims, size=3.0, keep=False)
        for _ in "kv"
    )
    inputs, kv_len, outs = [q, k, v], x.dims[1], [x.dims]
    if g.rng.random() < 0.4:
        heads, d = g.fixed(how["kv_num_heads"]), g.fixed(c // 2)
        past = [g.input("f", (b, heads, g.dim("m"), d), stem="past") for _ in "kv"]
        kv_len = tuple(map(sum, zip(kv_len, g.dim("m"))))
        inputs += [None, *past]
        outs += [(b, heads, kv_len, d)] * 2
    if g.rng.random() < 0.5:
        how["is_causal"] = 1
    elif g.rng.random() < 0.5:
        inputs += [None] * (4 - len(inputs))
        inputs[3] = g.input("?", (x.dims[1], kv_len), "mask", "mask")
    return g.many("Attention", inputs, outs, size=3.0, **how)[0]


def rms_norm(g):
    """RMSNormalization over the last axis."""
    x = tokens(g)
    if not x or g.opset < 23:
        return None
    scale = g.weight(x.dims[-1][0], positive=True)
    return g.node("RMSNormalization", [x, scale], x.dims, size=4.0, axis=-1, epsilon=1e-4)


FAMILIES = {
    "Attention": (2, attention), "RMSNormalization": (1, rms_norm), "GELU": (1, activation),
    "FusedMatMul": (1, fused_product), "skip norm": (1, skip_norm),
    "MatMulNBits": (1, block_weights), "RotaryEmbedding": (1, rotary), "plain": (3, plain),
}  # fmt: skip
