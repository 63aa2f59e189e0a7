"""onnxruntime's MultiHeadAttention."""
from __future__ import annotations

from .attention_kernel import shaped
from .dtypes import BOOL, FLOAT, INT32, INT64
from .op import MS, Op, fail, takes, unsupported

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
        shaped(n, 3, "bias", sum(parts))
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
