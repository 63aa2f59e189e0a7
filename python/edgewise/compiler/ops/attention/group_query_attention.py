"""onnxruntime's GroupQueryAttention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64, pack
from ...declare.op import MS, Op, check_reach, fail, takes, unsupported
from ...declare.symbolic import Sym
from .attention_grad import attention_gradients, merge_heads, of_cache, part, split_heads
from .attention_kernel import append, by_heads, emit_attention, masking, shaped
from .group_query_cache import cached_attention, is_quantized, is_shared
from .rotary import check_positions, emit_rope, table_gradients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Dim,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
        View,
    )

# Inputs: query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache,
# sin_cache, position_ids, attention_bias, head_sink, k_scale, v_scale, q_norm_weight,
# k_norm_weight. Without key and value, query holds all three.
gqa = Op("GroupQueryAttention", MS)


def _gqa_dims(node: BoundNode) -> tuple[int, int, int]:
    """(query heads, key heads, elements of a head)."""
    heads, kv = node.attr("num_heads"), node.attr("kv_num_heads")
    q = node.inputs[0]
    shared = heads if node.has(1) else heads + 2 * kv
    if heads < 1 or kv < 1 or heads % kv or q.rank != 3 or q.dtype != FLOAT or q.shape[2] % shared:
        fail(node, f"its query {q} does not divide into {heads} query heads and {kv} key heads")
    return heads, kv, q.shape[2] // shared


@gqa.decompose
def gqa_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Computes the norms of queries and keys in front of it, where weights for them are inputs, and
    attention to a cache that is an input of the model (group_query_cache.py).
    """
    if node.has(14) or node.has(15):
        return _normed(node, graph)
    if not _reads_cache(node):
        return None
    takes(node, (FLOAT,), 0, 1, 2)
    if node.has(1) != node.has(2) or node.has(3) != node.has(4):
        fail(node, "one of key and value, or one of past_key and past_value, is missing")
    heads, kv, dim = _gqa_dims(node)
    _check_options(node, heads, dim)
    batch, tokens = node.inputs[0].shape[:2]
    shared = is_shared(node)
    for i in (1, 2):
        shaped(node, i, "key" if i == 1 else "value", batch, 0 if shared else tokens, kv * dim)
    parts: list[Value | None] = [*node.inputs[:3]]
    if not node.has(1):
        parts = [
            part(graph, node.inputs[0], 2, at * dim, count * dim)
            for at, count in _packed(heads, kv)
        ]
    elif shared:
        parts[1:] = [None, None]
    return cached_attention(node, graph, parts, heads, kv)


def _reads_cache(node: BoundNode) -> bool:
    """Whether its past is computed with by operators of their own: one that has rows, which is not
    a cache of the engine, and whose lengths only a run can tell; or a form that needs it.
    """
    past = node.input(3)
    # A cache of the engine holds all positions: `local_window_size` alone says which are seen.
    windowed = node.attr("sliding_window_cache", 0) and (past is None or past.role != "cache")
    if is_shared(node) or is_quantized(node) or windowed or node.wants(3):
        return True
    if past is None:
        return False
    known = all(not node.has(i) or node.inputs[i].numbers is not None for i in (5, 6))
    return past.role != "cache" and past.rank == 4 and past.shape[2] != 0 and not known


def _normed(node: BoundNode, graph: Binder) -> Decomposed:
    """The node after the norms of its queries and keys."""
    takes(node, (FLOAT,), 0, 1, 2, 14, 15)
    heads, kv, dim = _gqa_dims(node)
    if not node.has(14) or not node.has(15):
        fail(node, "one of q_norm_weight and k_norm_weight is missing")
    shaped(node, 14, "q_norm_weight", dim)
    shaped(node, 15, "k_norm_weight", dim)
    inputs = node.inputs[:14]
    if not node.has(1):
        inputs[:3] = (
            part(graph, node.inputs[0], 2, at * dim, count * dim)
            for at, count in _packed(heads, kv)
        )
    for i, count in ((0, heads), (1, kv)):
        x = inputs[i]
        y = graph.op(
            "SimplifiedLayerNormalization",
            graph.reshape(x, [*x.shape[:2], count, dim]),
            node.inputs[14 + i],
            epsilon=node.attr("qk_norm_epsilon", 1e-6),
        )
        inputs[i] = graph.reshape(y, [*x.shape])
    while inputs[-1] is None:
        inputs.pop()
    outs = graph.op(
        "GroupQueryAttention", *inputs, domain=MS, outputs=len(node.outputs), **node.attrs
    )
    return outs if len(node.outputs) > 1 else [outs]


@gqa.infer
def gqa_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1, 2, 3, 4, 7, 8, 10)
    heads, kv, dim = _gqa_dims(node)
    q = node.inputs[0]
    if any(v is not None and v.dtype != FLOAT for v in node.inputs[:5]):
        fail(node, "its queries, keys and values are not all floats")
    if node.has(1) != node.has(2) or node.has(3) != node.has(4):
        fail(node, "one of key and value, or one of past_key and past_value, is missing")
    shaped(node, 1, "key", q.shape[0], q.shape[1], kv * dim)
    shaped(node, 2, "value", q.shape[0], q.shape[1], kv * dim)
    shaped(node, 3, "past_key", q.shape[0], kv, None, dim)
    shaped(
        node, 4, "past_value", q.shape[0], kv, node.inputs[3].shape[2] if node.has(3) else None, dim
    )
    _check_options(node, heads, dim)
    takes(node, (FLOAT,), 11)
    shaped(node, 11, "head_sink", heads)
    _, total = _starts(node)
    masking(node, 10, "attention_bias", q.shape[0], heads, q.shape[1], total)
    return [
        (FLOAT, [q.shape[0], q.shape[1], heads * dim]),
        (FLOAT, [q.shape[0], kv, total, dim]),
        (FLOAT, [q.shape[0], kv, total, dim]),
    ][: len(node.outputs)]


def _check_options(node: BoundNode, heads: int, dim: Dim) -> None:
    """Raises ModelError or UnsupportedOp for lengths, tables or attributes that do not fit."""
    q = node.inputs[0]
    if (
        not node.has(5)
        or node.inputs[5].dtype != INT32
        or list(node.inputs[5].shape) not in ([q.shape[0]], [q.shape[0], 1])
    ):
        fail(
            node,
            f"its seqlens_k is {node.input(5)}; one int32 for each of {q.shape[0]} rows is"
            " expected",
        )
    if node.attr("do_rotary", 0):
        if not node.has(7) or not node.has(8):
            fail(node, "do_rotary is 1, but cos_cache or sin_cache is missing")
        half = node.inputs[7].shape[-1]
        shaped(node, 7, "cos_cache", None, None)
        shaped(node, 8, "sin_cache", *node.inputs[7].shape)
        if half < 1 or 2 * half > dim:
            fail(node, f"its cos_cache {node.inputs[7]} is too wide for heads of {dim}")
        if node.has(9):
            check_positions(node, 9, q.shape[0], q.shape[1])
    if not node.attr("causal", 1) and node.attr("local_window_size", -1) > 0:
        fail(node, "it has a local window and is not causal", "Export the model again.")


def _starts(node: BoundNode) -> tuple[list[Dim], Dim]:
    """(length of the past for each row of the batch, length of `present`).

    Where the past is not a cache of the session, seqlens_k gives the lengths: rows that were padded
    on the right continue at their own ends, and a past may be a buffer with room after it.
    """
    batch, q_len = node.inputs[0].shape[:2]
    past = node.inputs[3].shape[2] if node.has(3) else 0
    if isinstance(past, Sym) or past == 0 or node.inputs[3].role == "cache":
        return [past] * batch, past + q_len
    total = node.need(6)[0] if node.has(6) else None
    # a prompt begins at 0, whatever its padding
    starts = [0] * batch if total == q_len else [s + 1 - q_len for s in node.need(5)]
    if any(isinstance(s, Sym) for s in starts):
        return [past] * batch, past + q_len
    if not all(0 <= s <= past for s in starts):
        fail(
            node,
            f"its seqlens_k {node.need(5)} do not fit {q_len} new positions behind a past of"
            f" {past}",
        )
    return starts, max(past, total or 0, max(starts) + q_len)


def _packed(heads: int, kv: int) -> list[tuple[int, int]]:
    """(first head, number of heads) of queries, keys and values in a packed query."""
    return [(0, heads), (heads, kv), (heads + kv, kv)]


@gqa.lower
def gqa_lower(node: BoundNode, builder: Builder) -> None:
    heads, kv, dim = _gqa_dims(node)
    x = builder.view(node.inputs[0])
    if node.has(1):
        q, k, v = (
            by_heads(builder, x, heads),
            by_heads(builder, builder.view(node.inputs[1]), kv),
            by_heads(builder, builder.view(node.inputs[2]), kv),
        )
    else:
        q, k, v = (
            by_heads(builder, x.slice(2, at * dim, count * dim), count)
            for at, count in _packed(heads, kv)
        )
    batch, q_len = x.shape[0], q.shape[2]
    starts, total = _starts(node)
    past = node.inputs[3].shape[2] if node.has(3) else 0
    together = starts == [past] * batch  # always, where the past is a cache of the session
    # (first row of the batch, number of rows, length of their past) of each call of a kernel
    calls = [(0, batch, past)] if together else [(i, 1, s) for i, s in enumerate(starts)]
    if node.attr("do_rotary", 0):
        q, k = _lower_rotation(node, builder, q, k, calls)
    if together:
        # A cache of a sliding window has fewer rows before the new ones than there are positions.
        (keys, held), (values, _) = append(builder, node, k, 3, 1), append(builder, node, v, 4, 2)
        calls = [(0, batch, held)]
    else:
        keys, values = (
            _append_each(builder, node, new, i, j, starts, total)
            for new, i, j in ((k, 3, 1), (v, 4, 2))
        )
    y = by_heads(builder, builder.out(node.outputs[0]), heads)
    sink = _sink(node, builder, heads)
    mask = builder.view(node.inputs[10]) if node.has(10) else None
    while mask is not None and len(mask.shape) < 4:
        mask = mask.unsqueeze(0)
    for at, count, start in calls:
        length = keys.shape[2] if together else start + q_len
        masks = []
        if mask is not None:
            m = mask if together or mask.shape[0] == 1 else mask.slice(0, at, 1)
            masks = [m if together or m.shape[3] in (1, length) else m.slice(3, 0, length)]
        emit_attention(
            builder,
            q.slice(0, at, count),
            keys.slice(0, at, count).slice(2, 0, length),
            values.slice(0, at, count).slice(2, 0, length),
            y.slice(0, at, count),
            node.attr("scale", 0.0) or dim**-0.5,
            masks,
            causal=int(node.attr("causal", 1) != 0),
            past=start,
            window=max(node.attr("local_window_size", -1), 0),
            softcap=node.attr("softcap", 0.0),
            sink=sink,
        )


def _lower_rotation(
    node: BoundNode, builder: Builder, q: View, k: View, calls: Sequence[tuple[int, int, Dim]]
) -> tuple[View, View]:
    """Queries and keys after their rotary embedding.

    Args:
        calls: (first row, number of rows, position of their first token).
    """
    cos, sin = builder.view(node.inputs[7]), builder.view(node.inputs[8])
    ids = builder.contiguous(builder.view(node.inputs[9])) if node.has(9) else None
    batch, _, q_len, dim = q.shape
    rotated_q, rotated_k = (
        builder.temp(FLOAT, [batch, q_len, x.shape[1], dim]).transpose([0, 2, 1, 3]) for x in (q, k)
    )
    for at, count, start in calls if ids is None else [(0, batch, 0)]:
        if ids is None:
            check_reach(node, start + (q_len - 1), cos.shape[0])
        for source, target in ((q, rotated_q), (k, rotated_k)):
            emit_rope(
                builder,
                source.slice(0, at, count),
                target.slice(0, at, count),
                cos,
                sin,
                2 * cos.shape[1],
                1 if ids is None else 2,
                ids,
                start,
                node.attr("rotary_interleaved", 0),
            )
    return rotated_q, rotated_k


def _append_each(
    builder: Builder,
    node: BoundNode,
    new: View,
    past_index: int,
    present_index: int,
    starts: Sequence[Dim],
    total: Dim,
) -> View:
    """Appends new keys or values to the past of each row of the batch, with zeros after them.

    Args:
        starts: The length of the past of each row.
        total: The length of the result.
    """
    out = node.outputs[present_index] if node.wants(present_index) else None
    old = builder.view(node.inputs[past_index])
    whole = (
        builder.out(out)
        if out is not None
        else builder.temp(FLOAT, old.shape[:2] + [total, old.shape[3]])
    )
    builder.fill(whole, 0.0)
    for i, start in enumerate(starts):
        builder.copy(old.slice(0, i, 1).slice(2, 0, start), whole.slice(0, i, 1).slice(2, 0, start))
        builder.copy(new.slice(0, i, 1), whole.slice(0, i, 1).slice(2, start, new.shape[2]))
    return whole


def _sink(node: BoundNode, builder: Builder, heads: int) -> View | None:
    """The score of each head that takes a share of the softmax without a value; smooth_softmax is a
    score of 0.
    """
    if node.has(11):
        return builder.contiguous(builder.view(node.inputs[11]))
    if node.attr("smooth_softmax", 0) > 0:
        return builder.const_bytes(pack(FLOAT, [0.0] * heads), FLOAT, [heads])
    return None


@gqa.grad
def gqa_grad(
    node: BoundNode,
    gradients: Gradients,
    dy: Value | None,
    dpk: Value | None = None,
    dpv: Value | None = None,
) -> InputGradients:
    heads, kv, dim = _gqa_dims(node)
    batch, q_len = node.inputs[0].shape[:2]
    past = node.inputs[3].shape[2] if node.has(3) else 0
    _check_gradient(node, past)
    plain_q, plain_k, v = _heads(node, gradients)
    rotary = bool(node.attr("do_rotary", 0))
    q, k = plain_q, plain_k
    if rotary:
        tables = _rotary_tables(node, gradients, past)
        q, k = (_rotated(node, gradients, x, *tables) for x in (q, k))
    if past:
        k, v = (
            gradients.op("Concat", node.inputs[3], k, axis=2),
            gradients.op("Concat", node.inputs[4], v, axis=2),
        )
    out: list[Value | None] = [None] * max(len(node.inputs), 12)
    got: list[Value | None] = [None] * 5
    if dy is not None:
        got = attention_gradients(
            gradients,
            q,
            k,
            v,
            split_heads(gradients, dy, heads),
            [node.inputs[10]] if node.has(10) else [],
            [gradients.wants(10)],
            _sink_scores(node, gradients),
            scale=node.attr("scale", 0.0) or dim**-0.5,
            softcap=node.attr("softcap", 0.0),
            causal=int(node.attr("causal", 1) != 0),
            past=past,
            window=max(node.attr("local_window_size", -1), 0),
        )
    dq = got[0]
    dk, out[3] = of_cache(gradients, got[1], dpk, past)
    dv, out[4] = of_cache(gradients, got[2], dpv, past)
    out[10] = got[3] if node.has(10) else None
    out[11] = got[-1] if node.has(11) else None
    if rotary:
        if gradients.wants(7) or gradients.wants(8):
            rotated = [(x, d) for x, d in ((plain_q, dq), (plain_k, dk)) if d is not None]
            out[7], out[8] = _table_gradients(node, gradients, rotated, tables[0].shape, past)
        back = tables[0], gradients.neg(tables[1])  # a rotation by the negative angle
        dq, dk = (_rotated(node, gradients, d, *back) if d is not None else None for d in (dq, dk))
    flat = [
        merge_heads(gradients, d) if d is not None else gradients.zeros([batch, q_len, count * dim])
        for d, count in ((dq, heads), (dk, kv), (dv, kv))
    ]
    if node.has(1):
        out[:3] = flat
    else:
        out[0] = gradients.op("Concat", *flat, axis=2)
    return out


def _sink_scores(node: BoundNode, gradients: Gradients) -> Value | None:
    """As _sink, as a value."""
    if node.has(11) or node.attr("smooth_softmax", 0) <= 0:
        return node.input(11)
    return gradients.zeros([node.attr("num_heads")])


def _heads(node: BoundNode, gradients: Gradients) -> list[Value]:
    """Queries, keys and values, [batch, heads, q_len, dim]."""
    heads, kv, dim = _gqa_dims(node)
    if node.has(1):
        return [split_heads(gradients, x, count) for x, count in zip(node.inputs, (heads, kv, kv))]
    return [
        split_heads(gradients, part(gradients, node.inputs[0], 2, at * dim, count * dim), count)
        for at, count in _packed(heads, kv)
    ]


def _check_gradient(node: BoundNode, past: int) -> None:
    """Raises UnsupportedOp for the forms that have no gradient."""
    batch, q_len = node.inputs[0].shape[:2]
    starts, total = _starts(node)
    if starts != [past] * batch or total != past + q_len:
        unsupported(
            node, "the gradient of rows with pasts of different lengths", "Train without a past."
        )


def _rotary_tables(node: BoundNode, gradients: Gradients, past: int) -> list[Value]:
    """Cosines and sines of each token, [batch or 1, q_len, half]."""
    q_len, half = node.inputs[0].shape[1], node.inputs[7].shape[1]
    return [
        (
            gradients.op("Gather", t, node.inputs[9], axis=0)
            if node.has(9)
            else gradients.reshape(part(gradients, t, 0, past, q_len), [1, q_len, half])
        )
        for t in node.inputs[7:9]
    ]


def _rotated(node: BoundNode, gradients: Gradients, x: Value, cos: Value, sin: Value) -> Value:
    return gradients.op(
        "Rope", x, cos, sin, domain="edgewise", interleaved=node.attr("rotary_interleaved", 0)
    )


def _table_gradients(
    node: BoundNode,
    gradients: Gradients,
    rotated: Sequence[tuple[Value, Value]],
    shape: Shape,
    past: int,
) -> list[Value]:
    """Gradients of cos_cache and sin_cache.

    Args:
        rotated: (x, its gradient) of queries and keys, whichever have one.
        shape: The shape of the tables of `_rotary_tables`.
    """
    q_len, interleaved = node.inputs[0].shape[1], node.attr("rotary_interleaved", 0)
    out = []
    for table in (0, 1):
        parts = [
            table_gradients(gradients, x, d, shape, interleaved, True)[table] for x, d in rotated
        ]
        out.append(
            gradients.op(
                "GatherGrad",
                gradients.add(*parts) if len(parts) == 2 else parts[0],
                (
                    node.inputs[9]
                    if node.has(9)
                    else gradients.constant(INT64, [1, q_len], range(past, past + q_len))
                ),
                domain="edgewise",
                rows=node.inputs[7].shape[0],
            )
        )
    return out
