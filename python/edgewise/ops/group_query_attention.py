"""onnxruntime's GroupQueryAttention."""
from __future__ import annotations

from .attention_grad import attention_gradients, merge_heads, of_cache, part, split_heads
from .attention_kernel import append, by_heads, emit_attention, masking, shaped
from .dtypes import FLOAT, INT32, INT64, pack
from .op import MS, Op, check_reach, fail, product, takes, unsupported
from .rotary import check_positions, emit_rope, table_gradients
from .symbolic import Sym

gqa = Op("GroupQueryAttention", MS)


@gqa.cases
def _(t):
    def case(batch=1, heads=4, kv=2, q_len=5, past=0, dim=16, packed=False, lengths=None, total=None, dtype="float32", extra=(), **attrs):
        width = (heads * dim, kv * dim, kv * dim)
        q, k, v = (t.f(batch, q_len, sum(width), dtype=dtype), None, None) if packed else (t.f(batch, q_len, w, dtype=dtype) for w in width)
        caches = [t.f(batch, kv, past, dim, dtype=dtype) for _ in range(2)] if past is not None else [None, None]
        total = total or q_len + (past or 0)
        tables = [t.f(64, dim // 2, low=-1, high=1, dtype=dtype) for _ in range(2)] if attrs.get("do_rotary") else []
        lengths = t.of("int32", lengths or [total - 1] * batch)
        inputs = [q, k, v, *caches, lengths, t.const(t.of("int32", total)), *tables]
        inputs += [None] * (9 - len(inputs)) + list(extra) if extra else []
        return t(*inputs, outputs=3, num_heads=heads, kv_num_heads=kv, tol=1e-4 if dtype == "float32" else 4e-3, **attrs)
    for packed in (False, True):
        yield case(packed=packed)
        yield case(packed=packed, past=None)
        yield case(packed=packed, q_len=1, past=7)
        yield case(packed=packed, q_len=1, past=70, heads=8, kv=8, dim=32)
        yield case(packed=packed, q_len=4, past=6)
        yield case(packed=packed, batch=2)
        yield case(packed=packed, batch=2, q_len=1, past=7)
        for interleaved in (0, 1):
            yield case(packed=packed, do_rotary=1, rotary_interleaved=interleaved)
            yield case(packed=packed, do_rotary=1, rotary_interleaved=interleaved, q_len=1, past=9)
            yield case(packed=packed, do_rotary=1, rotary_interleaved=interleaved, q_len=3, past=4)
    yield case(batch=2, do_rotary=1)
    yield case(batch=2, do_rotary=1, q_len=1, past=7)
    yield case(batch=2, q_len=1, past=7, lengths=[4, 7])
    yield case(batch=3, q_len=1, past=9, lengths=[0, 9, 3], do_rotary=1, local_window_size=4)
    yield case(batch=2, q_len=1, past=7, lengths=[4, 7], extra=[None, t.f(2, 4, 1, 8)])
    for q_len, length in ((1, 4), (3, 5), (5, 4)):  # a past with room behind it, as long as present
        yield case(q_len=q_len, past=12, lengths=[length], total=length + 1, do_rotary=1)
        if q_len != 3:
            yield case(batch=2, q_len=q_len, past=12, lengths=[length] * 2, total=length + 1)
    yield case(softcap=1.5)
    yield case(scale=0.1)
    for window in (1, 3, 20):
        yield case(local_window_size=window)
        yield case(local_window_size=window, q_len=1, past=9)
        yield case(local_window_size=window, q_len=3, past=9, do_rotary=1)
    yield case(q_len=40, dim=64, heads=2, kv=1)
    yield case(extra=[None, t.f(1, 1, 5, 5)])
    yield case(extra=[t.of("int64", [[0, 1, 2, 3, 4]])], do_rotary=1)
    yield case(dtype="float16")
    sink = t.f(4)
    for softcap in (0.0, 2.0):
        yield case(smooth_softmax=1, softcap=softcap)
        yield case(extra=[None, None, sink], softcap=softcap)
        yield case(extra=[None, None, sink], q_len=1, past=70, local_window_size=9, softcap=softcap)
    yield case(batch=2, q_len=1, past=7, lengths=[4, 7], extra=[None, None, sink])
    yield case(extra=[None, None, sink], smooth_softmax=1)
    for more in ({}, {"q_len": 3, "past": 6}, {"packed": True}, {"do_rotary": 1}):
        yield case(causal=0, **more)
    # inputs that onnxruntime computes on GPUs only
    x, k, v, weights = t.f(1, 5, 64), t.f(1, 5, 32), t.f(1, 5, 32), [t.f(16) + 1 for _ in range(2)]

    def normed(x, w):
        y = x.reshape(1, 5, -1, 16).astype("float64")
        return (y / ((y * y).mean(-1, keepdims=True) + 1e-5) ** 0.5 * w).reshape(x.shape)

    def attended(q, k, v):
        q, k, v = (x.reshape(1, 5, -1, 16).transpose(0, 2, 1, 3) for x in (q, k, v.astype("float64")))
        k, v = k.repeat(2, 1), v.repeat(2, 1)
        s = q @ k.transpose(0, 1, 3, 2) / 4
        e = 2.718281828459045 ** (s - 1e30 * (t.of("float64", [[j > i for j in range(5)] for i in range(5)])))
        return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(1, 5, 64).astype("float32")
    fed = [None, None, t.of("int32", [4]), t.const(t.of("int32", 5)), *[None] * 7, *weights]
    expected = [attended(normed(x, weights[0]), normed(k, weights[1]), v)]
    for inputs in ([x, k, v], [t.of("float32", [[[*a, *b, *c] for a, b, c in zip(x[0], k[0], v[0])]]), None, None]):
        yield t(*inputs, *fed, num_heads=4, kv_num_heads=2, qk_norm_epsilon=1e-5, tol=1e-4, expect=expected, why="onnxruntime norms on GPUs only")
# inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids, attention_bias, head_sink, k_scale, v_scale, q_norm_weight, k_norm_weight


def _gqa_dims(n):
    heads, kv = n.attr("num_heads"), n.attr("kv_num_heads")
    q = n.inputs[0]
    shared = heads if n.has(1) else heads + 2 * kv
    if heads < 1 or kv < 1 or heads % kv or q.rank != 3 or q.dtype != FLOAT or q.shape[2] % shared:
        fail(n, f"its query {q} is not shared evenly by {heads} query heads and {kv} key heads")
    return heads, kv, q.shape[2] // shared


@gqa.decompose
def _(n, g):
    """The same behind root mean square norms of queries and keys, where they are part of it."""
    if not n.has(14) and not n.has(15):
        return None
    takes(n, (FLOAT,), 0, 1, 2, 14, 15)
    heads, kv, dim = _gqa_dims(n)
    if not n.has(14) or not n.has(15):
        fail(n, "of q_norm_weight and k_norm_weight one is missing")
    shaped(n, 14, "q_norm_weight", dim)
    shaped(n, 15, "k_norm_weight", dim)
    inputs = n.inputs[:14]
    if not n.has(1):
        inputs[:3] = (part(g, n.inputs[0], 2, at * dim, count * dim) for at, count in ((0, heads), (heads, kv), (heads + kv, kv)))

    for i, count in ((0, heads), (1, kv)):
        x = inputs[i]
        y = g.op("SimplifiedLayerNormalization", g.reshape(x, [*x.shape[:2], count, dim]), n.inputs[14 + i], epsilon=n.attr("qk_norm_epsilon", 1e-6))
        inputs[i] = g.reshape(y, [*x.shape])
    while inputs[-1] is None:
        inputs.pop()
    outs = g.op("GroupQueryAttention", *inputs, domain=MS, outputs=len(n.outputs), **n.attrs)
    return outs if len(n.outputs) > 1 else [outs]


@gqa.infer
def _(n):
    takes(n, (FLOAT,), 0, 1, 2, 3, 4, 7, 8, 10)
    heads, kv, dim = _gqa_dims(n)
    q = n.inputs[0]
    if any(v is not None and v.dtype != FLOAT for v in n.inputs[:5]):
        fail(n, "its queries, keys and values are not all floats")
    if n.has(1) != n.has(2) or n.has(3) != n.has(4):
        fail(n, "of key and value, or of past_key and past_value, one is missing")
    shaped(n, 1, "key", q.shape[0], q.shape[1], kv * dim)
    shaped(n, 2, "value", q.shape[0], q.shape[1], kv * dim)
    shaped(n, 3, "past_key", q.shape[0], kv, None, dim)
    shaped(n, 4, "past_value", q.shape[0], kv, n.inputs[3].shape[2] if n.has(3) else None, dim)
    if not n.has(5) or n.inputs[5].dtype != INT32 or product(n.inputs[5].shape) != q.shape[0]:
        fail(n, f"its seqlens_k is {n.input(5)}; one int32 for each of {q.shape[0]} rows is wanted")
    if n.attr("do_rotary", 0):
        if not n.has(7) or not n.has(8):
            fail(n, "it rotates, and has no cos_cache or sin_cache")
        half = n.inputs[7].shape[-1]
        shaped(n, 7, "cos_cache", None, None)
        shaped(n, 8, "sin_cache", *n.inputs[7].shape)
        if half < 1 or 2 * half > dim:
            fail(n, f"its cos_cache {n.inputs[7]} is too wide for heads of {dim}")
        if n.has(9):
            check_positions(n, 9, q.shape[0], q.shape[1])
    for name in ("qk_output", "k_quant_type", "v_quant_type", "sliding_window_cache"):
        if n.attrs.get(name, 0) not in (0, -1, "NONE"):
            unsupported(n, f"{name} = {n.attrs[name]}")
    if n.has(12) or n.has(13) or n.wants(3):
        unsupported(n, "a quantized cache (k_scale, v_scale), or its output_qk")
    if not n.attr("causal", 1) and n.attr("local_window_size", -1) > 0:
        fail(n, "it has a local window, and sees what comes after it", "Export the model again.")
    takes(n, (FLOAT,), 11)
    shaped(n, 11, "head_sink", heads)
    _, total = _starts(n)
    masking(n, 10, "attention_bias", q.shape[0], heads, q.shape[1], total)
    return [(FLOAT, [q.shape[0], q.shape[1], heads * dim]), (FLOAT, [q.shape[0], kv, total, dim]), (FLOAT, [q.shape[0], kv, total, dim])][:len(n.outputs)]


def _starts(n):
    """(how many rows of its past count for each row of the batch, length of present). seqlens_k says so where the past is not a cache of ours: rows
    that were padded on the right go on at their own ends, and a past may be a buffer with room behind it."""
    batch, q_len = n.inputs[0].shape[:2]
    past = n.inputs[3].shape[2] if n.has(3) else 0
    if isinstance(past, Sym) or past == 0 or n.inputs[3].role == "cache":
        return [past] * batch, past + q_len
    total = n.need(6)[0] if n.has(6) else None
    starts = [0] * batch if total == q_len else [s + 1 - q_len for s in n.need(5)]  # a prompt begins at 0, whatever its padding
    if any(isinstance(s, Sym) for s in starts):
        return [past] * batch, past + q_len
    if not all(0 <= s <= past for s in starts):
        fail(n, f"its seqlens_k {n.need(5)} do not fit {q_len} new positions behind a past of {past}")
    return starts, max(past, total or 0, max(starts) + q_len)


@gqa.lower
def _(n, b):
    heads, kv, dim = _gqa_dims(n)
    x = b.view(n.inputs[0])
    if n.has(1):
        q, k, v = by_heads(b, x, heads), by_heads(b, b.view(n.inputs[1]), kv), by_heads(b, b.view(n.inputs[2]), kv)
    else:
        q, k, v = (by_heads(b, x.slice(2, at * dim, count * dim), count) for at, count in ((0, heads), (heads, kv), (heads + kv, kv)))
    batch, q_len = x.shape[0], q.shape[2]
    starts, total = _starts(n)
    past = n.inputs[3].shape[2] if n.has(3) else 0
    together = starts == [past] * batch  # one step for all rows of the batch
    parts = [(0, batch, past)] if together else [(i, 1, s) for i, s in enumerate(starts)]
    if n.attr("do_rotary", 0):
        cos, sin = b.view(n.inputs[7]), b.view(n.inputs[8])
        ids = b.contiguous(b.view(n.inputs[9])) if n.has(9) else None
        rq, rk = b.temp(FLOAT, [batch, q_len, heads, dim]).transpose([0, 2, 1, 3]), b.temp(FLOAT, [batch, q_len, kv, dim]).transpose([0, 2, 1, 3])
        for at, count, start in parts if ids is None else [(0, batch, 0)]:
            if ids is None:
                check_reach(n, start + (q_len - 1), cos.shape[0])
            for source, target in ((q, rq), (k, rk)):
                emit_rope(b, source.slice(0, at, count), target.slice(0, at, count), cos, sin, 2 * cos.shape[1], 1 if ids is None else 2, ids, start, n.attr("rotary_interleaved", 0))
        q, k = rq, rk
    if together:
        keys, values = append(b, n, k, 3, 1)[0], append(b, n, v, 4, 2)[0]
    else:
        keys, values = (_append_each(b, n, new, i, j, starts, total) for new, i, j in ((k, 3, 1), (v, 4, 2)))
    y = by_heads(b, b.out(n.outputs[0]), heads)
    sink = b.contiguous(b.view(n.inputs[11])) if n.has(11) else b.const_bytes(pack(FLOAT, [0.0] * heads), FLOAT, [heads]) if n.attr("smooth_softmax", 0) > 0 else None
    mask = b.view(n.inputs[10]) if n.has(10) else None
    while mask is not None and len(mask.shape) < 4:
        mask = mask.unsqueeze(0)
    window = max(n.attr("local_window_size", -1), 0)
    for at, count, start in parts:
        reach = keys.shape[2] if together else start + q_len
        masks = []
        if mask is not None:
            m = mask if together or mask.shape[0] == 1 else mask.slice(0, at, 1)
            masks = [m if m.shape[3] in (1, reach) else m.slice(3, 0, reach)]
        emit_attention(b, q.slice(0, at, count), keys.slice(0, at, count).slice(2, 0, reach), values.slice(0, at, count).slice(2, 0, reach), y.slice(0, at, count), n.attr("scale", 0.0) or dim ** -0.5, masks,
                       causal=int(n.attr("causal", 1) != 0), past=start, window=window, softcap=n.attr("softcap", 0.0), sink=sink)


@gqa.grad
def _(n, g, dy, dpk=None, dpv=None):
    heads, kv, dim = _gqa_dims(n)
    batch, q_len = n.inputs[0].shape[:2]
    starts, total = _starts(n)
    past = n.inputs[3].shape[2] if n.has(3) else 0
    if starts != [past] * batch or total != past + q_len:
        unsupported(n, "the gradient of rows that begin at different places", "Train without a past.")
    if n.has(11) or n.attr("smooth_softmax", 0) > 0:
        unsupported(n, "the gradient of attention with a sink (head_sink, smooth_softmax)", "Train a model without one.")
    if n.has(1):
        q, k, v = (split_heads(g, x, count) for x, count in zip(n.inputs, (heads, kv, kv)))
    else:
        q, k, v = (split_heads(g, part(g, n.inputs[0], 2, at * dim, count * dim), count) for at, count in ((0, heads), (heads, kv), (heads + kv, kv)))
    plain_q, plain_k, tables = q, k, None
    if n.attr("do_rotary", 0):
        half, turn = n.inputs[7].shape[1], n.attr("rotary_interleaved", 0)
        tables = [g.op("Gather", t, n.inputs[9], axis=0) if n.has(9) else g.reshape(part(g, t, 0, past, q_len), [1, q_len, half]) for t in n.inputs[7:9]]
        q, k = (g.op("Rope", x, *tables, domain="edgewise", interleaved=turn) for x in (q, k))
    if past:
        k, v = g.op("Concat", n.inputs[3], k, axis=2), g.op("Concat", n.inputs[4], v, axis=2)
    out = [None] * max(len(n.inputs), 11)
    got = [None] * 4
    if dy is not None:
        got = attention_gradients(g, q, k, v, split_heads(g, dy, heads), [n.inputs[10]] if n.has(10) else [], [g.wants(10)], scale=n.attr("scale", 0.0) or dim ** -0.5, softcap=n.attr("softcap", 0.0),
                                  causal=int(n.attr("causal", 1) != 0), past=past, window=max(n.attr("local_window_size", -1), 0))
    dq, (dk, out[3]), (dv, out[4]) = got[0], *(of_cache(g, d, more, past) for d, more in ((got[1], dpk), (got[2], dpv)))
    out[10] = got[3] if n.has(10) else None
    if tables:
        if g.wants(7) or g.wants(8):
            for i, table in ((7, 0), (8, 1)):
                parts = [table_gradients(g, x, d, tables[0].shape, turn, True)[table] for x, d in ((plain_q, dq), (plain_k, dk)) if d is not None]
                total = g.add(*parts) if len(parts) == 2 else parts[0]
                out[i] = g.op("GatherGrad", total, n.inputs[9] if n.has(9) else g.constant(INT64, [1, q_len], range(past, past + q_len)), domain="edgewise", rows=n.inputs[7].shape[0])
        back = tables[0], g.neg(tables[1])
        dq, dk = (g.op("Rope", d, *back, domain="edgewise", interleaved=turn) if d is not None else None for d in (dq, dk))
    flat = [merge_heads(g, d) if d is not None else g.zeros([batch, q_len, count * dim]) for d, count in ((dq, heads), (dk, kv), (dv, kv))]
    if n.has(1):
        out[:3] = flat
    else:
        out[0] = g.op("Concat", *flat, axis=2)
    return out


def _append_each(b, n, new, past_index, present_index, starts, total):
    """As _append, each row of the batch at its own place; zeros behind it."""
    out = n.outputs[present_index] if n.wants(present_index) else None
    old = b.view(n.inputs[past_index])
    whole = b.out(out) if out is not None else b.temp(FLOAT, old.shape[:2] + [total, old.shape[3]])
    b.fill(whole, 0.0)
    for i, start in enumerate(starts):
        b.copy(old.slice(0, i, 1).slice(2, 0, start), whole.slice(0, i, 1).slice(2, 0, start))
        b.copy(new.slice(0, i, 1), whole.slice(0, i, 1).slice(2, start, new.shape[2]))
    return whole
