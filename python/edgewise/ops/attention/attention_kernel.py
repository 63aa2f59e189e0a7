"""The attention kernel, what ops use to call it, and the op that passes make of exporters' MatMul,
Softmax, MatMul.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT
from ...declare.op import Op, fail
from .attention_grad import attention_gradients, split_heads

if TYPE_CHECKING:
    from ...declare.annotations import (
        BoundNode,
        Builder,
        Dim,
        Gradients,
        Inferred,
        InputGradients,
        Value,
        View,
    )


def emit_attention(
    builder: Builder,
    q,
    k,
    v,
    y,
    scale,
    masks=(),
    causal=0,
    past=0,
    window=0,
    softcap=0.0,
    lengths=None,
    sink=None,
    nan_to_zero=0,
):
    """q, y [batch, heads, q_len, dim]; k, v [batch, kv_heads, kv_len, dim] views with any strides,
    of float32 or float16. masks: views that broadcast to [batch, heads, q_len, kv_len].
    """
    if k.dtype != v.dtype:  # one of them comes from a cache of halves
        k, v = builder.cast(k, FLOAT), builder.cast(v, FLOAT)
    q, k, v = (builder.inner_contiguous(x) for x in (q, k, v))
    if (
        k.shape[2] != 1 and k.strides[2] == v.strides[2] == 0
    ):  # the kernel wants its work to be bounded by memory
        k = builder.contiguous(k)
    batch, heads, q_len, dim = q.shape
    kv_len = k.shape[2]
    mask, m = None, [0, 0, 0, 0]
    if masks:
        mask = masks[0]
        for other in masks[1:]:
            mask = builder.add_masks(mask, other)
        mask = mask.broadcast([batch, heads, q_len, kv_len])
        if min(mask.strides) < 0:
            mask = builder.contiguous(mask)
        m = mask.strides
    builder.emit(
        "attention",
        {"q": q, "k": k, "v": v, "mask": mask, "lengths": lengths, "sink": sink, "y": y},
        batch=batch,
        heads=heads,
        kv_heads=k.shape[1],
        q_len=q_len,
        kv_len=kv_len,
        head_dim=dim,
        v_dim=v.shape[3],
        q_b=q.strides[0],
        q_h=q.strides[1],
        q_s=q.strides[2],
        k_b=k.strides[0],
        k_h=k.strides[1],
        k_s=k.strides[2],
        v_b=v.strides[0],
        v_h=v.strides[1],
        v_s=v.strides[2],
        y_b=y.strides[0],
        y_h=y.strides[1],
        y_s=y.strides[2],
        mask_type=mask.dtype if mask is not None else FLOAT,
        m_b=m[0],
        m_h=m[1],
        m_q=m[2],
        m_k=m[3],
        causal=causal,
        past=past,
        window=window,
        kv_type=k.dtype,
        nan_to_zero=nan_to_zero,
        scale=scale,
        softcap=softcap,
    )


# Made by passes/attention.py of the exporters' MatMul, Softmax, MatMul. Inputs: q, k, v, then
# masks. attrs: scale, softcap, nan_to_zero; causal and past (which may be a Sym) as the kernel's.
fused = Op("Attention", "edgewise")


@fused.infer
def fused_infer(node: BoundNode) -> Inferred:
    q, k, v = node.inputs[:3]
    if node.attr("merged", 0):  # [batch, q_len, heads * v_dim], as the next projection wants it
        return [(FLOAT, [q.shape[0], q.shape[2], q.shape[1] * v.shape[3]])]
    return [(FLOAT, q.shape[:3] + [v.shape[3]])]


@fused.lower
def fused_lower(node: BoundNode, builder: Builder) -> None:
    q, k, v = (
        builder.view(node.inputs[0]),
        builder.stored(node.inputs[1]),
        builder.stored(node.inputs[2]),
    )
    y = builder.out(node.outputs[0])
    if node.attr("merged", 0):
        y = builder.reshaped(y, [q.shape[0], q.shape[2], q.shape[1], v.shape[3]]).transpose(
            [0, 2, 1, 3]
        )
    emit_attention(
        builder,
        q,
        k,
        v,
        y,
        node.attr("scale", 1.0),
        [builder.view(x) for x in node.inputs[3:]],
        node.attr("causal", 0),
        node.attrs.get("past", 0),
        softcap=node.attr("softcap", 0.0),
        nan_to_zero=node.attr("nan_to_zero", 0),
    )


@fused.grad
def fused_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    q, k, v = node.inputs[:3]
    if node.attr("merged", 0):
        dy = split_heads(gradients, dy, q.shape[1])
    return attention_gradients(
        gradients,
        q,
        k,
        v,
        dy,
        node.inputs[3:],
        [gradients.wants(i) for i in range(3, len(node.inputs))],
        scale=node.attr("scale", 1.0),
        softcap=node.attr("softcap", 0.0),
        causal=node.attr("causal", 0),
        past=node.attr("past", 0),
    )


def by_heads(builder: Builder, x: View, count: int) -> View:
    """[batch, seq, count * dim] seen as [batch, count, seq, dim]."""
    batch, seq, width = x.shape
    return builder.reshaped(x, [batch, seq, count, width // count]).transpose([0, 2, 1, 3])


def append(
    builder: Builder, n: BoundNode, new: View, past_index: int, present_index: int
) -> tuple[View, Dim]:
    """The cache with `new` [batch, heads, seq, dim] behind its past, as a view; written in place
    where the past is a cache.
    """
    out = n.outputs[present_index] if n.wants(present_index) else None
    past = n.input(past_index)
    if past is not None and past.role == "cache":
        old = builder.stored(past)
        whole = old.extended(2, old.shape[2] + new.shape[2])
        builder.store(new, whole.slice(2, old.shape[2], new.shape[2]))
        if out is not None:
            builder.alias(out, whole)
        return whole, old.shape[2]
    if past is None:
        if out is None:
            return new, 0
        whole = builder.out(out)
        builder.store(new, whole)
        return whole, 0
    old = builder.view(past)
    shape = old.shape[:2] + [old.shape[2] + new.shape[2], old.shape[3]]
    whole = builder.out(out) if out is not None else builder.temp(FLOAT, shape)
    builder.copy(old, whole.slice(2, 0, old.shape[2]))
    builder.store(new, whole.slice(2, old.shape[2], new.shape[2]))
    return whole, old.shape[2]


def shaped(node: BoundNode, i: int, name: str, *shape: Dim | None) -> None:
    """Fails unless input i, where it is there, has this shape; None fits any size."""
    v = node.input(i)
    if v is not None and (
        v.rank != len(shape)
        or any(want is not None and d != want for d, want in zip(v.shape, shape))
    ):
        fail(
            node,
            f"its {name} is {v}, of shape"
            f" [{', '.join('any' if d is None else str(d) for d in shape)}] it is wanted",
        )


def masking(node: BoundNode, i: int, name: str, *shape: Dim) -> None:
    """Fails unless input i, where it is there, is a mask (or bias) that broadcasts to this
    shape.
    """
    v = node.input(i)
    if v is not None and (
        v.dtype not in (FLOAT, BOOL)
        or v.rank > len(shape)
        or any(d != 1 and d != want for d, want in zip(v.shape, shape[len(shape) - v.rank :]))
    ):
        fail(
            node,
            f"its {name} is {v}; of float32 or bool that broadcasts to {list(shape)} it is wanted",
        )
