"""The gradient of attention, a block of queries at a time, and what gradients of its forms
share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import Op, product
from ..product.matmul import emit_gemm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import BoundNode, Builder, Gradients, Graph, Inferred, Value

# ---- gradients ----
# queries at a time at most where the mask is causal, a quarter of them where that is 16 or more:
# later keys are left out
BLOCK = 64
SCORES = (
    1 << 21
)  # floats that the scores of a block of queries take at most, where 16 queries fit into that

# (q, k, v, dy, masks...): the gradients of q, k, v, which lie as [batch, seq, heads, dim], and of
# the sum of masks [batch, heads, q_len, kv_len], where y = softmax(softcap(scale * q k^T) + masks)
# v; q, dy [batch, heads, q_len, dim]; k, v [batch, kv_heads, kv_len, dim]. attrs: scale, softcap;
# causal, past, window as the kernel's. Scores are computed again, a block of queries at a time.
attention_grad = Op("AttentionGrad", "edgewise")


@attention_grad.infer
def attention_grad_infer(node: BoundNode) -> Inferred:
    q, k, v = node.inputs[:3]
    return [(FLOAT, [x.shape[0], x.shape[2], x.shape[1], x.shape[3]]) for x in (q, k, v)] + [
        (FLOAT, q.shape[:3] + [k.shape[2]])
    ]


@attention_grad.lower
def attention_grad_lower(node: BoundNode, builder: Builder) -> None:
    q, k, v, dy = (builder.inner_contiguous(builder.view(x)) for x in node.inputs[:4])
    scale, softcap, causal, past, window = (
        node.attr("scale", 1.0),
        node.attr("softcap", 0.0),
        node.attr("causal", 0),
        node.attr("past", 0),
        node.attr("window", 0),
    )
    dq, dk, dv = (
        builder.out(o).transpose([0, 2, 1, 3]) if o is not None else None for o in node.outputs[:3]
    )
    dmask = builder.out(node.outputs[3]) if node.wants(3) else None
    batch, heads, q_len, _ = q.shape
    kv, kv_len = k.shape[1:3]
    shared = heads // kv
    masks = [builder.view(x) for x in node.inputs[4:]]
    mask = masks[0] if masks else None
    for other in masks[1:]:
        mask = builder.add_masks(mask, other)
    if mask is not None:
        mask = builder.float_mask(mask)
        mask = mask._with(
            [1] * (4 - len(mask.shape)) + mask.shape, [0] * (4 - len(mask.shape)) + mask.strides
        )
        if min(mask.strides) < 0:
            mask = builder.contiguous(mask)
    size = min(
        q_len,
        max(16, SCORES // max(1, batch * kv * kv_len) // 16 * 16),
        max(16, min(BLOCK, q_len // 4 // 16 * 16)) if causal else q_len,
    )
    starts = list(range(0, q_len, size)) if kv_len and product(dy.shape) else []
    reach = [min(kv_len, past + at + size + causal - 1) if causal else kv_len for at in starts]
    for y, covered in (
        (dq, bool(starts)),
        (dk, kv_len in reach),
        (dv, kv_len in reach),
        (dmask, bool(starts) and not causal),
    ):
        if y is not None and not covered:
            builder.fill(y, 0.0)
    slope, left = (
        (1.0, scale) if dmask is not None else (scale, 1.0)
    )  # what the gradient of scores has in it of `scale`, and what it lacks
    summed = {
        "k": kv_len in reach,
        "v": kv_len in reach,
    }  # whether the next block is the first: it writes what later ones add to

    def of_group(x, i):
        """Each shared key head's i-th query head: [batch, kv_heads, seq, dim]."""
        return x._with(
            [x.shape[0], kv, *x.shape[2:]],
            [x.strides[0], x.strides[1] * shared, *x.strides[2:]],
            x.offset + i * x.strides[1],
        )

    def add_product(name, a, w, y, alpha):
        emit_gemm(builder, a, w, y, residual=None if summed[name] else y, alpha=alpha)

    for at, cols in reversed(list(zip(starts, reach))):  # the last block reaches all keys
        rows = min(size, q_len - at)
        for i in range(shared):
            qi, di = of_group(q, i).slice(2, at, rows), of_group(dy, i).slice(2, at, rows)
            ki, vi = k.slice(2, 0, cols), v.slice(2, 0, cols)
            scores, dp = (
                builder.temp(FLOAT, [batch, kv, rows, cols]),
                builder.temp(FLOAT, [batch, kv, rows, cols]),
            )
            more = capped = None
            if mask is not None:
                more = mask if mask.shape[1] == 1 else of_group(mask, i)
                more = more if more.shape[2] == 1 else more.slice(2, at, rows)
                more = more if more.shape[3] == 1 else more.slice(3, 0, cols)
            whole = (
                1.0 if softcap or more is None else scale
            )  # softmax scales what nothing is added to
            if softcap:
                capped = builder.temp(FLOAT, scores.shape)
                emit_gemm(
                    builder,
                    qi,
                    ki.transpose([0, 1, 3, 2]),
                    capped,
                    alpha=scale / softcap,
                    activation="tanh",
                )
                if more is not None:
                    builder.emit_binary(
                        "mul", capped, builder.scalar(FLOAT, softcap), scores, FLOAT
                    )
            else:
                emit_gemm(
                    builder,
                    qi,
                    ki.transpose([0, 1, 3, 2]),
                    scores,
                    bias=(
                        more.drop_leading(2)
                        if more is not None and more.shape[:2] == [1, 1]
                        else None
                    ),
                    alpha=whole,
                )
            if more is not None and (softcap or more.shape[:2] != [1, 1]):
                builder.emit_binary("add", scores, more, scores, FLOAT)
            emit_gemm(builder, di, vi.transpose([0, 1, 3, 2]), dp)
            p, ds = builder.temp(FLOAT, scores.shape), builder.temp(FLOAT, scores.shape)
            builder.emit(
                "softmax_and_grad",
                {
                    "x": scores if capped is None or more is not None else capped,
                    "dy": dp,
                    "y": p,
                    "dx": ds,
                },
                rows=batch * kv * rows,
                cols=cols,
                period=rows,
                first=past + at + causal if causal else cols,
                span=causal + window - 1 if causal and window else 0,
                scale=1.0 if more is not None else softcap or scale,
                slope=slope,
            )
            if dmask is not None:
                builder.copy(ds, of_group(dmask, i).slice(2, at, rows).slice(3, 0, cols))
            if softcap:
                of_cap = builder.temp(FLOAT, scores.shape)
                builder.emit_binary("mul", capped, capped, of_cap, FLOAT)
                builder.emit_binary("sub", builder.scalar(FLOAT, 1.0), of_cap, of_cap, FLOAT)
                builder.emit_binary("mul", ds, of_cap, ds, FLOAT)
            if dq is not None:
                emit_gemm(builder, ds, ki, of_group(dq, i).slice(2, at, rows), alpha=left)
            if dk is not None:
                add_product("k", ds.transpose([0, 1, 3, 2]), qi, dk.slice(2, 0, cols), left)
                summed["k"] = False
            if dv is not None:
                add_product("v", p.transpose([0, 1, 3, 2]), di, dv.slice(2, 0, cols), 1.0)
                summed["v"] = False


def attention_gradients(
    graph: Gradients,
    q: Value,
    k: Value,
    v: Value,
    dy: Value,
    masks: Sequence[Value] = (),
    wanted: Sequence[bool] = (),
    **attrs: float,
) -> list[Value | None]:
    """Gradients of q, k, v as they are shaped ([batch, heads, seq, dim]), then of each mask, None
    where not `wanted` (a bool per mask).
    """
    outs = graph.op("AttentionGrad", q, k, v, dy, *masks, domain="edgewise", outputs=4, **attrs)
    return [graph.transpose(d, [0, 2, 1, 3]) for d in outs[:3]] + [
        graph.sum_to(outs[3], m.shape) if w else None for m, w in zip(masks, wanted)
    ]


def split_heads(graph: Gradients, x: Value, heads: int) -> Value:
    return graph.transpose(
        graph.reshape(x, [*x.shape[:2], heads, x.shape[2] // heads]), [0, 2, 1, 3]
    )


def merge_heads(graph: Gradients, x: Value) -> Value:
    return graph.reshape(
        graph.transpose(x, [0, 2, 1, 3]), [x.shape[0], x.shape[2], x.shape[1] * x.shape[3]]
    )


def part(graph: Graph, x: Value, axis: int, start: int, length: int) -> Value:
    """Of x, `length` places of an axis from `start`. g: Gradients, or the binder of a node that is
    taken apart.
    """
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
    """The gradient of keys or values, that of `present` added, as (of the new ones, of the
    past's).
    """
    d = more if d is None else d if more is None else graph.add(d, more)
    if d is None or not past:
        return d, None
    return part(graph, d, 2, past, d.shape[2] - past), part(graph, d, 2, 0, past)
