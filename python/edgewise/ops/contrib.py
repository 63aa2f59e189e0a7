"""What onnxruntime's optimizers write for encoders, CNNs and diffusion models, said in other ops: embeddings with their norm, attention with its projection, biases with what follows them.

(onnxruntime/docs/ContribOperators.md; as its CPU kernels compute.)
"""
from __future__ import annotations

from .dtypes import BOOL, FLOAT, INT32, INT64
from .op import MS, Op, fail, takes, unsupported


def _part(g, v, start, end, axis):
    return g.op("Slice", v, g.ints([start]), g.ints([end]), g.ints([axis]))


# ---- embeddings ----
embed = Op("EmbedLayerNormalization", MS, half=[2, 3, 4])


@embed.decompose
def _(n, g):
    ids, segments, words, positions, segment_words, gamma, beta, mask, position_ids = [*n.inputs, *[None] * 9][:9]
    if ids.rank != 2:
        fail(n, f"its input_ids are {ids}")
    batch, seq = ids.shape
    total = g.op("Gather", words, ids)
    if position_ids is not None:
        total = g.op("Add", total, g.op("Gather", positions, position_ids))
    else:
        if seq > positions.shape[0]:
            fail(n, f"{seq} tokens are more than the {positions.shape[0]} positions that it knows", "Feed fewer tokens.")
        total = g.op("Add", total, g.op("Gather", positions, g.op("Range", *(g.constant(INT64, [], [k]) for k in (0, seq, 1)))))
    if segment_words is not None:  # without segments all are the first
        total = g.op("Add", total, g.op("Gather", segment_words, segments if segments is not None else g.constant(INT64, [], [0])))
    out = [g.op("LayerNormalization", total, gamma, beta, epsilon=n.attr("epsilon", 1e-12))]
    if n.wants(1):  # how many tokens of each sequence are no padding
        counts = g.op("ReduceSum", g.op("Cast", g.op("Equal", mask, g.constant(mask.dtype, [], [1])), to=INT32), g.ints([1]), keepdims=0) if mask is not None else g.constant(INT32, [batch], [0] * batch)
        out.append(counts)
    elif len(n.outputs) > 1:
        out.append(None)
    return [*out, total][:len(n.outputs)]


@embed.cases
def _(t):
    ids, segments, positions = t.n("int32", 2, 5, low=0, high=19), t.n("int32", 2, 5, low=0, high=1), t.n("int32", 2, 5, low=0, high=8)
    tables = [t.const(t.f(20, 8)), t.const(t.f(9, 8)), t.const(t.f(2, 8)), t.const(t.f(8)), t.const(t.f(8))]
    mask = t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    yield t(ids, segments, *tables, mask, outputs=2, tol=1e-4)
    yield t(ids, None, *tables, mask, outputs=2, tol=1e-4)
    yield t(ids, segments, *tables, outputs=2, tol=1e-4, epsilon=1e-3)
    yield t(ids, None, *tables[:2], None, *tables[3:], mask, positions, outputs=2, tol=1e-4)
    yield t(ids, segments, *tables, mask, outputs=3, tol=1e-4)


# ---- attention ----
attention = Op("Attention", MS, half=[1])


def _attention_mask(n, g, mask, batch, q_len, total, low):
    """Numbers to add to scores, [batch, 1, 1 or q_len, total]: `low` where a key is not to be seen."""
    takes(n, (INT32,), 3)
    shape = list(mask.shape)
    if shape in ([batch], [2 * batch], [3 * batch + 2]):  # where the keys of each sequence end, and begin; of the third kind the rest is for packed batches
        at = g.op("Range", *(g.constant(INT32, [], [k]) for k in (0, total, 1)))
        ends = g.op("Reshape", _part(g, mask, 0, batch, 0), g.ints([batch, 1]))
        seen = g.op("Less", at, ends)
        if shape == [2 * batch] and batch:
            seen = g.op("And", seen, g.op("GreaterOrEqual", at, g.op("Reshape", _part(g, mask, batch, 2 * batch, 0), g.ints([batch, 1]))))
        shape = [batch, total]
    elif shape in ([batch, total], [batch, q_len, total]):
        seen = g.op("Cast", mask, to=BOOL)
    elif len(shape) == 4 and shape[:2] == [batch, 1] and shape[2] == shape[3] >= total:  # of all places: rows behind the past are those of the queries
        seen = g.op("Cast", _part(g, _part(g, mask, total - q_len, total, 2), 0, total, 3), to=BOOL)
        shape = [batch, q_len, total]
    else:
        unsupported(n, f"the mask {mask}", "Masks [batch], [2 * batch], [3 * batch + 2], [batch, keys], [batch, queries, keys] and [batch, 1, places, places] can be computed.")
    seen = g.reshape(seen, [batch, 1, *([1] if len(shape) == 2 else []), *shape[1:]])
    return g.op("Where", seen, g.constant(FLOAT, [], [0.0]), g.constant(FLOAT, [], [low]))


@attention.decompose
def _(n, g):
    x, w, bias, mask, past, added, past_length = [*n.inputs, *[None] * 7][:7]
    takes(n, (FLOAT,), 0, 2, 4, 5)
    heads, sizes = n.attr("num_heads", 0), list(n.attr("qkv_hidden_sizes") or [])
    if past_length is not None or n.attr("past_present_share_buffer", 0) or n.attr("do_rotary", 0):
        unsupported(n, "a past that shares its buffer, or rotary positions")
    if x.rank != 3 or w.rank != 2 or w.shape[0] != x.shape[2] or heads < 1:
        fail(n, f"{x}, {w} and {heads} heads do not fit")
    sizes = sizes or [w.shape[1] // 3] * 3
    if len(sizes) != 3 or sum(sizes) != w.shape[1] or sizes[0] != sizes[1] or any(s % heads for s in sizes) or bias is not None and list(bias.shape) != [w.shape[1]]:
        fail(n, f"{heads} heads of queries, keys and values of {sizes} columns do not fit {w} and {bias}")
    batch, seq, _ = x.shape
    qkv = g.op("MatMul", x, w)
    if bias is not None:
        qkv = g.op("Add", qkv, bias)
    at = [0, sizes[0], 2 * sizes[0], w.shape[1]]
    q, k, v = (_part(g, qkv, at[i], at[i + 1], 2) for i in range(3))
    first, kept = [None, None], 0
    if past is not None:
        if past.rank != 5 or past.shape[:3] != [2, batch, heads] or past.shape[4] != sizes[0] // heads or sizes[2] != sizes[0]:
            fail(n, f"its past {past} does not fit")
        kept = past.shape[3]
        first = [g.reshape(_part(g, past, i, i + 1, 0), [*past.shape[1:]]) for i in (0, 1)]
    total, low = seq + kept, n.attr("mask_filter_value", -10000.0)
    biases = [_attention_mask(n, g, mask, batch, seq, total, low)] if mask is not None else []
    biases += [added] if added is not None else []
    y, keys, values = g.op("Attention", q, k, v, g.op("Add", *biases) if len(biases) == 2 else biases[0] if biases else None, *first, outputs=3, q_num_heads=heads, kv_num_heads=heads, is_causal=int(bool(n.attr("unidirectional", 0))), **({"scale": n.attr("scale", 0.0)} if n.attr("scale", 0.0) else {}))
    if not n.wants(1):
        return [y]
    return [y, g.op("Concat", *(g.op("Unsqueeze", p, g.ints([0])) for p in (keys, values)), axis=0)]


@attention.cases
def _(t):
    def case(*more, x=(2, 5, 12), sizes=(16, 16, 16), outputs=1, **attrs):
        return t(t.f(*x), t.const(t.f(x[2], sum(sizes)) * 0.5), t.const(t.f(sum(sizes))), *more, num_heads=4, outputs=outputs, tol=1e-4, **attrs)
    yield case()
    yield case(x=(1, 1, 8))
    yield case(unidirectional=1)
    yield case(scale=0.2)
    yield case(sizes=(16, 16, 8), qkv_hidden_sizes=[16, 16, 8])
    yield case(t.of("int32", [3, 5]))
    yield case(t.of("int32", [4, 5, 1, 2]))
    yield case(t.of("int32", [3, 5, 0, 5, 10, 0, 5, 10]))
    yield case(t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))
    yield case(t.of("int32", [[1, 1, 0, 0, 1], [0, 1, 1, 1, 1]]), mask_filter_value=-50.0)
    yield case(t.n("int32", 2, 5, 5, low=0, high=1) | t.of("int32", [[[1, 0, 0, 0, 0]]]))
    yield case(None, None, t.f(2, 4, 5, 5))
    yield case(t.of("int32", [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), None, t.f(2, 4, 5, 5))
    yield case(None, t.f(2, 2, 4, 3, 4), outputs=2)
    yield case(t.of("int32", [[1, 1, 1, 0, 0, 1, 1, 1], [1] * 8]), t.f(2, 2, 4, 3, 4), outputs=2)
    yield case(None, t.f(2, 2, 4, 3, 4), outputs=2, unidirectional=1)


# ---- biases ----
bias_add = Op("BiasAdd", MS)  # x [batch, positions, channels] + bias + skip


@bias_add.decompose
def _(n, g):
    return [g.op("Add", g.op("Add", n.inputs[0], n.inputs[1]), n.inputs[2])]


@bias_add.cases
def _(t):
    x, bias, skip = t.f(2, 3, 8), t.f(8), t.f(2, 3, 8)
    yield t(x, bias, skip, expect=[x + bias + skip], why="onnxruntime has it on GPUs only")


bias_split_gelu = Op("BiasSplitGelu", MS)  # of x + bias, the first half times gelu of the second


@bias_split_gelu.decompose
def _(n, g):
    x = g.op("Add", n.inputs[0], n.inputs[1])
    half = x.shape[-1] // 2
    return [g.op("Mul", _part(g, x, 0, half, x.rank - 1), g.op("Gelu", _part(g, x, half, 2 * half, x.rank - 1)))]


@bias_split_gelu.cases
def _(t):
    x, bias = t.of("float32", [[[1.0, -2.0, 0.0, 1.0]]]), t.of("float32", [1.0, 0.5, 0.0, 1.0])
    yield t(x, bias, expect=[t.of("float32", [[[0.0, -2.9317497]]])], why="onnxruntime has it on GPUs only; gelu(2) = 1.9544997")


# ---- group norms with channels last ----
def _group_norm(n, g, x):
    axes = n.attr("channels_last", 1)
    rank = x.rank
    if axes:
        x = g.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])
    y = g.op("GroupNormalization", x, n.inputs[1], n.inputs[2], num_groups=n.attr("groups", 1), epsilon=n.attr("epsilon", 1e-5))
    if n.attr("activation", 0):
        y = g.op("Mul", y, g.op("Sigmoid", y))
    return g.op("Transpose", y, perm=[0, *range(2, rank), 1]) if axes else y


group_norm = Op("GroupNorm", MS)  # activation 1: SiLU


@group_norm.decompose
def _(n, g):
    return [_group_norm(n, g, n.inputs[0])]


def _normed(x, gamma, beta, groups, silu, epsilon=1e-5):
    v = x.reshape(*x.shape[:3], groups, -1).astype("float64")
    mean = v.mean((1, 2, 4), keepdims=True)
    y = ((v - mean) / (((v - mean) ** 2).mean((1, 2, 4), keepdims=True) + epsilon) ** 0.5).reshape(x.shape) * gamma + beta
    return (y / (1 + 2.718281828459045 ** -y) if silu else y).astype("float32")


@group_norm.cases
def _(t):
    for groups, silu in ((2, 0), (4, 1)):
        x, gamma, beta = t.f(2, 3, 5, 8), t.f(8), t.f(8)
        yield t(x, gamma, beta, groups=groups, activation=silu, epsilon=1e-5, tol=1e-4, expect=[_normed(x, gamma, beta, groups, silu)], why="onnxruntime has it on GPUs only")


skip_group_norm = Op("SkipGroupNorm", MS)  # of x + skip + bias, which is the second output


@skip_group_norm.decompose
def _(n, g):
    x, skip = n.inputs[0], n.inputs[3]
    if skip.rank == 2:
        skip = g.op("Reshape", skip, g.ints([skip.shape[0], 1, 1, skip.shape[1]]))
    total = g.op("Add", x, skip)
    if n.has(4):
        total = g.op("Add", total, n.inputs[4])
    return [_group_norm(n, g, total), total][:len(n.outputs)]


@skip_group_norm.cases
def _(t):
    x, gamma, beta, bias = t.f(2, 3, 5, 8), t.f(8), t.f(8), t.f(8)
    for skip in (t.f(2, 3, 5, 8), t.f(2, 8)):
        total = x + (skip if skip.ndim == 4 else skip[:, None, None]) + bias
        yield t(x, gamma, beta, skip, bias, groups=4, activation=1, epsilon=1e-5, outputs=2, tol=1e-4, expect=[_normed(total, gamma, beta, 4, 1), total], why="onnxruntime has it on GPUs only")


# ---- products with an activation ----
_ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "HardSigmoid", "Selu", "Softplus", "Softsign", "ThresholdedRelu")


def _activated(n, g, y, prefix):
    name, attrs = n.attr("activation", ""), {k[len(prefix):]: v for k, v in n.attrs.items() if k.startswith(prefix) and len(k) > len(prefix)}
    if name and name not in _ACTIVATIONS:
        unsupported(n, f"the activation {name!r}")
    return g.op(name, y, **{k: v for k, v in attrs.items() if k in ("alpha", "beta", "gamma")}) if name else y


fused_gemm = Op("FusedGemm", MS, half=[1])


@fused_gemm.decompose
def _(n, g):
    y = g.op("Gemm", *n.inputs, **{k: n.attrs[k] for k in ("alpha", "beta", "transA", "transB") if k in n.attrs})
    return [_activated(n, g, y, "activation_")]


@fused_gemm.cases
def _(t):
    for activation, attrs in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})):
        yield t(t.f(3, 40), t.f(50, 40), t.f(50), transB=1, alpha=0.5, activation=activation, tol=1e-4, **attrs)
