"""ONNX's Attention (opset 23 to 25).

Scores and their softmax are computed in float32 whatever softmax_precision is, since no element
type of Q, K and V is more precise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import Op, fail, most, takes, unsupported
from ...declare.symbolic import Sym
from .attention_grad import attention_gradients, merge_heads, of_cache, split_heads
from .attention_kernel import append, by_heads, emit_attention, masking, shaped

if TYPE_CHECKING:
    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Dim,
        Gradients,
        Graph,
        Inferred,
        InputGradients,
        Value,
    )

attention = Op("Attention")  # opset 23


def _attention_dims(node: BoundNode) -> tuple[Dim, int, int, Dim, Dim, int, int]:
    """(batch, heads, kv_heads, q_len, kv_len, dim, v_dim), from q, k and v of 3 or 4 dimensions."""
    q, k, v = node.inputs[:3]
    if any(x.dtype != FLOAT or x.rank != q.rank for x in (q, k, v)):
        fail(node, f"queries {q}, keys {k} and values {v} are incompatible")
    if q.rank == 4:
        return q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    heads, kv = node.attr("q_num_heads"), node.attr("kv_num_heads")
    if (
        q.rank != 3
        or not heads
        or not kv
        or q.shape[2] % heads
        or k.shape[2] % kv
        or v.shape[2] % kv
    ):
        fail(node, f"{q}, {k}, {v} with {heads} and {kv} heads")
    return q.shape[0], heads, kv, q.shape[1], k.shape[1], q.shape[2] // heads, v.shape[2] // kv


@attention.infer
def attention_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1, 2, 4, 5)
    takes(node, (FLOAT, BOOL), 3)
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(node)
    if kv < 1 or heads % kv:
        fail(node, f"{heads} query heads do not share {kv} key heads evenly")
    q, k, v = node.inputs[:3]
    expected = (
        ([batch, kv, kv_len, dim], [batch, kv, kv_len, v_dim])
        if q.rank == 4
        else ([batch, kv_len, kv * dim], [batch, kv_len, kv * v_dim])
    )
    shaped(node, 1, "K", *expected[0])
    shaped(node, 2, "V", *expected[1])
    if node.has(4) != node.has(5):
        fail(node, "one of past_key and past_value is missing")
    shaped(node, 4, "past_key", batch, kv, None, dim)
    past = node.inputs[4].shape[2] if node.has(4) else 0
    shaped(node, 5, "past_value", batch, kv, past, v_dim)
    total = kv_len + past
    masking(node, 3, "attn_mask", batch, heads, q_len, total)
    shaped(node, 6, "nonpad_kv_seqlen", batch)
    if node.has(6) and (node.has(4) or node.inputs[6].dtype != INT64):
        fail(node, f"its nonpad_kv_seqlen is {node.inputs[6]}; int64 without past_key is expected")
    if node.attr("softmax_precision", 1) not in (1, 10, 11, 16):
        fail(
            node,
            f"its softmax_precision is {node.attr('softmax_precision', 1)}, which is not a"
            " floating-point element type",
        )
    _reach(node, total)
    out = (
        [batch, heads, q_len, v_dim] if node.inputs[0].rank == 4 else [batch, q_len, heads * v_dim]
    )
    return [(FLOAT, out), (FLOAT, [batch, kv, total, dim]), (FLOAT, [batch, kv, total, v_dim])][
        : len(node.outputs)
    ]


def _reach(node: BoundNode, total: Dim) -> tuple[int, int]:
    """(causal, window) as the kernel takes them: how far each query sees to the right and to the
    left; 0: without a limit.
    """
    left, right = (node.attr(name, -1) for name in ("left_window_size", "right_window_size"))
    if min(left, right) < -1:
        fail(
            node,
            f"left_window_size is {left} and right_window_size is {right}; -1 (no limit) or more is"
            " expected",
            "Export the model again.",
        )
    causal = 1 if node.attr("is_causal", 0) else 0 if right < 0 else min(right, most(total)) + 1
    return causal, min(left, most(total)) + 1


def _visible(node: BoundNode, graph: Graph, past: int, total: Dim) -> list[Value]:
    """Bool masks of the keys that each query may see by its position; all of them must be true.

    Their shapes are [total], [q_len, total] or [batch, 1, 1 or q_len, total].
    """
    batch, _, _, q_len, *_ = _attention_dims(node)
    causal, window = _reach(node, total)
    if isinstance(total, Sym):
        unsupported(
            node, "positions that depend on the length of a run", "Feed a past of a fixed length."
        )
    keys, out = graph.constant(INT64, [total], range(total)), []
    if node.has(6):  # query i of a row is at position length - q_len + i
        length = graph.op("Reshape", node.inputs[6], graph.constant(INT64, [4], [batch, 1, 1, 1]))
        place = graph.op("Add", length, graph.constant(INT64, [q_len, 1], range(-q_len, 0)))
        out.append(graph.op("Less", keys, length))
    else:
        place = graph.constant(INT64, [q_len, 1], range(past, past + q_len))
    if causal:
        out.append(
            graph.op("Less", keys, graph.op("Add", place, graph.constant(INT64, [], [causal])))
        )
    if window:
        out.append(
            graph.op("Greater", keys, graph.op("Sub", place, graph.constant(INT64, [], [window])))
        )
    return out


@attention.decompose
def attention_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    """Extends a mask that is shorter than the keys, and computes the scores if they are an output.

    The kernel does not store scores: they are computed a second time.
    """
    kv_len = _attention_dims(node)[4]
    past = node.inputs[4].shape[2] if node.has(4) else 0
    mask = _extended_mask(node, graph, kv_len + past)
    if mask is node.input(3) and not node.wants(3):
        return None
    mode = node.attr("qk_matmul_output_mode", 0)
    if mode not in (0, 1, 2, 3):
        fail(
            node,
            f"its qk_matmul_output_mode is {mode}; 0 to 3 is expected",
            "Export the model again.",
        )
    inputs = [*node.inputs]
    if mask is not None:
        inputs[3] = mask
    attrs = {k: v for k, v in node.attrs.items() if k != "qk_matmul_output_mode"}
    count = 3 if past or node.wants(1) or node.wants(2) else 1
    outs = graph.op("Attention", *inputs, outputs=count, **attrs)
    outs = outs if count > 1 else [outs]
    if not node.wants(3):
        return outs[: len(node.outputs)] + [None] * (len(node.outputs) - count)
    scores = _scores(node, graph, outs[1] if past else node.inputs[1], mask, mode, past)
    return [*(outs + [None] * 3)[:3], scores]


def _extended_mask(node: BoundNode, graph: Binder, total: Dim) -> Value | None:
    """The mask with as many columns as there are keys: missing ones are not attended to."""
    mask = node.input(3)
    if mask is None or not mask.rank or isinstance(total, Sym) or mask.shape[-1] >= total:
        return mask
    takes(node, (FLOAT, BOOL), 3)
    absent = (
        graph.constant(BOOL, [], [False])
        if mask.dtype == BOOL
        else graph.constant(FLOAT, [], [float("-inf")])
    )
    return graph.op(
        "Pad",
        mask,
        graph.constant(INT64, [2], [0, total - mask.shape[-1]]),
        absent,
        graph.constant(INT64, [1], [-1]),
    )


def _scores(
    node: BoundNode, graph: Binder, k: Value, mask: Value | None, mode: int, past: int
) -> Value:
    """The output qk_matmul_output, [batch, heads, q_len, total].

    Args:
        k: All keys, in three or four dimensions.
        mode: 0: scale * q k^T; 1: after softcap; 2: with masks added; 3: after softmax.
    """
    batch, heads, kv, q_len, kv_len, dim, _ = _attention_dims(node)
    total, q = kv_len + past, node.inputs[0]
    if q.rank == 3:
        q = graph.op("Transpose", graph.reshape(q, [batch, q_len, heads, dim]), perm=[0, 2, 1, 3])
    if k.rank == 3:
        k = graph.op("Transpose", graph.reshape(k, [batch, kv_len, kv, dim]), perm=[0, 2, 1, 3])
    scores = graph.op(
        "MatMul",
        graph.reshape(q, [batch, kv, heads // kv * q_len, dim]),
        graph.op("Transpose", k, perm=[0, 1, 3, 2]),
    )
    scores = graph.reshape(
        graph.op("Mul", scores, graph.constant(FLOAT, [], [_scale(node, dim)])),
        [batch, heads, q_len, total],
    )
    softcap = node.attr("softcap", 0.0)
    if mode and softcap > 0:
        softcap = graph.constant(FLOAT, [], [softcap])
        scores = graph.op("Mul", graph.op("Tanh", graph.op("Div", scores, softcap)), softcap)
    if mode < 2:
        return scores
    zero, low = graph.constant(FLOAT, [], [0.0]), graph.constant(FLOAT, [], [float("-inf")])
    seen = _visible(node, graph, past, total)
    if mask is not None and mask.dtype == BOOL:
        seen.append(mask)
    biases = [graph.op("Where", x, zero, low) for x in seen]
    if mask is not None and mask.dtype == FLOAT:
        biases.insert(0, mask)
    for bias in biases:
        scores = graph.op("Add", scores, bias)
    if mode == 2:
        return scores
    highest = graph.op("ReduceMax", scores, graph.constant(INT64, [1], [-1]), keepdims=1)
    # a row without any key to attend to is zeros
    return graph.op("Where", graph.op("Equal", highest, low), zero, graph.op("Softmax", scores))


def _scale(node: BoundNode, dim: int) -> float:
    scale = node.attr("scale")
    return dim**-0.5 if scale is None else scale


@attention.lower
def attention_lower(node: BoundNode, builder: Builder) -> None:
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(node)
    q, k, v = (
        builder.view(node.inputs[0]),
        builder.stored(node.inputs[1], rows=len(node.inputs[1].shape) == 4),
        builder.stored(node.inputs[2], rows=len(node.inputs[2].shape) == 4),
    )
    y = builder.out(node.outputs[0])
    if len(q.shape) == 3:
        q, k, v, y = (
            by_heads(builder, q, heads),
            by_heads(builder, k, kv),
            by_heads(builder, v, kv),
            by_heads(builder, y, heads),
        )
    keys, past = append(builder, node, k, 4, 1)
    values, _ = append(builder, node, v, 5, 2)
    causal, window = _reach(node, keys.shape[2])
    # nonpad_kv_seqlen
    lengths = builder.cast(builder.view(node.inputs[6]), INT32) if node.has(6) else None
    emit_attention(
        builder,
        q,
        keys,
        values,
        y,
        _scale(node, dim),
        [builder.view(node.inputs[3])] if node.has(3) else [],
        causal=causal,
        past=past,
        window=window,
        softcap=node.attr("softcap", 0.0),
        lengths=lengths,
        nan_to_zero=1,
    )


@attention.grad
def attention_grad(
    node: BoundNode,
    gradients: Gradients,
    dy: Value | None,
    dpk: Value | None = None,
    dpv: Value | None = None,
) -> InputGradients:
    batch, heads, kv, q_len, kv_len, dim, v_dim = _attention_dims(node)
    flat = node.inputs[0].rank == 3
    q, k, v = node.inputs[:3]
    if flat:
        q, k, v = (
            split_heads(gradients, q, heads),
            split_heads(gradients, k, kv),
            split_heads(gradients, v, kv),
        )
    past = node.inputs[4].shape[2] if node.has(4) else 0
    if past:
        k, v = (
            gradients.op("Concat", node.inputs[4], k, axis=2),
            gradients.op("Concat", node.inputs[5], v, axis=2),
        )
    got: list[Value | None] = [None] * (3 + node.has(3))
    if dy is not None:
        masks, wanted = ([node.inputs[3]], [gradients.wants(3)]) if node.has(3) else ([], [])
        causal, window = _reach(node, k.shape[2])
        if node.has(6) or window and not causal:
            more = _visible(node, gradients, past, k.shape[2])
            masks, wanted, causal, window = masks + more, wanted + [False] * len(more), 0, 0
        got = attention_gradients(
            gradients,
            q,
            k,
            v,
            split_heads(gradients, dy, heads) if flat else dy,
            masks,
            wanted,
            scale=_scale(node, dim),
            softcap=node.attr("softcap", 0.0),
            causal=causal,
            past=past,
            window=window,
        )
    dq, (dk, dpast_k), (dv, dpast_v) = (
        got[0],
        *(of_cache(gradients, d, more, past) for d, more in ((got[1], dpk), (got[2], dpv))),
    )
    return [merge_heads(gradients, d) if flat and d is not None else d for d in (dq, dk, dv)] + [
        got[3] if node.has(3) else None,
        dpast_k,
        dpast_v,
    ]
