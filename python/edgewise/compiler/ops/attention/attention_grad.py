"""The gradient of attention, and the rearrangements that gradients of attention operators share.

The scores are computed again, a block of queries at a time, so that the memory they take does not
grow with the square of the length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64, pack
from ...declare.op import Op, product
from ..product.gemm_kernel import emit_gemm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import (
        BoundNode,
        Builder,
        Dim,
        Gradients,
        Graph,
        Inferred,
        Value,
        View,
    )

# Inputs: q, k, v, dy, sink, masks. The forward pass is y = softmax(softcap(scale * q k^T) + masks)
# v with q and dy [batch, heads, q_len, dim], k and v [batch, kv_heads, kv_len, dim]. The sink
# [heads] is a score that takes a share of the softmax without a value; it may be absent.
# Outputs: the gradients of q, k and v as [batch, seq, heads, dim], that of the sum of masks as
# [batch, heads, q_len, kv_len], and that of the sink for each query, [batch, heads, q_len].
# Attributes: scale, softcap; causal, past and window as the kernel "attention" takes them.
attention_grad = Op("AttentionGrad", "edgewise")


@attention_grad.infer
def attention_grad_infer(node: BoundNode) -> Inferred:
    q, k, v = node.inputs[:3]
    return [(FLOAT, [x.shape[0], x.shape[2], x.shape[1], x.shape[3]]) for x in (q, k, v)] + [
        (FLOAT, q.shape[:3] + [k.shape[2]]),
        (FLOAT, q.shape[:3]),
    ]


@dataclass(frozen=True)
class _Backward:
    """An AttentionGrad node that is being lowered: its operands and attributes.

    Attributes:
        sink: [1, heads, 1, 1], or None.
        dq, dk, dv, dmask, dsink: The gradients to write, [batch, heads or kv_heads, ...] views;
            None where nothing reads one.
        shared: Query heads for each key head.
    """

    builder: Builder
    q: View
    k: View
    v: View
    dy: View
    sink: View | None
    mask: View | None
    dq: View | None
    dk: View | None
    dv: View | None
    dmask: View | None
    dsink: View | None
    shared: int
    scale: float
    softcap: float
    causal: int
    past: int
    window: int

    def of_group(self, x: View, i: int) -> View:
        """The i-th query head of each key head: [batch, kv_heads, seq, dim]."""
        return x._with(
            [x.shape[0], self.k.shape[1], *x.shape[2:]],
            [x.strides[0], x.strides[1] * self.shared, *x.strides[2:]],
            x.offset + i * x.strides[1],
        )

    def mask_of(self, i: int, at: int, rows: int, cols: int) -> View | None:
        """The mask of a block of queries and keys, or None."""
        if self.mask is None:
            return None
        m = self.mask if self.mask.shape[1] == 1 else self.of_group(self.mask, i)
        m = m if m.shape[2] == 1 else m.slice(2, at, rows)
        return m if m.shape[3] == 1 else m.slice(3, 0, cols)


@attention_grad.lower
def attention_grad_lower(node: BoundNode, builder: Builder) -> None:
    q, k, v, dy = (builder.inner_contiguous(builder.view(x)) for x in node.inputs[:4])
    dq, dk, dv = (
        builder.out(o).transpose([0, 2, 1, 3]) if o is not None else None for o in node.outputs[:3]
    )
    backward = _Backward(
        builder,
        q,
        k,
        v,
        dy,
        dq=dq,
        dk=dk,
        dv=dv,
        dmask=builder.out(node.outputs[3]) if node.wants(3) else None,
        dsink=builder.out(node.outputs[4]) if node.wants(4) else None,
        sink=_as_scores(builder.view(node.inputs[4])) if node.has(4) else None,
        mask=_sum_of_masks(builder, [builder.view(x) for x in node.inputs[5:]]),
        shared=q.shape[1] // k.shape[1],
        scale=node.attr("scale", 1.0),
        softcap=node.attr("softcap", 0.0),
        causal=node.attr("causal", 0),
        past=node.attr("past", 0),
        window=node.attr("window", 0),
    )
    blocks = _blocks(backward)
    covered = any(cols == k.shape[2] for _, _, cols in blocks)
    for y, written in (
        (dq, bool(blocks)),
        (dk, covered),
        (dv, covered),
        (backward.dmask, bool(blocks) and not backward.causal),
        (backward.dsink, bool(blocks)),
    ):
        if y is not None and not written:
            builder.fill(y, 0.0)
    # The last block comes first. Where it reaches all keys, it writes their gradients, and all
    # others add to them.
    accumulate = not covered
    for at, rows, cols in reversed(blocks):
        for i in range(backward.shared):
            _emit_block(backward, i, at, rows, cols, accumulate)
            accumulate = True


def _as_scores(sink: View) -> View:
    """A sink [heads] as [1, heads, 1, 1]."""
    return sink._with([1, *sink.shape, 1, 1], [0, *sink.strides, 0, 0])


def _sum_of_masks(builder: Builder, masks: Sequence[View]) -> View | None:
    """All masks as one of four dimensions that is added to the scores; None without masks."""
    if not masks:
        return None
    mask = masks[0]
    for other in masks[1:]:
        mask = builder.add_masks(mask, other)
    mask = builder.float_mask(mask)
    missing = 4 - len(mask.shape)
    mask = mask._with([1] * missing + mask.shape, [0] * missing + mask.strides)
    return builder.contiguous(mask) if min(mask.strides) < 0 else mask


def _blocks(backward: _Backward) -> list[tuple[int, int, int]]:
    """(first query, number of queries, number of keys that they see) of each block."""
    causal = backward.causal
    q_len, (batch, kv, kv_len, _) = backward.q.shape[2], backward.k.shape
    if not kv_len or not product(backward.dy.shape):
        return []
    rules = backward.builder.target.lowering
    size = min(
        q_len,
        max(16, rules.attention_grad_scores // max(1, batch * kv * kv_len) // 16 * 16),
        # Causal: keys that no query of a block sees are left out, so blocks are small.
        max(16, min(rules.attention_grad_rows, q_len // 4 // 16 * 16)) if causal else q_len,
    )
    return [
        (
            at,
            min(size, q_len - at),
            min(kv_len, backward.past + at + size + causal - 1) if causal else kv_len,
        )
        for at in range(0, q_len, size)
    ]


def _emit_block(
    backward: _Backward, i: int, at: int, rows: int, cols: int, accumulate: bool
) -> None:
    """Computes the gradients of a block for the i-th query head of each key head.

    Args:
        at, rows: The first query of the block and the number of its queries.
        cols: The number of keys, counted from the first one.
        accumulate: Whether the gradients of keys and values are added to what is there.
    """
    builder = backward.builder
    q, dy = (backward.of_group(x, i).slice(2, at, rows) for x in (backward.q, backward.dy))
    k, v = backward.k.slice(2, 0, cols), backward.v.slice(2, 0, cols)
    mask = backward.mask_of(i, at, rows, cols)
    sink = int(backward.sink is not None)  # columns in front of the scores
    wide = [*q.shape[:3], sink + cols]
    x, p, ds, dp = (builder.temp(FLOAT, wide) for _ in range(4))
    capped = _emit_scores(backward, q, k, mask, x.slice(3, sink, cols))
    emit_gemm(builder, dy, v.transpose([0, 1, 3, 2]), dp.slice(3, sink, cols))
    if backward.sink is not None:
        _emit_sink(backward, i, at, x, dp)
    scale, softcap, causal = backward.scale, backward.softcap, backward.causal
    # The gradients of mask and sink are those of the scores without `scale`: `rest` is then
    # applied later.
    slope, rest = (1.0, scale) if backward.dmask is not None or sink else (scale, 1.0)
    builder.emit(
        "softmax_and_grad",
        {"x": x, "dy": dp, "y": p, "dx": ds},
        rows=product(wide[:3]),
        cols=sink + cols,
        period=rows,
        first=sink + backward.past + at + causal if causal else sink + cols,
        span=causal + backward.window - 1 if causal and backward.window and not sink else 0,
        scale=1.0 if mask is not None or sink else softcap or scale,
        slope=slope,
    )
    if backward.dsink is not None:
        d = backward.of_group(backward.dsink, i).slice(2, at, rows)
        builder.copy(ds.slice(3, 0, 1), d.unsqueeze(3))
    p, ds = (x.slice(3, sink, cols) for x in (p, ds))
    if backward.dmask is not None:
        builder.copy(ds, backward.of_group(backward.dmask, i).slice(2, at, rows).slice(3, 0, cols))
    if capped is not None:
        _emit_softcap_gradient(builder, capped, ds)
    if backward.dq is not None:
        emit_gemm(builder, ds, k, backward.of_group(backward.dq, i).slice(2, at, rows), alpha=rest)
    for gradient, a, w, alpha in ((backward.dk, ds, q, rest), (backward.dv, p, dy, 1.0)):
        if gradient is not None:
            y = gradient.slice(2, 0, cols)
            emit_gemm(
                builder,
                a.transpose([0, 1, 3, 2]),
                w,
                y,
                residual=y if accumulate else None,
                alpha=alpha,
            )


def _emit_sink(backward: _Backward, i: int, at: int, x: View, dp: View) -> None:
    """Writes the sink in front of the scores of a block, and hides keys in front of the window:
    softmax cannot, since they are not at the beginning of a row.

    Args:
        i, at: As of _emit_block.
        x: The scores, [batch, kv_heads, rows, 1 + cols].
        dp: The gradient of their softmax.
    """
    builder, rows, cols = backward.builder, x.shape[2], x.shape[3] - 1
    assert backward.sink is not None
    first = x.slice(3, 0, 1)
    builder.copy(backward.of_group(backward.sink, i).broadcast(first.shape), first)
    builder.fill(dp.slice(3, 0, 1), 0.0)
    past, window = backward.past, backward.window
    if not backward.causal or not window or past + at + rows <= window:
        return
    # Row r does not see the keys up to past + at + r - window: one line, shifted row by row.
    hidden, seen = past + backward.q.shape[2], backward.k.shape[2] + window
    line = builder.const_bytes(
        pack(FLOAT, [float("-inf")] * hidden + [0.0] * seen), FLOAT, [hidden + seen]
    )
    band = line._with([rows, cols], [-1, 1], line.offset + hidden - 1 - (past + at - window))
    scores = x.slice(3, 1, cols)
    builder.emit_binary("add", scores, band, scores, FLOAT)


def _emit_scores(
    backward: _Backward, q: View, k: View, mask: View | None, scores: View
) -> View | None:
    """Computes the scores of a block from q and k, as softmax takes them. Without a mask and a sink
    they lack a factor, `scale` or `softcap`, which softmax multiplies them by.

    Returns:
        tanh(scale * q k^T / softcap), or None without softcap.
    """
    builder, scale, softcap = backward.builder, backward.scale, backward.softcap
    k, whole = k.transpose([0, 1, 3, 2]), mask is not None or backward.sink is not None
    if not softcap:
        bias = mask is not None and mask.shape[:2] == [1, 1]  # one for all heads
        emit_gemm(
            builder,
            q,
            k,
            scores,
            bias=mask.drop_leading(2) if mask is not None and bias else None,
            alpha=scale if whole else 1.0,
        )
        if mask is not None and not bias:
            builder.emit_binary("add", scores, mask, scores, FLOAT)
        return None
    capped = builder.temp(FLOAT, scores.shape) if whole else scores
    emit_gemm(builder, q, k, capped, alpha=scale / softcap, activation="tanh")
    if whole:
        builder.emit_binary("mul", capped, builder.scalar(FLOAT, softcap), scores, FLOAT)
    if mask is not None:
        builder.emit_binary("add", scores, mask, scores, FLOAT)
    return capped


def _emit_softcap_gradient(builder: Builder, capped: View, ds: View) -> None:
    """Multiplies ds by the derivative of tanh: 1 - capped^2."""
    slope = builder.temp(FLOAT, ds.shape)
    builder.emit_binary("mul", capped, capped, slope, FLOAT)
    builder.emit_binary("sub", builder.scalar(FLOAT, 1.0), slope, slope, FLOAT)
    builder.emit_binary("mul", ds, slope, ds, FLOAT)


def attention_gradients(
    graph: Gradients,
    q: Value,
    k: Value,
    v: Value,
    dy: Value,
    masks: Sequence[Value] = (),
    wanted: Sequence[bool] = (),
    sink: Value | None = None,
    **attrs: float,
) -> list[Value | None]:
    """Adds an AttentionGrad node.

    Args:
        q, k, v, dy: [batch, heads or kv_heads, seq, dim].
        masks: What was added to the scores.
        wanted: For each mask, whether its gradient is needed.
        sink: A score of each head without a value, [heads], or None.
        attrs: The attributes of AttentionGrad.
    Returns:
        The gradients of q, k and v, shaped like them, then that of each mask or None, then that of
        the sink, if there is one.
    """
    outs = graph.op(
        "AttentionGrad", q, k, v, dy, sink, *masks, domain="edgewise", outputs=5, **attrs
    )
    got = [graph.transpose(d, [0, 2, 1, 3]) for d in outs[:3]] + [
        graph.sum_to(outs[3], m.shape) if w else None for m, w in zip(masks, wanted)
    ]
    if sink is not None:
        got.append(graph.op("ReduceSum", outs[4], graph.ints([0, 2]), keepdims=0))
    return got


def split_heads(graph: Gradients, x: Value, heads: int) -> Value:
    """[batch, seq, heads * dim] as [batch, heads, seq, dim]."""
    return graph.transpose(
        graph.reshape(x, [*x.shape[:2], heads, x.shape[2] // heads]), [0, 2, 1, 3]
    )


def merge_heads(graph: Gradients, x: Value) -> Value:
    """[batch, heads, seq, dim] as [batch, seq, heads * dim]."""
    return graph.reshape(
        graph.transpose(x, [0, 2, 1, 3]), [x.shape[0], x.shape[2], x.shape[1] * x.shape[3]]
    )


def part(graph: Graph, x: Value, axis: int, start: Dim, length: Dim) -> Value:
    """`length` elements of x from `start` on along an axis; x itself where that is all of it."""
    return (
        graph.op(
            "Slice", x, *(graph.constant(INT64, [1], [i]) for i in (start, start + length, axis))
        )
        if length != x.shape[axis]
        else x
    )


def of_cache(
    graph: Gradients, d: Value | None, more: Value | None, past: int
) -> tuple[Value | None, Value | None]:
    """Splits the gradient of all keys (or values) into those of the new ones and of the past.

    Args:
        d: The gradient through the attention, or None.
        more: The gradient of the output `present`, or None.
        past: The number of keys of the past.
    """
    d = more if d is None else d if more is None else graph.add(d, more)
    if d is None or not past:
        return d, None
    return part(graph, d, 2, past, d.shape[2] - past), part(graph, d, 2, 0, past)
