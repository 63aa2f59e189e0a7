"""Attention to a cache whose length only a run can tell: what GroupQueryAttention becomes where its
past is an input of the model, so that one plan serves each length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, size_of
from ...declare.op import Op, product
from ...declare.symbolic import NotStatic, Sym
from .attention_kernel import emit_attention

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Builder, Inferred

# Inputs: q [batch, heads, q_len, dim], k and v [batch, kv_heads, rows, dim], and where they are
# present: lengths, int64 [batch], of each row's keys; masks of the scores, which broadcast to
# [batch, heads, q_len, rows]; sink, a score of each head. The last query is at the end of its row's
# keys. Attributes: scale, softcap, causal, window.
cached = Op("CachedAttention", "edgewise")


@cached.infer
def cached_infer(node: BoundNode) -> Inferred:
    q, v = node.inputs[0], node.inputs[2]
    return [(FLOAT, [*q.shape[:3], v.shape[3]])]


@cached.lower
def cached_lower(node: BoundNode, builder: Builder) -> None:
    q = builder.view(node.inputs[0])
    k, v = (builder.stored(x, rows=True) for x in node.inputs[1:3])
    lengths, sink = (
        builder.contiguous(builder.view(node.inputs[i])) if node.has(i) else None for i in (3, 5)
    )
    mask = builder.view(node.inputs[4]) if node.has(4) else None
    while mask is not None and len(mask.shape) < 4:
        mask = mask.unsqueeze(0)
    emit_attention(
        builder,
        q,
        k,
        v,
        builder.out(node.outputs[0]),
        node.attr("scale", 1.0),
        [mask] if mask is not None else [],
        causal=node.attr("causal", 0),
        window=node.attr("window", 0),
        softcap=node.attr("softcap", 0.0),
        lengths=builder.cast(lengths, INT32) if lengths is not None else None,
        sink=sink,
    )


# Inputs: x [a, b, rows, ...], index int64 [a, b, count, 3], updates [a, b, count, ...]. Output: x
# with `rows` rows, the attribute, of which those of the index are the updates and others that x has
# not are zeros.
grow = Op("ScatterGrown", "edgewise", moves=True)


@grow.infer
def grow_infer(node: BoundNode) -> Inferred:
    x = node.inputs[0]
    return [(x.dtype, [*x.shape[:2], node.attrs["rows"], *x.shape[3:]])]


@grow.lower
def grow_lower(node: BoundNode, builder: Builder) -> None:
    x, index, updates = node.inputs
    y, old, rows = builder.out(node.outputs[0]), builder.view(x), node.attrs["rows"]
    builder.copy(old, y.slice(2, 0, old.shape[2]))
    more = rows - old.shape[2]
    if isinstance(more, Sym):
        raise NotStatic("a cache that grows by a length of the run")
    if more:
        builder.fill(y.slice(2, old.shape[2], more), 0)
    builder.emit(
        "scatter_nd",
        {
            "index": builder.flat(builder.view(index)),
            "updates": builder.flat(builder.view(updates)),
            "y": y,
        },
        size=size_of(x.dtype),
        type=x.dtype,
        index_type=index.dtype,
        reduction=0,
        count=product(index.shape[:-1]),
        depth=3,
        inner=product(x.shape[3:]),
        sizes=[*y.shape[:3], 1, 1, 1],
        strides=[*y.strides[:3], 0, 0, 0],
    )
