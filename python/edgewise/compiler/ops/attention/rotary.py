"""Rotary position embedding: ONNX's operator, onnxruntime's, and the call of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import MS, Op, fail, like, one_number, product, takes
from .attention_grad import part, split_heads
from .attention_kernel import by_heads, shaped

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


def emit_rope(
    builder: Builder,
    x: View,
    y: View,
    cos: View,
    sin: View,
    rotary_dim: int,
    positions: int = 0,
    position_ids: View | None = None,
    position: Dim = 0,
    interleaved: int = 0,
) -> None:
    """Adds a call of the kernel "rope".

    Args:
        x, y: [batch, heads, seq, dim].
        cos, sin: With positions 0 [batch or 1, seq, rotary_dim/2], else tables [rows,
            rotary_dim/2].
        rotary_dim, positions, position_ids, position, interleaved: See the kernel's contract.
    """
    x = builder.inner_contiguous(x)
    batch, heads, seq, dim = x.shape
    cos, sin = builder.inner_contiguous(cos), builder.inner_contiguous(sin)
    if positions == 0:
        cos, sin = (t.broadcast([batch, seq, rotary_dim // 2]) for t in (cos, sin))
        c_b, c_s, rows = cos.strides[0], cos.strides[1], 1
        if sin.strides[:2] != cos.strides[:2]:
            cos, sin = builder.contiguous(cos), builder.contiguous(sin)
            c_b, c_s = cos.strides[:2]
    else:
        c_b, c_s, rows = 0, cos.strides[0], cos.shape[0]
        if sin.strides[0] != c_s:
            cos, sin = builder.contiguous(cos), builder.contiguous(sin)
            c_s = cos.strides[0]
    builder.emit(
        "rope",
        {"x": x, "cos": cos, "sin": sin, "position_ids": position_ids, "y": y},
        batch=batch,
        heads=heads,
        seq=seq,
        head_dim=dim,
        rotary_dim=rotary_dim,
        interleaved=int(interleaved != 0),
        x_b=x.strides[0],
        x_h=x.strides[1],
        x_s=x.strides[2],
        y_b=y.strides[0],
        y_h=y.strides[1],
        y_s=y.strides[2],
        c_b=c_b,
        c_s=c_s,
        c_rows=rows,
        position=position,
        positions=positions,
        scale=1.0,
    )


# Made by passes/rotary.py. Inputs: x [batch, heads, seq, dim], cos and sin [batch or 1, seq,
# rotary_dim/2]. Attribute `order`: how the dimensions of the output lie in memory.
rope_direct = Op("Rope", "edgewise")


@rope_direct.infer
def rope_direct_infer(node: BoundNode) -> Inferred:
    return [like(node, 0)]


@rope_direct.lower
def rope_direct_lower(node: BoundNode, builder: Builder) -> None:
    cos, sin = builder.view(node.inputs[1]), builder.view(node.inputs[2])
    builder.out_in_order(node.outputs[0], node.attr("order", [0, 1, 2, 3]))
    emit_rope(
        builder,
        builder.view(node.inputs[0]),
        builder.view(node.outputs[0]),
        cos,
        sin,
        2 * cos.shape[-1],
        interleaved=node.attr("interleaved", 0),
    )


@rope_direct.grad
def rope_direct_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    x, cos, sin = node.inputs
    interleaved = node.attr("interleaved", 0)
    back = {"domain": "edgewise", "interleaved": interleaved}  # a rotation by the negative angle
    dx = gradients.op("Rope", dy, cos, gradients.neg(sin), **back) if gradients.wants(0) else None
    wanted = gradients.wants(1) or gradients.wants(2)
    return [dx, *table_gradients(gradients, x, dy, cos.shape, interleaved, wanted)]


def table_gradients(
    graph: Gradients, x: Value, dy: Value, shape: Shape, interleaved: int, wanted: bool
) -> tuple[Value | None, Value | None]:
    """Gradients of cos and sin, None unless they are wanted.

    Args:
        x: What was rotated, [batch, heads, seq, dim].
        shape: Of cos and sin, [batch or 1, seq, half].
    """
    if not wanted:
        return None, None
    half = shape[-1]

    def pair(v: Value) -> list[Value]:
        v = part(graph, v, 3, 0, 2 * half)
        if interleaved:
            v = graph.reshape(v, [*v.shape[:3], half, 2])
            return [graph.reshape(part(graph, v, 4, i, 1), v.shape[:4]) for i in (0, 1)]
        return [part(graph, v, 3, i * half, half) for i in (0, 1)]

    (x0, x1), (d0, d1) = pair(x), pair(dy)
    along = (
        graph.add(graph.mul(d0, x0), graph.mul(d1, x1)),
        graph.sub(graph.mul(d1, x0), graph.mul(d0, x1)),
    )
    return tuple(
        graph.sum_to(graph.op("ReduceSum", v, graph.ints([1]), keepdims=0), shape) for v in along
    )


rotary = Op("RotaryEmbedding")  # opset 23


@rotary.infer
def rotary_infer(node: BoundNode) -> Inferred:
    takes(node, (FLOAT,), 0, 1, 2)
    x = node.inputs[0]
    if x.rank not in (3, 4) or (x.rank == 3 and not node.attr("num_heads")):
        fail(
            node,
            f"its input is {x}; [batch, heads, seq, dim], or three dimensions and num_heads, is"
            " expected",
        )
    heads = node.attr("num_heads", 0)
    batch, seq, dim = (
        (x.shape[0], x.shape[2], x.shape[3])
        if x.rank == 4
        else (x.shape[0], x.shape[1], x.shape[2] // heads)
    )
    if heads < 0 or x.rank == 3 and x.shape[2] % heads:
        fail(node, f"{x} does not divide into {heads} heads")
    half = (node.attr("rotary_embedding_dim", 0) or dim) // 2
    for i, name in ((1, "cos_cache"), (2, "sin_cache")):
        shaped(node, i, name, *((None, half) if node.has(3) else (batch, seq, half)))
    if node.has(3):
        check_positions(node, 3, batch, seq)
    return [like(node, 0)]


def check_positions(node: BoundNode, i: int, batch: Dim, seq: Dim) -> None:
    """Raises ModelError unless input i is int64 [batch, seq]."""
    shaped(node, i, "position_ids", batch, seq)
    if node.inputs[i].dtype != INT64:
        fail(node, f"its position_ids are {node.inputs[i]}; int64 is expected")


def _lower_rotary(
    node: BoundNode,
    builder: Builder,
    cos: View,
    sin: View,
    position_ids: View | None,
    positions: int,
) -> None:
    """Lowers either operator; the arguments are those of `emit_rope`."""
    x, y = builder.view(node.inputs[0]), builder.out(node.outputs[0])
    heads = node.attr("num_heads", 0)
    if len(x.shape) == 3:
        if not heads:
            dim = node.attr("rotary_embedding_dim", 0) or 2 * cos.shape[-1]
            heads = x.shape[2] // dim
        x, y = by_heads(builder, x, heads), by_heads(builder, y, heads)
    rotary_dim = node.attr("rotary_embedding_dim", 0) or x.shape[3]
    emit_rope(
        builder, x, y, cos, sin, rotary_dim, positions, position_ids, 0, node.attr("interleaved", 0)
    )


@rotary.lower
def rotary_lower(node: BoundNode, builder: Builder) -> None:
    cos, sin = builder.view(node.inputs[1]), builder.view(node.inputs[2])
    ids = builder.contiguous(builder.view(node.inputs[3])) if node.has(3) else None
    _lower_rotary(node, builder, cos, sin, ids, 2 if ids is not None else 0)


@rotary.grad
def rotary_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return _rotary_gradients(node, gradients, dy, 3, 1)


def _rotary_gradients(
    node: BoundNode, graph: Gradients, dy: Value, ids: int, table: int
) -> InputGradients:
    """The gradients of the inputs of both operators.

    Args:
        ids: The input that holds position ids, if it is present.
        table: The input that holds cosines; sines are the next one.
    """
    x, cos, sin = node.inputs[0], node.inputs[table], node.inputs[table + 1]
    half = cos.shape[-1]
    out: list[Value | None] = [None] * max(len(node.inputs), table + 2)
    again = list(node.inputs)
    again[0], again[table + 1] = dy, graph.neg(sin)
    out[0] = graph.op(node.op, *again, domain=node.domain, **node.attrs) if graph.wants(0) else None
    if graph.wants(table) or graph.wants(table + 1):
        if x.rank == 3:
            heads = node.attr("num_heads", 0) or x.shape[2] // (
                node.attr("rotary_embedding_dim", 0) or 2 * half
            )
            x, dy = split_heads(graph, x, heads), split_heads(graph, dy, heads)
        batch, seq = x.shape[0], x.shape[2]
        got: Sequence[Value | None] = table_gradients(
            graph,
            x,
            dy,
            [batch, seq, half] if node.has(ids) else cos.shape,
            node.attr("interleaved", 0),
            True,
        )
        if node.has(ids):
            positions = node.inputs[ids]
            if list(positions.shape) != [batch, seq]:  # the position of the first token of each row
                positions = graph.add(
                    graph.reshape(positions, [product(positions.shape), 1]),
                    graph.constant(
                        INT64, [batch, seq], [i for _ in range(batch) for i in range(seq)]
                    ),
                )
            got = [
                graph.op("GatherGrad", d, positions, domain="edgewise", rows=cos.shape[0])
                for d in got
            ]
        out[table : table + 2] = got
    return out


rotary_ms = Op("RotaryEmbedding", MS)


@rotary_ms.infer
def rotary_ms_infer(node: BoundNode) -> Inferred:
    x, ids, cos, sin = node.inputs[:4]
    heads, rotary = (
        node.attr("num_heads", 0),
        node.attr("rotary_embedding_dim", 0) or 2 * cos.shape[-1],
    )
    if (
        x.rank not in (3, 4)
        or x.dtype != FLOAT
        or cos.rank != 2
        or list(sin.shape) != list(cos.shape)
        or 2 * cos.shape[1] != rotary
        or ids.dtype != INT64
    ):
        fail(node, f"its inputs {x}, {ids}, {cos}, {sin} are incompatible")
    seq = x.shape[2] if x.rank == 4 else x.shape[1]
    if ids.rank > 1 or not one_number(ids.shape):  # else it is the position of the first row
        check_positions(node, 1, x.shape[0], seq)
    if x.rank == 3:
        heads = heads or x.shape[2] // rotary
        if heads < 1 or x.shape[2] % heads or x.shape[2] // heads < rotary:
            fail(node, f"{x} does not divide into {heads} heads of at least {rotary} elements")
    return [like(node, 0)]


@rotary_ms.lower
def rotary_ms_lower(node: BoundNode, builder: Builder) -> None:
    ids = builder.contiguous(builder.view(node.inputs[1]))
    positions = 3 if len(ids.shape) < 2 else 2
    if positions == 3 and builder.view(node.inputs[0]).shape[0] != 1:
        ids = builder.contiguous(ids.broadcast([builder.view(node.inputs[0]).shape[0]]))
    _lower_rotary(
        node, builder, builder.view(node.inputs[2]), builder.view(node.inputs[3]), ids, positions
    )


@rotary_ms.grad
def rotary_ms_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    return _rotary_gradients(node, gradients, dy, 1, 2)
