"""ONNX's Attention."""
from __future__ import annotations

from .attention_grad import attention_gradients, merge_heads, of_cache, split_heads
from .attention_kernel import append, by_heads, emit_attention, masking, shaped
from .dtypes import BOOL, FLOAT, INT32, INT64
from .op import Op, fail, takes, unsupported

attention = Op("Attention")  # opset 23


@attention.cases
def _(t):
    def qkv(batch=2, heads=4, kv=4, q_len=5, kv_len=5, dim=8, v_dim=8, dtype="float32"):
        return t.f(batch, heads, q_len, dim, dtype=dtype), t.f(batch, kv, kv_len, dim, dtype=dtype), t.f(batch, kv, kv_len, v_dim, dtype=dtype)

    def flat(batch=2, heads=4, kv=4, q_len=5, kv_len=5, dim=8, v_dim=8):
        return t.f(batch, q_len, heads * dim), t.f(batch, kv_len, kv * dim), t.f(batch, kv_len, kv * v_dim)
    new = {"opset": 23, "tol": 1e-4}
    for shape in ({}, {"kv": 2}, {"kv": 1, "q_len": 1, "kv_len": 37}, {"q_len": 33, "kv_len": 70, "dim": 16, "v_dim": 12}, {"batch": 1, "heads": 1, "kv": 1, "dim": 64, "v_dim": 64, "q_len": 1, "kv_len": 130}):
        q, k, v = qkv(**shape)
        yield t(q, k, v, **new)
        yield t(q, k, v, scale=0.3, softcap=2.0, **new)
        q_len, kv_len = q.shape[2], k.shape[2]
        yield t(q, k, v, t.f(q_len, kv_len), **new)
        yield t(q, k, v, t.f(q.shape[0], 1, q_len, kv_len), softcap=3.0, **new)
        yield t(q, k, v, t.b(q_len, kv_len) | (t.n("int64", q_len, kv_len) * 0 + 1 > 0), **new)
        mask = t.b(q.shape[0], q.shape[1], q_len, kv_len)
        mask[..., 0] = True
        yield t(q, k, v, mask, **new)
        if q_len == kv_len:
            yield t(q, k, v, is_causal=1, **new)
    q, k, v = flat()
    yield t(q, k, v, q_num_heads=4, kv_num_heads=4, **new)
    yield t(q, k, v, is_causal=1, q_num_heads=4, kv_num_heads=4, **new)
    q, k, v = flat(kv=2, q_len=3, kv_len=6)
    yield t(q, k, v, q_num_heads=4, kv_num_heads=2, **new)
    q, k, v = qkv(kv=2, q_len=3, kv_len=3)
    yield t(q, k, v, None, t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), outputs=3, **new)
    yield t(q, k, v, t.f(3, 7), t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), outputs=3, **new)
    yield t(q, k, v, None, t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), is_causal=1, outputs=3, **new)
    q, k, v = flat(kv=2, q_len=3, kv_len=3)
    yield t(q, k, v, None, t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), q_num_heads=4, kv_num_heads=2, outputs=3, **new)
    yield t(*qkv(dtype="float16"), opset=23, tol=4e-3)
    yield t(*qkv(q_len=0), **new)
    yield t(*qkv(q_len=3, kv_len=7), is_causal=1, **new)
    yield t(*qkv(), None, None, None, t.of("int64", [3, 5]), opset=24, tol=1e-4)
    yield t(*qkv(q_len=1, kv_len=9), None, None, None, t.of("int64", [4, 9]), opset=24, is_causal=1, tol=1e-4)
    yield t(*qkv(q_len=2, kv_len=9), t.f(2, 9), None, None, t.of("int64", [4, 9]), opset=24, tol=1e-4)


def _attention_dims(n):
    q, k, v = n.inputs[:3]
    if any(x.dtype != FLOAT or x.rank != q.rank for x in (q, k, v)):
        fail(n, f"queries {q}, keys {k} and values {v} do not fit together")
    if q.rank == 4:
        return q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    heads, kv = n.attr("q_num_heads"), n.attr("kv_num_heads")
    if q.rank != 3 or not heads or not kv or q.shape[2] % heads or k.shape[2] % kv or v.shape[2] % kv:
        fail(n, f"{q}, {k}, {v} with {heads} and {kv} heads")
    return q.shape[0], heads, kv, q.shape[1], k.shape[1], q.shape[2] // heads, v.shape[2] // kv


@attention.infer
def _(n):
    takes(n, (FLOAT,), 0, 1, 2, 4, 5)
    takes(n, (FLOAT, BOOL), 3)
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(n)
    if kv < 1 or heads % kv:
        fail(n, f"{heads} query heads do not share {kv} key heads evenly")
    q, k, v = n.inputs[:3]
    want = ([batch, kv, kv_len, dim], [batch, kv, kv_len, v_dim]) if q.rank == 4 else ([batch, kv_len, kv * dim], [batch, kv_len, kv * v_dim])
    shaped(n, 1, "K", *want[0])
    shaped(n, 2, "V", *want[1])
    if n.has(4) != n.has(5):
        fail(n, "one of past_key and past_value is missing")
    shaped(n, 4, "past_key", batch, kv, None, dim)
    past = n.inputs[4].shape[2] if n.has(4) else 0
    shaped(n, 5, "past_value", batch, kv, past, v_dim)
    total = kv_len + past
    masking(n, 3, "attn_mask", batch, heads, q_len, total)
    shaped(n, 6, "nonpad_kv_seqlen", batch)
    if n.wants(3):
        unsupported(n, "its qk_matmul_output")
    out = [batch, heads, q_len, v_dim] if n.inputs[0].rank == 4 else [batch, q_len, heads * v_dim]
    return [(FLOAT, out), (FLOAT, [batch, kv, total, dim]), (FLOAT, [batch, kv, total, v_dim])][:len(n.outputs)]


@attention.lower
def _(n, b):
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(n)
    q, k, v = (b.view(x) for x in n.inputs[:3])
    y = b.out(n.outputs[0])
    if len(q.shape) == 3:
        q, k, v, y = by_heads(b, q, heads), by_heads(b, k, kv), by_heads(b, v, kv), by_heads(b, y, heads)
    keys, past = append(b, n, k, 4, 1)
    values, _ = append(b, n, v, 5, 2)
    masks = []
    if n.has(3):
        masks.append(b.view(n.inputs[3]))
    lengths = None
    if n.has(6):  # nonpad_kv_seqlen
        lengths = b.cast(b.view(n.inputs[6]), INT32)
    emit_attention(b, q, keys, values, y, n.attr("scale") or dim ** -0.5, masks, causal=n.attr("is_causal", 0), past=past if not n.has(6) else 0, softcap=n.attr("softcap", 0.0), lengths=lengths, nan_to_zero=0)


@attention.grad
def _(n, g, dy, dpk=None, dpv=None):
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(n)
    flat = n.inputs[0].rank == 3
    q, k, v = n.inputs[:3]
    if flat:
        q, k, v = split_heads(g, q, heads), split_heads(g, k, kv), split_heads(g, v, kv)
    past = n.inputs[4].shape[2] if n.has(4) else 0
    if past:
        k, v = g.op("Concat", n.inputs[4], k, axis=2), g.op("Concat", n.inputs[5], v, axis=2)
    got = [None] * (3 + n.has(3))
    if dy is not None:
        masks, wanted, causal = ([n.inputs[3]], [g.wants(3)], n.attr("is_causal", 0)) if n.has(3) else ([], [], n.attr("is_causal", 0))
        if n.has(6):  # query i of a row stands at its length - q_len + i
            end = g.reshape(g.op("Cast", n.inputs[6], to=INT64), [batch, 1, 1, 1])
            if causal:
                end = g.add(end, g.constant(INT64, [q_len, 1], range(1 - q_len, 1)))
            masks, wanted, causal = [*masks, g.op("Less", g.constant(INT64, [k.shape[2]], range(k.shape[2])), end)], [*wanted, False], 0
        got = attention_gradients(g, q, k, v, split_heads(g, dy, heads) if flat else dy, masks, wanted, scale=n.attr("scale") or dim ** -0.5, softcap=n.attr("softcap", 0.0), causal=causal, past=0 if n.has(6) else past)
    dq, (dk, dpast_k), (dv, dpast_v) = got[0], *(of_cache(g, d, more, past) for d, more in ((got[1], dpk), (got[2], dpv)))
    return [merge_heads(g, d) if flat and d is not None else d for d in (dq, dk, dv)] + [got[3] if n.has(3) else None, dpast_k, dpast_v]
