"""Calls of the attention kernel, checks that attention operators share, and the operator that
passes/attention.py makes from MatMul, Softmax and MatMul.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT
from ...declare.op import Op, fail
from ...declare.symbolic import Sym
from .attention_grad import attention_gradients, split_heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...declare.annotations import (
        BoundNode,
        Builder,
        Dim,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
        View,
    )


def emit_attention(
    builder: Builder,
    q: View,
    k: View,
    v: View,
    y: View,
    scale: float,
    masks: Sequence[View] = (),
    causal: int = 0,
    past: Dim = 0,
    window: int = 0,
    softcap: float = 0.0,
    lengths: View | None = None,
    sink: View | None = None,
    nan_to_zero: int = 0,
) -> None:
    """Adds a call of the kernel "attention".

    Args:
        q: [batch, heads, q_len, dim], float32.
        k: [batch, kv_heads, kv_len, dim], float32, float16 or rows of fewer bits, with any
            strides.
        v: [batch, kv_heads, kv_len, v_dim], likewise.
        y: The output, [batch, heads, q_len, v_dim].
        masks: Bool or float32 views that broadcast to [batch, heads, q_len, kv_len].
        causal, past, window, softcap, lengths, sink, nan_to_zero: See the kernel's contract.
    """
    if k.dtype != v.dtype:  # one of them comes from a cache of another type
        k, v = builder.cast(k, FLOAT), builder.cast(v, FLOAT)
    q, k, v = (builder.inner_contiguous(x) for x in (q, k, v))
    if k.shape[2] != 1 and k.strides[2] == v.strides[2] == 0:
        k = builder.contiguous(k)  # the contract bounds the kernel's work by the memory it reads
    batch, heads, q_len, dim = q.shape
    masks = [_of_rows(builder, m, k.shape[2]) for m in masks]
    mask = _as_one_mask(builder, masks, [batch, heads, q_len, k.shape[2]])
    builder.emit(
        "attention",
        {"q": q, "k": k, "v": v, "mask": mask, "lengths": lengths, "sink": sink, "y": y},
        batch=batch,
        heads=heads,
        kv_heads=k.shape[1],
        q_len=q_len,
        kv_len=k.shape[2],
        head_dim=dim,
        v_dim=v.shape[3],
        mask_type=mask.dtype if mask is not None else FLOAT,
        **_strides("q", "bhs", q.strides),
        **_strides("k", "bhs", k.strides),
        **_strides("v", "bhs", v.strides),
        **_strides("y", "bhs", y.strides),
        **_strides("m", "bhqk", mask.strides if mask is not None else [0] * 4),
        causal=causal,
        past=past,
        window=window,
        kv_type=k.dtype,
        nan_to_zero=nan_to_zero,
        scale=scale,
        softcap=softcap,
    )


def _strides(name: str, axes: str, strides: Sequence[Dim]) -> dict[str, Dim]:
    """The stride parameters of an operand: q_b, q_h and q_s, for example."""
    return {f"{name}_{axis}": stride for axis, stride in zip(axes, strides)}


def _of_rows(builder: Builder, mask: View, rows: Dim) -> View:
    """The columns of a mask for the rows of a cache, which may have dropped the first ones."""
    axis = len(mask.shape) - 1
    if axis < 0 or mask.shape[axis] in (1, rows) or builder.sliding.dropped == 0:
        return mask
    if isinstance(mask.offset, Sym):  # of a row; an offset depends on one register
        row, mask = mask, builder.temp(mask.dtype, mask.shape)
        builder.copy(row, mask)
    return mask.slice(axis, builder.sliding.dropped, rows)


def _as_one_mask(builder: Builder, masks: Sequence[View], shape: Shape) -> View | None:
    """All masks as one, broadcast to a shape; None without masks."""
    if not masks:
        return None
    mask = masks[0]
    for other in masks[1:]:
        mask = builder.add_masks(mask, other)
    mask = mask.broadcast(shape)
    return builder.contiguous(mask) if min(mask.strides) < 0 else mask


# Made by passes/attention.py. Inputs: q, k, v, masks. Attributes: scale, softcap, nan_to_zero,
# causal and past (which may be a Sym) as the kernel takes them; merged: the output is [batch,
# q_len, heads * v_dim] instead of [batch, heads, q_len, v_dim].
fused = Op("Attention", "edgewise")


@fused.infer
def fused_infer(node: BoundNode) -> Inferred:
    q, k, v = node.inputs[:3]
    if node.attr("merged", 0):  # the layout that the projection after it reads
        return [(FLOAT, [q.shape[0], q.shape[2], q.shape[1] * v.shape[3]])]
    return [(FLOAT, q.shape[:3] + [v.shape[3]])]


@fused.lower
def fused_lower(node: BoundNode, builder: Builder) -> None:
    q, k, v = (
        builder.view(node.inputs[0]),
        builder.stored(node.inputs[1], rows=True),
        builder.stored(node.inputs[2], rows=True),
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
    builder: Builder, node: BoundNode, new: View, past_index: int, present_index: int
) -> tuple[View, Dim]:
    """Appends new keys or values to those of the past.

    Where the past is a cache of the session, they are written into the room after it.

    Args:
        new: [batch, heads, seq, dim].
        past_index: The input that holds the past; it may be absent.
        present_index: The output that is past and new together; it may be unused.
    Returns:
        (past and new together, the length of the past)
    """
    out = node.outputs[present_index] if node.wants(present_index) else None
    past = node.input(past_index)
    if past is not None and past.role == "cache":
        old = builder.stored(past, rows=True)
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
    """Raises ModelError where input i is present and has another shape; None: any size.

    Args:
        name: What the error calls the input.
    """
    v = node.input(i)
    if v is not None and (
        v.rank != len(shape)
        or any(expected is not None and d != expected for d, expected in zip(v.shape, shape))
    ):
        dims = ", ".join("any" if d is None else str(d) for d in shape)
        fail(node, f"its {name} is {v}; the shape [{dims}] is expected")


def masking(node: BoundNode, i: int, name: str, *shape: Dim) -> None:
    """Raises ModelError where input i is present and is not a mask (bool, or float32 to add) that
    broadcasts to this shape.
    """
    v = node.input(i)
    if v is not None and (
        v.dtype not in (FLOAT, BOOL)
        or v.rank > len(shape)
        or any(
            d != 1 and d != expected for d, expected in zip(v.shape, shape[len(shape) - v.rank :])
        )
    ):
        fail(
            node, f"its {name} is {v}; float32 or bool that broadcasts to {list(shape)} is expected"
        )
