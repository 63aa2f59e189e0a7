"""Operators on batches without their padding: the tokens of all rows, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, product, takes
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _places(graph: Binder, tokens: Value, offset: Value) -> Value:
    """Where each token stands in [batch * length], int64 [tokens, 1].

    Args:
        offset: [batch, length]: those of all tokens, then those of the padding.
    """
    flat = graph.reshape(graph.op("Cast", offset, to=INT64), [product(offset.shape)])
    return graph.reshape(cut(graph, flat, 0, 0, tokens.shape[0]), [tokens.shape[0], 1])


def padded(node: BoundNode, graph: Binder, tokens: Value, offset: Value) -> Value:
    """[tokens, width] as [batch, length, width], with zeros where there is no token."""
    if tokens.rank != 2 or offset.rank != 2 or offset.dtype != INT32:
        fail(
            node,
            f"its tokens {tokens} and their offsets {offset}; int32 [batch, length] is expected",
        )
    batch, length = offset.shape
    zeros = graph.op(
        "Expand",
        graph.constant(FLOAT, [1, 1], [0.0]),
        graph.ints([batch * length, tokens.shape[1]]),
    )
    y = graph.op("ScatterND", zeros, _places(graph, tokens, offset), tokens)
    return graph.reshape(y, [batch, length, tokens.shape[1]])


def _attended(
    node: BoundNode,
    graph: Binder,
    qkv: list[Value],
    offset: Value,
    ends: Value,
    added: Value | None,
) -> Value:
    """Attention of tokens to those of their row, [tokens, width].

    Args:
        qkv: queries, keys and values, [tokens, width] each.
        ends: how many tokens the rows before each one have, int32 [batch + 1].
    """
    batch, length = offset.shape
    if ends.dtype != INT32 or list(ends.shape) != [batch + 1]:
        fail(node, f"its cumulative lengths are {ends}; int32 [{batch + 1}] is expected")
    counts = graph.op("Sub", cut(graph, ends, 0, 1, batch + 1), cut(graph, ends, 0, 0, batch))
    y = graph.op(
        "MultiHeadAttention",
        *(padded(node, graph, x, offset) for x in qkv),
        None,
        counts,
        added,
        domain=MS,
        num_heads=node.attr("num_heads", 0),
        scale=node.attr("scale", 0.0),
        mask_filter_value=node.attr("mask_filter_value", -10000.0),
    )
    rows = graph.reshape(y, [batch * length, y.shape[2]])
    return graph.op("GatherND", rows, _places(graph, qkv[0], offset))


multi_head = Op("PackedMultiHeadAttention", MS)


@multi_head.decompose
def multi_head_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Inputs: query, key, value, bias, token_offset, cumulative lengths, attention_bias."""
    q, k, v, bias, offset, ends, added = [*node.inputs, *[None] * 3][:7]
    takes(node, (FLOAT,), 0, 1, 2, 3, 6)
    if q.rank == 4:  # [tokens, heads, 3, size]
        tokens, heads, three, size = q.shape
        if three != 3 or k is not None:
            fail(node, f"its query {q}; [tokens, heads, 3, size] without key and value is expected")
        q, k, v = (
            graph.reshape(cut(graph, q, 2, i, i + 1), [tokens, heads * size]) for i in range(3)
        )
    if k is None or v is None:
        fail(node, f"its query {q} without key and value")
    parts = [q, k, v]
    if bias is not None:
        at = [0, q.shape[1], q.shape[1] + k.shape[1], q.shape[1] + k.shape[1] + v.shape[1]]
        if list(bias.shape) != at[3:]:
            fail(node, f"its bias {bias} does not fit {q}, {k} and {v}")
        parts = [
            graph.op("Add", x, cut(graph, bias, 0, at[i], at[i + 1])) for i, x in enumerate(parts)
        ]
    return [_attended(node, graph, parts, offset, ends, added)]


attention = Op("PackedAttention", MS, half=[1], parameters=(1, 2))


@attention.decompose
def attention_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Inputs: x, weights, bias, token_offset, cumulative lengths, attention_bias."""
    x, w, bias, offset, ends, added = [*node.inputs, None][:6]
    takes(node, (FLOAT,), 0, 2, 5)
    sizes = list(node.attr("qkv_hidden_sizes") or []) or [w.shape[1] // 3] * 3
    if x.rank != 2 or w.rank != 2 or len(sizes) != 3 or sum(sizes) != w.shape[1]:
        fail(node, f"{x}, {w} and columns {sizes} of queries, keys and values do not fit")
    qkv = graph.op("MatMul", x, w)
    if bias is not None:
        qkv = graph.op("Add", qkv, bias)
    at = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
    parts = [cut(graph, qkv, 1, at[i], at[i + 1]) for i in range(3)]
    return [_attended(node, graph, parts, offset, ends, added)]


restore = Op("RestorePadding", MS)


@restore.decompose
def restore_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    takes(node, (FLOAT,), 0)
    return [padded(node, graph, *node.inputs[:2])]
