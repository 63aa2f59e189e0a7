"""Attention and rotary position embedding in their ONNX and com.microsoft forms, and the kernels under them."""
from __future__ import annotations

from .kernel import Kernel, read, write

Kernel("attention", {"batch": "i32", "heads": "i32", "kv_heads": "i32", "q_len": "i32", "kv_len": "i32", "head_dim": "i32", "v_dim": "i32",
                     "q_b": "i32", "q_h": "i32", "q_s": "i32", "k_b": "i32", "k_h": "i32", "k_s": "i32", "v_b": "i32", "v_h": "i32", "v_s": "i32", "y_b": "i32", "y_h": "i32", "y_s": "i32",
                     "mask_type": "i32", "m_b": "i32", "m_h": "i32", "m_q": "i32", "m_k": "i32",
                     "causal": "i32", "past": "i32", "window": "i32", "kv_type": "i32", "nan_to_zero": "i32", "scale": "f32", "softcap": "f32"},
       [read("q", 4, "(batch-1)*q_b + (heads-1)*q_h + (q_len-1)*q_s + head_dim"),
        read("k", "bytes_of(kv_type)", "(batch-1)*k_b + (kv_heads-1)*k_h + max(kv_len-1,0)*k_s + head_dim"),
        read("v", "bytes_of(kv_type)", "(batch-1)*v_b + (kv_heads-1)*v_h + max(kv_len-1,0)*v_s + v_dim"),
        read("mask", "4 if mask_type == 1 else 1", "(batch-1)*m_b + (heads-1)*m_h + (q_len-1)*m_q + max(kv_len-1,0)*m_k + 1", optional=True),
        read("lengths", 4, "batch", optional=True),
        write("y", 4, "(batch-1)*y_b + (heads-1)*y_h + (q_len-1)*y_s + v_dim"),
        write("scratch", 4, "8 * (kv_len + 64)", optional=True)],
       require=["kv_heads > 0", "heads % kv_heads == 0", "head_dim > 0", "v_dim > 0", "kv_type in (1, 10)", "mask_type in (1, 9)", "kv_len >= 0",
                "min(q_b, q_h, q_s) >= 0", "min(k_b, k_h, k_s) >= 0", "min(v_b, v_h, v_s) >= 0", "min(y_b, y_h, y_s) >= 0", "min(m_b, m_h, m_q, m_k) >= 0", "batch * heads * q_len <= 2147483647"],
       empty=["batch", "heads", "q_len"],
       doc="y = softmax(softcap(scale * q k^T) + mask) v, with kv head h*kv_heads/heads for query head h (grouped queries). Innermost dimension of q, k, v, y contiguous; all else by strides. "
           "mask_type 1: float32 added; 9: bool, true = attend. causal: query i attends to keys j <= i + past. window > 0: only j > i + past - window. lengths: int32 per batch, number of valid keys "
           "(then query i of batch b sits at position lengths[b] - q_len + i, and `past` is not used). softcap > 0: c*tanh(x/c). A row with nothing to attend to: NaN, or zeros with nan_to_zero. "
           "Blocked over queries with online softmax where q_len is large; k and v are read once per query block.")

Kernel("rope", {"batch": "i32", "heads": "i32", "seq": "i32", "head_dim": "i32", "rotary_dim": "i32", "interleaved": "i32", "x_b": "i32", "x_h": "i32", "x_s": "i32", "y_b": "i32", "y_h": "i32", "y_s": "i32",
                "c_b": "i32", "c_s": "i32", "c_rows": "i32", "position": "i32", "positions": "i32", "scale": "f32"},
       [read("x", 4, "(batch-1)*x_b + (heads-1)*x_h + (seq-1)*x_s + head_dim"),
        read("cos", 4, "(c_rows-1)*c_s + rotary_dim // 2 if positions >= 1 else (batch-1)*c_b + (seq-1)*c_s + rotary_dim // 2"),
        read("sin", 4, "(c_rows-1)*c_s + rotary_dim // 2 if positions >= 1 else (batch-1)*c_b + (seq-1)*c_s + rotary_dim // 2"),
        read("position_ids", 8, "batch * seq if positions == 2 else (batch if positions == 3 else 1)", optional=True),
        write("y", 4, "(batch-1)*y_b + (heads-1)*y_h + (seq-1)*y_s + head_dim", inplace=["x"])],
       require=["rotary_dim > 0", "rotary_dim % 2 == 0", "rotary_dim <= head_dim", "positions >= 0", "positions < 4", "c_rows > 0", "min(x_b, x_h, x_s) >= 0", "min(y_b, y_h, y_s) >= 0", "min(c_b, c_s) >= 0", "batch * seq <= 2147483647"],
       empty=["batch", "heads", "seq"],
       doc="Rotary embedding of the first rotary_dim elements of each head; the rest is copied. Row of the cos/sin tables for (b, s): positions 0: b*c_b + s*c_s directly; 1: row position + s; "
           "2: row position_ids[b, s] (int64); 3: row position_ids[b] + s. A row outside [0, c_rows) is EW_E_INDEX. interleaved: pairs (2i, 2i+1), else (i, i + rotary_dim/2).")

Kernel("softmax_and_grad", {"rows": "i32", "cols": "i32"},
       [read("x", 4, "rows*cols"), read("dy", 4, "rows*cols"), write("y", 4, "rows*cols", inplace=["x"]), write("dx", 4, "rows*cols", inplace=["dy"])], empty=["rows", "cols"],
       doc="y = softmax(x) over the last axis, and dx = y * (dy - sum(y * dy)). A row of all -inf gives zeros in both: what no query attends to has no gradient.")


# ---- ops ----------------------------------------------------------------------------------------------------------------------
from .dtypes import BOOL, FLOAT, INT32, INT64
from .matmul import emit_gemm
from .op import MS, Op, check_reach, fail, like, most, product, takes, unsupported
from .symbolic import Sym


def emit_attention(b, q, k, v, y, scale, masks=(), causal=0, past=0, window=0, softcap=0.0, lengths=None, nan_to_zero=0):
    """q, y [batch, heads, q_len, dim]; k, v [batch, kv_heads, kv_len, dim] views with any strides. masks: views that broadcast to [batch, heads, q_len, kv_len]."""
    q, k, v = (b.inner_contiguous(x) for x in (q, k, v))
    batch, heads, q_len, dim = q.shape
    kv_len = k.shape[2]
    mask, m = None, [0, 0, 0, 0]
    if masks:
        mask = masks[0]
        for other in masks[1:]:
            mask = b.add_masks(mask, other)
        mask = mask.broadcast([batch, heads, q_len, kv_len])
        if min(mask.strides) < 0:
            mask = b.contiguous(mask)
        m = mask.strides
    b.emit("attention", {"q": q, "k": k, "v": v, "mask": mask, "lengths": lengths, "y": y, "scratch": b.scratch(4 * 8 * (most(kv_len) + 64))},
           batch=batch, heads=heads, kv_heads=k.shape[1], q_len=q_len, kv_len=kv_len, head_dim=dim, v_dim=v.shape[3],
           q_b=q.strides[0], q_h=q.strides[1], q_s=q.strides[2], k_b=k.strides[0], k_h=k.strides[1], k_s=k.strides[2], v_b=v.strides[0], v_h=v.strides[1], v_s=v.strides[2],
           y_b=y.strides[0], y_h=y.strides[1], y_s=y.strides[2], mask_type=mask.dtype if mask is not None else FLOAT, m_b=m[0], m_h=m[1], m_q=m[2], m_k=m[3],
           causal=causal, past=past, window=window, kv_type=k.dtype, nan_to_zero=nan_to_zero, scale=scale, softcap=softcap)


# ---- gradients ----
BLOCK = 64           # queries at a time where the mask is causal: later keys are left out
SCORES = 1 << 21     # floats that the scores of a block of queries take at most, where 16 queries fit into that

# (q, k, v, dy, masks...): the gradients of q, k, v, which lie as [batch, seq, heads, dim], and of the sum of masks [batch, heads, q_len, kv_len], where y = softmax(softcap(scale * q k^T) + masks) v;
# q, dy [batch, heads, q_len, dim]; k, v [batch, kv_heads, kv_len, dim]. attrs: scale, softcap; causal, past, window as the kernel's. Scores are computed again, a block of queries at a time.
attention_grad = Op("AttentionGrad", "edgewise")


@attention_grad.infer
def _(n):
    q, k, v = n.inputs[:3]
    return [(FLOAT, [x.shape[0], x.shape[2], x.shape[1], x.shape[3]]) for x in (q, k, v)] + [(FLOAT, q.shape[:3] + [k.shape[2]])]


def _causal_mask(b, rows, cols, diagonal, window):
    """[rows, cols]: 0 where j <= i + diagonal (and, with a window, j > i + diagonal - window), -inf elsewhere; made once per session."""
    key = f"causal[{rows},{cols},{diagonal},{window}]"
    if key not in b.laid_out:
        was, b.init = b.init, True
        low = b.temp(FLOAT, [rows, cols])
        b.fill(low, float("-inf"))
        parts = []
        for k, upper in ((diagonal + 1, 1), (diagonal - window, 0))[:2 if window else 1]:
            parts.append(b.temp(FLOAT, [rows, cols]))
            b.emit("trilu", {"x": low, "y": parts[-1]}, size=4, batch=1, rows=rows, cols=cols, k=k, upper=upper, x_row=cols, y_row=cols, x_batch=0, y_batch=0)
        mask = parts[0]
        if window:
            mask = b.temp(FLOAT, [rows, cols])
            b.emit_binary("add", *parts, mask, FLOAT)
        mask.buffer.key = key
        b.init = was
        b.laid_out[key] = mask
    return b.laid_out[key]


@attention_grad.lower
def _(n, b):
    q, k, v, dy = (b.inner_contiguous(b.view(x)) for x in n.inputs[:4])
    scale, softcap, causal, past, window = n.attr("scale", 1.0), n.attr("softcap", 0.0), n.attr("causal", 0), n.attr("past", 0), n.attr("window", 0)
    dq, dk, dv = (b.out(o).transpose([0, 2, 1, 3]) if o is not None else None for o in n.outputs[:3])
    dmask = b.out(n.outputs[3]) if n.wants(3) else None
    batch, heads, q_len, _ = q.shape
    kv, kv_len = k.shape[1:3]
    shared = heads // kv
    masks = [b.view(x) for x in n.inputs[4:]]
    mask = masks[0] if masks else None
    for other in masks[1:]:
        mask = b.add_masks(mask, other)
    if mask is not None:
        mask = b.float_mask(mask)
        mask = mask._with([1] * (4 - len(mask.shape)) + mask.shape, [0] * (4 - len(mask.shape)) + mask.strides)
        if min(mask.strides) < 0:
            mask = b.contiguous(mask)
    size = min(q_len, max(16, SCORES // max(1, batch * kv * kv_len) // 16 * 16), BLOCK if causal else q_len)
    starts = list(range(0, q_len, size)) if kv_len and product(dy.shape) else []
    reach = [min(kv_len, past + at + size) if causal else kv_len for at in starts]
    for y, covered in ((dq, bool(starts)), (dk, kv_len in reach), (dv, kv_len in reach), (dmask, bool(starts) and not causal)):
        if y is not None and not covered:
            b.fill(y, 0.0)
    summed = {"k": kv_len in reach, "v": kv_len in reach}  # whether the next block is the first: it writes what later ones add to

    def of_group(x, i):
        """Each shared key head's i-th query head: [batch, kv_heads, seq, dim]."""
        return x._with([x.shape[0], kv, *x.shape[2:]], [x.strides[0], x.strides[1] * shared, *x.strides[2:]], x.offset + i * x.strides[1])

    def add_product(name, a, w, y, alpha):
        emit_gemm(b, a, w, y, residual=None if summed[name] else y, alpha=alpha)

    for at, cols in reversed(list(zip(starts, reach))):  # the last block reaches all keys
        rows = min(size, q_len - at)
        for i in range(shared):
            qi, di = of_group(q, i).slice(2, at, rows), of_group(dy, i).slice(2, at, rows)
            ki, vi = k.slice(2, 0, cols), v.slice(2, 0, cols)
            scores, dp = b.temp(FLOAT, [batch, kv, rows, cols]), b.temp(FLOAT, [batch, kv, rows, cols])
            bias = more = None
            if mask is not None:
                more = mask if mask.shape[1] == 1 else of_group(mask, i)
                more = more if more.shape[2] == 1 else more.slice(2, at, rows)
                more = more if more.shape[3] == 1 else more.slice(3, 0, cols)
            if causal:
                first = past + starts[-1]
                bias = _causal_mask(b, size, first + size, first, window).slice(0, 0, rows).slice(1, starts[-1] - at, cols)
            elif more is not None and more.shape[:2] == [1, 1]:
                bias, more = more.drop_leading(2), None
            capped = None
            if softcap:
                capped = b.temp(FLOAT, scores.shape)
                emit_gemm(b, qi, ki.transpose([0, 1, 3, 2]), capped, alpha=scale / softcap, activation="tanh")
                b.emit_binary("mul", capped, b.scalar(FLOAT, softcap), scores, FLOAT)
                if bias is not None:
                    b.emit_binary("add", scores, bias, scores, FLOAT)
            else:
                emit_gemm(b, qi, ki.transpose([0, 1, 3, 2]), scores, bias=bias, alpha=scale)
            if more is not None:
                b.emit_binary("add", scores, more, scores, FLOAT)
            emit_gemm(b, di, vi.transpose([0, 1, 3, 2]), dp)
            p, ds = b.temp(FLOAT, scores.shape), b.temp(FLOAT, scores.shape)
            b.emit("softmax_and_grad", {"x": scores, "dy": dp, "y": p, "dx": ds}, rows=batch * kv * rows, cols=cols)
            if dmask is not None:
                b.copy(ds, of_group(dmask, i).slice(2, at, rows).slice(3, 0, cols))
            if softcap:
                slope = b.temp(FLOAT, scores.shape)
                b.emit_binary("mul", capped, capped, slope, FLOAT)
                b.emit_binary("sub", b.scalar(FLOAT, 1.0), slope, slope, FLOAT)
                b.emit_binary("mul", ds, slope, ds, FLOAT)
            if dq is not None:
                emit_gemm(b, ds, ki, of_group(dq, i).slice(2, at, rows), alpha=scale)
            if dk is not None:
                add_product("k", ds.transpose([0, 1, 3, 2]), qi, dk.slice(2, 0, cols), scale)
                summed["k"] = False
            if dv is not None:
                add_product("v", p.transpose([0, 1, 3, 2]), di, dv.slice(2, 0, cols), 1.0)
                summed["v"] = False


def attention_gradients(g, q, k, v, dy, masks=(), wanted=(), **attrs):
    """Gradients of q, k, v as they are shaped ([batch, heads, seq, dim]), then of each mask, None where not `wanted` (a bool per mask)."""
    outs = g.op("AttentionGrad", q, k, v, dy, *masks, domain="edgewise", outputs=4, **attrs)
    return [g.transpose(d, [0, 2, 1, 3]) for d in outs[:3]] + [g.sum_to(outs[3], m.shape) if w else None for m, w in zip(masks, wanted)]


def _split_heads(g, x, heads):
    return g.transpose(g.reshape(x, [*x.shape[:2], heads, x.shape[2] // heads]), [0, 2, 1, 3])


def _merge(g, x):
    return g.reshape(g.transpose(x, [0, 2, 1, 3]), [x.shape[0], x.shape[2], x.shape[1] * x.shape[3]])


def _part(g, x, axis, start, length):
    return g.op("Slice", x, g.ints([start]), g.ints([start + length]), g.ints([axis])) if length != x.shape[axis] else x


# Made by passes/attention.py of the exporters' MatMul, Softmax, MatMul. Inputs: q, k, v, then masks. attrs: scale, softcap, nan_to_zero; causal and past as the kernel's.
fused = Op("Attention", "edgewise")


@fused.infer
def _(n):
    q, k, v = n.inputs[:3]
    if n.attr("merged", 0):  # [batch, q_len, heads * v_dim], as the next projection wants it
        return [(FLOAT, [q.shape[0], q.shape[2], q.shape[1] * v.shape[3]])]
    return [(FLOAT, q.shape[:3] + [v.shape[3]])]


@fused.lower
def _(n, b):
    q, k, v = (b.view(x) for x in n.inputs[:3])
    y = b.out(n.outputs[0])
    if n.attr("merged", 0):
        y = b.reshaped(y, [q.shape[0], q.shape[2], q.shape[1], v.shape[3]]).transpose([0, 2, 1, 3])
    emit_attention(b, q, k, v, y, n.attr("scale", 1.0), [b.view(x) for x in n.inputs[3:]], n.attr("causal", 0), n.attr("past", 0), softcap=n.attr("softcap", 0.0), nan_to_zero=n.attr("nan_to_zero", 0))


@fused.grad
def _(n, g, dy):
    q, k, v = n.inputs[:3]
    if n.attr("merged", 0):
        dy = _split_heads(g, dy, q.shape[1])
    return attention_gradients(g, q, k, v, dy, n.inputs[3:], [g.wants(i) for i in range(3, len(n.inputs))], scale=n.attr("scale", 1.0), softcap=n.attr("softcap", 0.0),
                               causal=n.attr("causal", 0), past=n.attr("past", 0))


def _heads(b, x, count):
    """[batch, seq, count * dim] seen as [batch, count, seq, dim]."""
    batch, seq, width = x.shape
    return b.reshaped(x, [batch, seq, count, width // count]).transpose([0, 2, 1, 3])


def _append(b, n, new, past_index, present_index):
    """The cache with `new` [batch, heads, seq, dim] behind its past, as a view; written in place where the past is a cache."""
    out = n.outputs[present_index] if n.wants(present_index) else None
    past = n.input(past_index)
    if past is not None and past.role == "cache":
        old = b.view(past)
        whole = old.extended(2, old.shape[2] + new.shape[2])
        b.copy(new, whole.slice(2, old.shape[2], new.shape[2]))
        if out is not None:
            b.alias(out, whole)
        return whole, old.shape[2]
    if past is None:
        if out is None:
            return new, 0
        whole = b.out(out)
        b.copy(new, whole)
        return whole, 0
    old = b.view(past)
    shape = old.shape[:2] + [old.shape[2] + new.shape[2], old.shape[3]]
    whole = b.out(out) if out is not None else b.temp(FLOAT, shape)
    b.copy(old, whole.slice(2, 0, old.shape[2]))
    b.copy(new, whole.slice(2, old.shape[2], new.shape[2]))
    return whole, old.shape[2]


def _shaped(n, i, name, *shape):
    """Fails unless input i, where it is there, has this shape; None fits any size."""
    v = n.input(i)
    if v is not None and (v.rank != len(shape) or any(want is not None and d != want for d, want in zip(v.shape, shape))):
        fail(n, f"its {name} is {v}, of shape [{', '.join('any' if d is None else str(d) for d in shape)}] it is wanted")


def _masking(n, i, name, *shape):
    """Fails unless input i, where it is there, is a mask (or bias) that broadcasts to this shape."""
    v = n.input(i)
    if v is not None and (v.dtype not in (FLOAT, BOOL) or v.rank > len(shape) or any(d != 1 and d != want for d, want in zip(v.shape, shape[len(shape) - v.rank:]))):
        fail(n, f"its {name} is {v}; of float32 or bool that broadcasts to {list(shape)} it is wanted")


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
    _shaped(n, 1, "K", *want[0])
    _shaped(n, 2, "V", *want[1])
    if n.has(4) != n.has(5):
        fail(n, "one of past_key and past_value is missing")
    _shaped(n, 4, "past_key", batch, kv, None, dim)
    past = n.inputs[4].shape[2] if n.has(4) else 0
    _shaped(n, 5, "past_value", batch, kv, past, v_dim)
    total = kv_len + past
    _masking(n, 3, "attn_mask", batch, heads, q_len, total)
    _shaped(n, 6, "nonpad_kv_seqlen", batch)
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
        q, k, v, y = _heads(b, q, heads), _heads(b, k, kv), _heads(b, v, kv), _heads(b, y, heads)
    keys, past = _append(b, n, k, 4, 1)
    values, _ = _append(b, n, v, 5, 2)
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
        q, k, v = _split_heads(g, q, heads), _split_heads(g, k, kv), _split_heads(g, v, kv)
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
        got = attention_gradients(g, q, k, v, _split_heads(g, dy, heads) if flat else dy, masks, wanted, scale=n.attr("scale") or dim ** -0.5, softcap=n.attr("softcap", 0.0), causal=causal, past=0 if n.has(6) else past)
    dq, (dk, dpast_k), (dv, dpast_v) = got[0], *(_of_cache(g, d, more, past) for d, more in ((got[1], dpk), (got[2], dpv)))
    return [_merge(g, d) if flat and d is not None else d for d in (dq, dk, dv)] + [got[3] if n.has(3) else None, dpast_k, dpast_v]


def _of_cache(g, d, more, past):
    """The gradient of keys or values, that of `present` added, as (of the new ones, of the past's)."""
    d = more if d is None else d if more is None else g.add(d, more)
    if d is None or not past:
        return d, None
    return _part(g, d, 2, past, d.shape[2] - past), _part(g, d, 2, 0, past)


def emit_rope(b, x, y, cos, sin, rotary_dim, positions=0, position_ids=None, position=0, interleaved=0):
    """x, y [batch, heads, seq, dim]; cos, sin: [rows, rotary_dim/2] tables, or [batch|1, seq, rotary_dim/2] with positions 0."""
    x = b.inner_contiguous(x)
    batch, heads, seq, dim = x.shape
    cos, sin = b.inner_contiguous(cos), b.inner_contiguous(sin)
    if positions == 0:
        cos, sin = (t.broadcast([batch, seq, rotary_dim // 2]) for t in (cos, sin))
        c_b, c_s, rows = cos.strides[0], cos.strides[1], 1
        if sin.strides[:2] != cos.strides[:2]:
            cos, sin = b.contiguous(cos), b.contiguous(sin)
            c_b, c_s = cos.strides[:2]
    else:
        c_b, c_s, rows = 0, cos.strides[0], cos.shape[0]
        if sin.strides[0] != c_s:
            cos, sin = b.contiguous(cos), b.contiguous(sin)
            c_s = cos.strides[0]
    b.emit("rope", {"x": x, "cos": cos, "sin": sin, "position_ids": position_ids, "y": y}, batch=batch, heads=heads, seq=seq, head_dim=dim, rotary_dim=rotary_dim, interleaved=interleaved,
           x_b=x.strides[0], x_h=x.strides[1], x_s=x.strides[2], y_b=y.strides[0], y_h=y.strides[1], y_s=y.strides[2], c_b=c_b, c_s=c_s, c_rows=rows, position=position, positions=positions, scale=1.0)


# Made by passes/rotary.py. Inputs: x [batch, heads, seq, dim], cos, sin [batch|1, seq, rotary_dim/2].
rope_direct = Op("Rope", "edgewise")


@rope_direct.infer
def _(n):
    return [like(n, 0)]


@rope_direct.lower
def _(n, b):
    cos, sin = b.view(n.inputs[1]), b.view(n.inputs[2])
    x = b.view(n.inputs[0])
    emit_rope(b, x, b.out(n.outputs[0]), cos, sin, 2 * cos.shape[-1], interleaved=n.attr("interleaved", 0))


@rope_direct.grad
def _(n, g, dy):
    x, cos, sin = n.inputs
    turn = n.attr("interleaved", 0)
    dx = g.op("Rope", dy, cos, g.neg(sin), domain="edgewise", interleaved=turn) if g.wants(0) else None  # turned back
    return [dx, *_table_gradients(g, x, dy, cos.shape, turn, g.wants(1) or g.wants(2))]


def _table_gradients(g, x, dy, shape, interleaved, wanted):
    """Gradients of cos and sin of a shape [batch|1, seq, half], where x [batch, heads, seq, dim] was turned by them."""
    if not wanted:
        return None, None
    half = shape[-1]

    def pair(v):
        v = _part(g, v, 3, 0, 2 * half)
        if interleaved:
            v = g.reshape(v, [*v.shape[:3], half, 2])
            return [g.reshape(_part(g, v, 4, i, 1), v.shape[:4]) for i in (0, 1)]
        return [_part(g, v, 3, i * half, half) for i in (0, 1)]
    (x0, x1), (d0, d1) = pair(x), pair(dy)
    along = g.add(g.mul(d0, x0), g.mul(d1, x1)), g.sub(g.mul(d1, x0), g.mul(d0, x1))
    return tuple(g.sum_to(g.op("ReduceSum", v, g.ints([1]), keepdims=0), shape) for v in along)


rotary = Op("RotaryEmbedding")  # opset 23


@rotary.cases
def _(t):
    for interleaved in (0, 1):
        new = {"opset": 23, "interleaved": interleaved}
        yield t(t.f(2, 3, 5, 8), t.f(20, 4), t.f(20, 4), t.n("int64", 2, 5, low=0, high=19), **new)
        yield t(t.f(2, 3, 5, 8), t.f(2, 5, 4), t.f(2, 5, 4), **new)
        yield t(t.f(2, 5, 24), t.f(20, 4), t.f(20, 4), t.n("int64", 2, 5, low=0, high=19), num_heads=3, **new)
        yield t(t.f(2, 5, 24), t.f(2, 5, 4), t.f(2, 5, 4), num_heads=3, **new)
        yield t(t.f(2, 3, 5, 10), t.f(20, 2), t.f(20, 2), t.n("int64", 2, 5, low=0, high=19), rotary_embedding_dim=4, **new)
        yield t(t.f(1, 4, 1, 64), t.f(7, 32), t.f(7, 32), t.of("int64", [[6]]), **new)


@rotary.infer
def _(n):
    takes(n, (FLOAT,), 0, 1, 2)
    x = n.inputs[0]
    if x.rank not in (3, 4) or (x.rank == 3 and not n.attr("num_heads")):
        fail(n, f"it wants [batch, heads, seq, dim], or three dimensions and num_heads, not {x}")
    heads = n.attr("num_heads", 0)
    batch, seq, dim = (x.shape[0], x.shape[2], x.shape[3]) if x.rank == 4 else (x.shape[0], x.shape[1], x.shape[2] // heads)
    if heads < 0 or x.rank == 3 and x.shape[2] % heads:
        fail(n, f"{heads} heads do not share {x} evenly")
    half = (n.attr("rotary_embedding_dim", 0) or dim) // 2
    for i, name in ((1, "cos_cache"), (2, "sin_cache")):
        _shaped(n, i, name, *((None, half) if n.has(3) else (batch, seq, half)))
    if n.has(3):
        _positions(n, 3, batch, seq)
    return [like(n, 0)]


def _positions(n, i, batch, seq):
    _shaped(n, i, "position_ids", batch, seq)
    if n.inputs[i].dtype != INT64:
        fail(n, f"its position_ids are {n.inputs[i]}; int64 is wanted")


def _lower_rotary(n, b, cos, sin, position_ids, positions):
    x, y = b.view(n.inputs[0]), b.out(n.outputs[0])
    heads = n.attr("num_heads", 0)
    if len(x.shape) == 3:
        if not heads:
            dim = n.attr("rotary_embedding_dim", 0) or 2 * cos.shape[-1]
            heads = x.shape[2] // dim
        x, y = _heads(b, x, heads), _heads(b, y, heads)
    rotary_dim = n.attr("rotary_embedding_dim", 0) or x.shape[3]
    emit_rope(b, x, y, cos, sin, rotary_dim, positions, position_ids, 0, n.attr("interleaved", 0))


@rotary.lower
def _(n, b):
    cos, sin = b.view(n.inputs[1]), b.view(n.inputs[2])
    ids = b.contiguous(b.view(n.inputs[3])) if n.has(3) else None
    _lower_rotary(n, b, cos, sin, ids, 2 if ids is not None else 0)


@rotary.grad
def _(n, g, dy):
    return _rotary_gradients(n, g, dy, 3, 1)


def _rotary_gradients(n, g, dy, ids, table):
    """Of x and, at inputs `table` and the next, of cos and sin; position ids are input `ids` where it is there."""
    x, cos, sin, half = n.inputs[0], n.inputs[table], n.inputs[table + 1], n.inputs[table].shape[-1]
    out = [None] * max(len(n.inputs), table + 2)
    again = list(n.inputs)
    again[0], again[table + 1] = dy, g.neg(sin)
    out[0] = g.op(n.op, *again, domain=n.domain, **n.attrs) if g.wants(0) else None
    if g.wants(table) or g.wants(table + 1):
        if x.rank == 3:
            heads = n.attr("num_heads", 0) or x.shape[2] // (n.attr("rotary_embedding_dim", 0) or 2 * half)
            x, dy = _split_heads(g, x, heads), _split_heads(g, dy, heads)
        batch, seq = x.shape[0], x.shape[2]
        got = _table_gradients(g, x, dy, [batch, seq, half] if n.has(ids) else cos.shape, n.attr("interleaved", 0), True)
        if n.has(ids):
            places = n.inputs[ids]
            if list(places.shape) != [batch, seq]:  # where each row begins
                places = g.add(g.reshape(places, [product(places.shape), 1]), g.constant(INT64, [batch, seq], [i for _ in range(batch) for i in range(seq)]))
            got = [g.op("GatherGrad", d, places, domain="edgewise", rows=cos.shape[0]) for d in got]
        out[table:table + 2] = got
    return out


rotary_ms = Op("RotaryEmbedding", MS)


@rotary_ms.cases
def _(t):
    for interleaved in (0, 1):
        for x in (t.f(2, 5, 24), t.f(2, 3, 5, 8)):
            heads = {"num_heads": 3} if x.ndim == 3 else {}
            yield t(x, t.n("int64", 2, 5, low=0, high=19), t.f(20, 4), t.f(20, 4), interleaved=interleaved, **heads)
            yield t(x, t.of("int64", [4]), t.f(20, 4), t.f(20, 4), interleaved=interleaved, **heads)
        yield t(t.f(2, 5, 24), t.n("int64", 2, 5, low=0, high=19), t.f(20, 4), t.f(20, 4), interleaved=interleaved)
        yield t(t.f(2, 5, 30), t.n("int64", 2, 5, low=0, high=19), t.f(20, 2), t.f(20, 2), interleaved=interleaved, num_heads=3, rotary_embedding_dim=4)
    yield t(t.f(1, 1, 64), t.of("int64", [[3]]), t.f(20, 16), t.f(20, 16))
    yield t(t.f(1, 2, 16, dtype="float16"), t.of("int64", [[3, 4]]), t.f(20, 4, dtype="float16"), t.f(20, 4, dtype="float16"))


@rotary_ms.infer
def _(n):
    x, ids, cos, sin = n.inputs[:4]
    heads, rotary = n.attr("num_heads", 0), n.attr("rotary_embedding_dim", 0) or 2 * cos.shape[-1]
    if x.rank not in (3, 4) or x.dtype != FLOAT or cos.rank != 2 or list(sin.shape) != list(cos.shape) or 2 * cos.shape[1] != rotary or ids.dtype != INT64:
        fail(n, f"its inputs {x}, {ids}, {cos}, {sin} do not fit together")
    seq = x.shape[2] if x.rank == 4 else x.shape[1]
    if product(ids.shape) != 1:
        _positions(n, 1, x.shape[0], seq)
    if x.rank == 3:
        heads = heads or x.shape[2] // rotary
        if heads < 1 or x.shape[2] % heads or x.shape[2] // heads < rotary:
            fail(n, f"{heads} heads of at least {rotary} do not share {x} evenly")
    return [like(n, 0)]


@rotary_ms.lower
def _(n, b):
    ids = b.contiguous(b.view(n.inputs[1]))
    positions = 3 if product(ids.shape) == 1 else 2
    if positions == 3 and b.view(n.inputs[0]).shape[0] != 1:
        ids = b.contiguous(ids.broadcast([b.view(n.inputs[0]).shape[0]]))
    _lower_rotary(n, b, b.view(n.inputs[2]), b.view(n.inputs[3]), ids, positions)


@rotary_ms.grad
def _(n, g, dy):
    return _rotary_gradients(n, g, dy, 1, 2)


# inputs: query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value
mha = Op("MultiHeadAttention", MS)


@mha.cases
def _(t):
    def case(q, k, v, *more, outputs=1, **attrs):
        return t(q, k, v, *more, num_heads=4, outputs=outputs, tol=1e-4, **attrs)
    q, k, v = t.f(2, 5, 32), t.f(2, 7, 32), t.f(2, 7, 24)
    yield case(q, k, v)
    yield case(q, k, v, t.const(t.f(88)), scale=0.3)
    yield case(q, k, v, None, None, t.f(2, 4, 5, 7))
    yield case(q, k, v, None, None, t.f(1, 1, 5, 7))
    yield case(q, k, v, t.f(88), t.of("int32", [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]]))
    yield case(q, k, v, None, t.of("int32", [4, 7]), mask_filter_value=-50.0)
    yield case(q, t.f(2, 4, 7, 8), t.f(2, 4, 7, 8))
    k, v = t.f(2, 5, 32), t.f(2, 5, 32)
    yield case(q, k, v, unidirectional=1)
    yield case(q, k, v, outputs=3)
    yield case(q, k, v, None, None, None, t.f(2, 4, 3, 8), t.f(2, 4, 3, 8), outputs=3)
    yield case(q[:, :1].copy(), k[:, :1].copy(), v[:, :1].copy(), t.f(96), t.of("int32", [[1, 1, 0, 1], [0, 1, 1, 1]]), t.f(1, 4, 1, 4), t.f(2, 4, 3, 8), t.f(2, 4, 3, 8), outputs=3)
    yield case(q, k, v, None, None, None, t.f(2, 4, 3, 8), t.f(2, 4, 3, 8), outputs=3, unidirectional=1)


@mha.decompose
def _(n, b):
    """Attention, once packed queries, keys and values are apart and have their bias, and padding is a number to add."""
    heads, (q, k, v, bias, padding, added, past_k, past_v) = n.attr("num_heads", 0), [*n.inputs, *[None] * 8][:8]
    takes(n, (FLOAT,), 0, 1, 2, 3, 5, 6, 7)
    if len(n.outputs) > 3:
        unsupported(n, "its qk output")

    def part(x, axis, start, length):
        return b.op("Slice", x, *(b.constant(INT64, [1], [i]) for i in (start, start + length, axis)))

    def reshaped(x, *shape):
        return b.op("Reshape", x, b.constant(INT64, [len(shape)], shape), allowzero=1)
    if q.rank == 5:  # [batch, seq, heads, 3, dim]
        q, k, v = (reshaped(part(q, 3, i, 1), *q.shape[:2], q.shape[2] * q.shape[4]) for i in range(3))
    elif k is not None and k.rank == 5:  # [batch, seq, heads, 2, dim]
        k, v = (reshaped(part(k, 3, i, 1), *k.shape[:2], k.shape[2] * k.shape[4]) for i in range(2))
    if heads < 1 or k is None or v is None or q.rank != 3 or k.rank != v.rank or k.rank not in (3, 4) or (past_k is None) != (past_v is None) or q.shape[2] % heads:
        fail(n, f"its inputs {q}, {k}, {v} do not fit together")
    if bias is not None:
        parts = [q.shape[2]] * 2 + [v.shape[2] if v.rank == 3 else heads * v.shape[3]]
        _shaped(n, 3, "bias", sum(parts))
        at = [0, parts[0], 2 * parts[0]]
        q = b.op("Add", q, part(bias, 0, 0, parts[0]))
        if k.rank == 3:
            k, v = (b.op("Add", x, part(bias, 0, at[i], parts[i])) for x, i in ((k, 1), (v, 2)))
    batch, total = q.shape[0], k.shape[-2] + (past_k.shape[2] if past_k is not None else 0)
    if padding is not None:
        if padding.dtype != INT32:
            fail(n, f"its key_padding_mask is {padding}; int32 is wanted")
        if padding.rank == 1 and list(padding.shape) == [batch]:  # how many keys there are
            seen = b.op("Less", b.constant(INT32, [1, 1, 1, total], range(total)), reshaped(padding, batch, 1, 1, 1))
        elif list(padding.shape) in ([batch, total], [batch, q.shape[1], total]):
            seen = b.op("Cast", reshaped(padding, batch, 1, 1 if padding.rank == 2 else q.shape[1], total), to=BOOL)
        else:
            unsupported(n, f"a key_padding_mask of shape {padding.shape}")
        low = b.op("Where", seen, b.constant(FLOAT, [], [0.0]), b.constant(FLOAT, [], [n.attr("mask_filter_value", -10000.0)]))
        added = low if added is None else b.op("Add", low, added)
    more = {"outputs": len(n.outputs), "is_causal": n.attr("unidirectional", 0)}
    if n.attr("scale", 0.0):
        more["scale"] = n.attr("scale", 0.0)
    inputs = [added, past_k, past_v]
    while inputs and inputs[-1] is None:
        inputs.pop()
    if k.rank == 3:
        outs = b.op("Attention", q, k, v, *inputs, q_num_heads=heads, kv_num_heads=heads, **more)
        return outs if isinstance(outs, list) else [outs]
    q = b.op("Transpose", reshaped(q, *q.shape[:2], heads, q.shape[2] // heads), perm=[0, 2, 1, 3])
    outs = b.op("Attention", q, k, v, *inputs, **more)
    outs = outs if isinstance(outs, list) else [outs]
    y = b.op("Transpose", outs[0], perm=[0, 2, 1, 3])
    return [reshaped(y, *y.shape[:2], y.shape[2] * y.shape[3]), *outs[1:]]


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
# inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids, attention_bias, head_sink


def _gqa_dims(n):
    heads, kv = n.attr("num_heads"), n.attr("kv_num_heads")
    q = n.inputs[0]
    shared = heads if n.has(1) else heads + 2 * kv
    if heads < 1 or kv < 1 or heads % kv or q.rank != 3 or q.dtype != FLOAT or q.shape[2] % shared:
        fail(n, f"its query {q} is not shared evenly by {heads} query heads and {kv} key heads")
    return heads, kv, q.shape[2] // shared


@gqa.infer
def _(n):
    takes(n, (FLOAT,), 0, 1, 2, 3, 4, 7, 8, 10)
    heads, kv, dim = _gqa_dims(n)
    q = n.inputs[0]
    if any(v is not None and v.dtype != FLOAT for v in n.inputs[:5]):
        fail(n, "its queries, keys and values are not all floats")
    if n.has(1) != n.has(2) or n.has(3) != n.has(4):
        fail(n, "of key and value, or of past_key and past_value, one is missing")
    _shaped(n, 1, "key", q.shape[0], q.shape[1], kv * dim)
    _shaped(n, 2, "value", q.shape[0], q.shape[1], kv * dim)
    _shaped(n, 3, "past_key", q.shape[0], kv, None, dim)
    _shaped(n, 4, "past_value", q.shape[0], kv, n.inputs[3].shape[2] if n.has(3) else None, dim)
    if not n.has(5) or n.inputs[5].dtype != INT32 or product(n.inputs[5].shape) != q.shape[0]:
        fail(n, f"its seqlens_k is {n.input(5)}; one int32 for each of {q.shape[0]} rows is wanted")
    if n.attr("do_rotary", 0):
        if not n.has(7) or not n.has(8):
            fail(n, "it rotates, and has no cos_cache or sin_cache")
        half = n.inputs[7].shape[-1]
        _shaped(n, 7, "cos_cache", None, None)
        _shaped(n, 8, "sin_cache", *n.inputs[7].shape)
        if half < 1 or 2 * half > dim:
            fail(n, f"its cos_cache {n.inputs[7]} is too wide for heads of {dim}")
        if n.has(9):
            _positions(n, 9, q.shape[0], q.shape[1])
    for name in ("smooth_softmax", "qk_output", "k_quant_type", "v_quant_type"):
        if n.attr(name, 0) not in (0, -1, "NONE"):
            unsupported(n, f"{name} = {n.attr(name)}")
    if n.has(11):
        unsupported(n, "an attention sink (head_sink)")
    _, total = _starts(n)
    _masking(n, 10, "attention_bias", q.shape[0], heads, q.shape[1], total)
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
        q, k, v = _heads(b, x, heads), _heads(b, b.view(n.inputs[1]), kv), _heads(b, b.view(n.inputs[2]), kv)
    else:
        q, k, v = (_heads(b, x.slice(2, at * dim, count * dim), count) for at, count in ((0, heads), (heads, kv), (heads + kv, kv)))
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
        keys, values = _append(b, n, k, 3, 1)[0], _append(b, n, v, 4, 2)[0]
    else:
        keys, values = (_append_each(b, n, new, i, j, starts, total) for new, i, j in ((k, 3, 1), (v, 4, 2)))
    y = _heads(b, b.out(n.outputs[0]), heads)
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
                       causal=1, past=start, window=window, softcap=n.attr("softcap", 0.0))


@gqa.grad
def _(n, g, dy, dpk=None, dpv=None):
    heads, kv, dim = _gqa_dims(n)
    batch, q_len = n.inputs[0].shape[:2]
    starts, total = _starts(n)
    past = n.inputs[3].shape[2] if n.has(3) else 0
    if starts != [past] * batch or total != past + q_len:
        unsupported(n, "the gradient of rows that begin at different places", "Train without a past.")
    if n.has(1):
        q, k, v = (_split_heads(g, x, count) for x, count in zip(n.inputs, (heads, kv, kv)))
    else:
        q, k, v = (_split_heads(g, _part(g, n.inputs[0], 2, at * dim, count * dim), count) for at, count in ((0, heads), (heads, kv), (heads + kv, kv)))
    plain_q, plain_k, tables = q, k, None
    if n.attr("do_rotary", 0):
        half, turn = n.inputs[7].shape[1], n.attr("rotary_interleaved", 0)
        tables = [g.op("Gather", t, n.inputs[9], axis=0) if n.has(9) else g.reshape(_part(g, t, 0, past, q_len), [1, q_len, half]) for t in n.inputs[7:9]]
        q, k = (g.op("Rope", x, *tables, domain="edgewise", interleaved=turn) for x in (q, k))
    if past:
        k, v = g.op("Concat", n.inputs[3], k, axis=2), g.op("Concat", n.inputs[4], v, axis=2)
    out = [None] * max(len(n.inputs), 11)
    got = [None] * 4
    if dy is not None:
        got = attention_gradients(g, q, k, v, _split_heads(g, dy, heads), [n.inputs[10]] if n.has(10) else [], [g.wants(10)], scale=n.attr("scale", 0.0) or dim ** -0.5, softcap=n.attr("softcap", 0.0),
                                  causal=1, past=past, window=max(n.attr("local_window_size", -1), 0))
    dq, (dk, out[3]), (dv, out[4]) = got[0], *(_of_cache(g, d, more, past) for d, more in ((got[1], dpk), (got[2], dpv)))
    out[10] = got[3] if n.has(10) else None
    if tables:
        if g.wants(7) or g.wants(8):
            for i, table in ((7, 0), (8, 1)):
                parts = [_table_gradients(g, x, d, tables[0].shape, turn, True)[table] for x, d in ((plain_q, dq), (plain_k, dk)) if d is not None]
                total = g.add(*parts) if len(parts) == 2 else parts[0]
                out[i] = g.op("GatherGrad", total, n.inputs[9] if n.has(9) else g.constant(INT64, [1, q_len], range(past, past + q_len)), domain="edgewise", rows=n.inputs[7].shape[0])
        back = tables[0], g.neg(tables[1])
        dq, dk = (g.op("Rope", d, *back, domain="edgewise", interleaved=turn) if d is not None else None for d in (dq, dk))
    flat = [_merge(g, d) if d is not None else g.zeros([batch, q_len, count * dim]) for d, count in ((dq, heads), (dk, kv), (dv, kv))]
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
