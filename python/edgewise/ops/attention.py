"""ONNX's Attention (opset 23 to 25).

Scores and their softmax are computed in float32 whatever softmax_precision asks for: the element types of Q, K and V that can be stored are no finer."""
from __future__ import annotations

from .attention_grad import attention_gradients, merge_heads, of_cache, split_heads
from .attention_kernel import append, by_heads, emit_attention, masking, shaped
from .dtypes import BOOL, FLOAT, INT32, INT64
from .op import Op, fail, most, takes, unsupported
from .symbolic import Sym

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
    yield t(*qkv(q_len=2, kv_len=9), t.f(2, 4, 2, 6), None, None, t.of("int64", [4, 6]), opset=24, tol=1e-4)  # a mask shorter than the keys
    yield t(*qkv(q_len=4), None, None, None, t.of("int64", [2, 5]), opset=24, is_causal=1, tol=1e-4)          # queries before the first key see nothing
    never = t.b(5, 5)
    never[0], never[1] = True, False
    yield t(*qkv(), never, opset=24, is_causal=1, tol=1e-4)
    for mode in range(4):
        scores = {"qk_matmul_output_mode": mode, "outputs": [True, False, False, True], "opset": 24, "tol": 1e-4, "trust": "onnx", "why": "onnxruntime's masks are the lowest float, not -inf"}
        yield t(*qkv(q_len=3, kv_len=7), t.f(2, 1, 3, 7), **scores)
        if mode != 0:  # ONNX's own reference gives capped scores in mode 0
            yield t(*qkv(kv=2), never, softcap=2.0, is_causal=1, **scores)
        yield t(*flat(kv=2, q_len=3, kv_len=6), q_num_heads=4, kv_num_heads=2, is_causal=1, softmax_precision=1, **scores)
        yield t(*qkv(q_len=2, kv_len=9), t.f(2, 8), None, None, t.of("int64", [4, 8]), is_causal=1, **scores)
        yield t(*qkv(kv=2, q_len=3, kv_len=3), t.f(3, 7), t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), scale=0.3, qk_matmul_output_mode=mode, outputs=4, opset=23, tol=1e-4)
    newest = {"opset": 25, "tol": 1e-4}
    for bounds in ({"left_window_size": 2}, {"right_window_size": 1}, {"left_window_size": 1, "right_window_size": 2}, {"left_window_size": 0, "right_window_size": 0}, {"left_window_size": 3, "is_causal": 1}):
        yield t(*qkv(q_len=6, kv_len=6), **bounds, **newest)
        yield t(*qkv(q_len=2, kv_len=9), t.b(2, 9), None, None, t.of("int64", [4, 9]), **bounds, **newest)
        yield t(*qkv(kv=2, q_len=3, kv_len=3), t.f(3, 7), t.f(2, 2, 4, 8), t.f(2, 2, 4, 8), outputs=4, qk_matmul_output_mode=2, **bounds, **newest)


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
    if n.has(6) and (n.has(4) or n.inputs[6].dtype != INT64):
        fail(n, f"its nonpad_kv_seqlen is {n.inputs[6]}; int64, and no past beside it, is wanted")
    if n.attr("softmax_precision", 1) not in (1, 10, 11, 16):
        fail(n, f"its softmax_precision is {n.attr('softmax_precision', 1)}, which is no element type of floats")
    _reach(n, total)
    out = [batch, heads, q_len, v_dim] if n.inputs[0].rank == 4 else [batch, q_len, heads * v_dim]
    return [(FLOAT, out), (FLOAT, [batch, kv, total, dim]), (FLOAT, [batch, kv, total, v_dim])][:len(n.outputs)]


def _reach(n, total):
    """(causal, window) as the kernel has them: how far each query sees to its right and to its left; 0 where nothing bounds it."""
    left, right = (n.attr(name, -1) for name in ("left_window_size", "right_window_size"))
    if min(left, right) < -1:
        fail(n, f"its windows are {left} to the left and {right} to the right; -1 (no bound) or more is wanted", "Export the model again.")
    causal = 1 if n.attr("is_causal", 0) else 0 if right < 0 else min(right, most(total)) + 1
    return causal, min(left, most(total)) + 1


def _visible(n, g, past, total):
    """Bools whose conjunction says which of `total` keys each query may see by its place: [total], [q_len, total] or [batch, 1, 1 or q_len, total]."""
    batch, _, _, q_len, *_ = _attention_dims(n)
    causal, window = _reach(n, total)
    if isinstance(total, Sym):
        unsupported(n, "places that a run decides on", "Feed it a past of a fixed length.")
    keys, out = g.constant(INT64, [total], range(total)), []
    if n.has(6):  # query i of a row stands at its length - q_len + i
        length = g.op("Reshape", n.inputs[6], g.constant(INT64, [4], [batch, 1, 1, 1]))
        place = g.op("Add", length, g.constant(INT64, [q_len, 1], range(-q_len, 0)))
        out.append(g.op("Less", keys, length))
    else:
        place = g.constant(INT64, [q_len, 1], range(past, past + q_len))
    if causal:
        out.append(g.op("Less", keys, g.op("Add", place, g.constant(INT64, [], [causal]))))
    if window:
        out.append(g.op("Greater", keys, g.op("Sub", place, g.constant(INT64, [], [window]))))
    return out


@attention.decompose
def _(n, g):
    """The same with a mask as long as the keys, and without the scores, which are computed beside it: they exist nowhere else."""
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(n)
    past = n.inputs[4].shape[2] if n.has(4) else 0
    total, mask, inputs = kv_len + past, n.input(3), [*n.inputs]
    if mask is not None and mask.rank and not isinstance(total, Sym) and mask.shape[-1] < total:
        takes(n, (FLOAT, BOOL), 3)
        absent = g.constant(BOOL, [], [False]) if mask.dtype == BOOL else g.constant(FLOAT, [], [float("-inf")])
        mask = inputs[3] = g.op("Pad", mask, g.constant(INT64, [2], [0, total - mask.shape[-1]]), absent, g.constant(INT64, [1], [-1]))
    elif not n.wants(3):
        return None
    mode = n.attr("qk_matmul_output_mode", 0)
    if mode not in (0, 1, 2, 3):
        fail(n, f"its qk_matmul_output_mode is {mode}; 0 to 3 is wanted", "Export the model again.")
    attrs = {k: v for k, v in n.attrs.items() if k != "qk_matmul_output_mode"}
    count = 3 if past or n.wants(1) or n.wants(2) else 1
    outs = g.op("Attention", *inputs, outputs=count, **attrs)
    outs = outs if count > 1 else [outs]
    if not n.wants(3):
        return outs[:len(n.outputs)] + [None] * (len(n.outputs) - count)

    q, k = n.inputs[0], outs[1] if past else n.inputs[1]
    if q.rank == 3:
        q = g.op("Transpose", g.reshape(q, [batch, q_len, heads, dim]), perm=[0, 2, 1, 3])
    if k.rank == 3:
        k = g.op("Transpose", g.reshape(k, [batch, kv_len, kv, dim]), perm=[0, 2, 1, 3])
    scores = g.op("MatMul", g.reshape(q, [batch, kv, heads // kv * q_len, dim]), g.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.reshape(g.op("Mul", scores, g.constant(FLOAT, [], [_scale(n, dim)])), [batch, heads, q_len, total])
    softcap = n.attr("softcap", 0.0)
    if mode and softcap > 0:
        softcap = g.constant(FLOAT, [], [softcap])
        scores = g.op("Mul", g.op("Tanh", g.op("Div", scores, softcap)), softcap)
    if mode >= 2:
        zero, low = g.constant(FLOAT, [], [0.0]), g.constant(FLOAT, [], [float("-inf")])
        seen = _visible(n, g, past, total) + ([mask] if mask is not None and mask.dtype == BOOL else [])
        biases = ([mask] if mask is not None and mask.dtype == FLOAT else []) + [g.op("Where", x, zero, low) for x in seen]
        for bias in biases:
            scores = g.op("Add", scores, bias)
        if mode == 3:
            highest = g.op("ReduceMax", scores, g.constant(INT64, [1], [-1]), keepdims=1)
            scores = g.op("Where", g.op("Equal", highest, low), zero, g.op("Softmax", scores))  # a row that sees nothing is zeros
    return [*(outs + [None] * 3)[:3], scores]


def _scale(n, dim):
    scale = n.attr("scale")
    return dim ** -0.5 if scale is None else scale


@attention.lower
def _(n, b):
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(n)
    q, k, v = b.view(n.inputs[0]), b.stored(n.inputs[1]), b.stored(n.inputs[2])
    y = b.out(n.outputs[0])
    if len(q.shape) == 3:
        q, k, v, y = by_heads(b, q, heads), by_heads(b, k, kv), by_heads(b, v, kv), by_heads(b, y, heads)
    keys, past = append(b, n, k, 4, 1)
    values, _ = append(b, n, v, 5, 2)
    causal, window = _reach(n, keys.shape[2])
    lengths = b.cast(b.view(n.inputs[6]), INT32) if n.has(6) else None  # nonpad_kv_seqlen
    emit_attention(b, q, keys, values, y, _scale(n, dim), [b.view(n.inputs[3])] if n.has(3) else [], causal=causal, past=past, window=window, softcap=n.attr("softcap", 0.0), lengths=lengths, nan_to_zero=1)


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
        masks, wanted = ([n.inputs[3]], [g.wants(3)]) if n.has(3) else ([], [])
        causal, window = _reach(n, k.shape[2])
        if n.has(6) or window and not causal:
            more = _visible(n, g, past, k.shape[2])
            masks, wanted, causal, window = masks + more, wanted + [False] * len(more), 0, 0
        got = attention_gradients(g, q, k, v, split_heads(g, dy, heads) if flat else dy, masks, wanted, scale=_scale(n, dim), softcap=n.attr("softcap", 0.0), causal=causal, past=past, window=window)
    dq, (dk, dpast_k), (dv, dpast_v) = got[0], *(of_cache(g, d, more, past) for d, more in ((got[1], dpk), (got[2], dpv)))
    return [merge_heads(g, d) if flat and d is not None else d for d in (dq, dk, dv)] + [got[3] if n.has(3) else None, dpast_k, dpast_v]
