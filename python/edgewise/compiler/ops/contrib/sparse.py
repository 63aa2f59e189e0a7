"""SparseAttention: attention within the blocks of a mask, as Phi-3-small has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32, INT64
from ...declare.op import MS, Dim, Op, fail, one_number, takes
from ..attention.attention_kernel import shaped
from .slicing import counted, cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

# Inputs: query, key, value, past_key, past_value, block_row_indices, block_col_indices,
# total_sequence_length, key_total_sequence_lengths, cos_cache, sin_cache.
sparse = Op("SparseAttention", MS)


def _checked(node: BoundNode) -> tuple[int, int, int]:
    """(query heads, key heads, elements of a head), once the node is valid."""
    q, past, heads, kv = (
        node.inputs[0],
        node.input(3),
        node.attr("num_heads"),
        node.attr("kv_num_heads"),
    )
    takes(node, (FLOAT,), 0, 1, 2, 3, 4, 9, 10)
    takes(node, (INT32,), 5, 6, 7, 8)
    shared = heads if node.has(1) else heads + 2 * kv
    if heads < 1 or kv < 1 or heads % kv or q.rank != 3 or q.shape[2] % shared:
        fail(node, f"its query {q} does not divide into {heads} query heads and {kv} key heads")
    if node.has(1) != node.has(2) or past is None or past.rank != 4 or not node.has(4):
        fail(node, f"its key {node.input(1)}, value {node.input(2)} and past_key {past}")
    (batch, tokens), dim = q.shape[:2], q.shape[2] // shared
    for i, name in ((1, "key"), (2, "value")):
        shaped(node, i, name, batch, tokens, kv * dim)
    for i, name in ((3, "past_key"), (4, "past_value")):
        shaped(node, i, name, batch, kv, past.shape[2], dim)
    shaped(node, 8, "key_total_sequence_lengths", batch)
    if any(not node.has(i) for i in range(5, 9)) or not one_number(node.inputs[7].shape):
        fail(node, f"its total_sequence_length is {node.input(7)}; one number is expected")
    rows, columns, size = *node.inputs[5:7], node.attr("sparse_block_size", 0)
    if (
        rows.rank != 2
        or columns.rank != 2
        or rows.shape[0] != columns.shape[0]
        or rows.shape[0] < 1
        or heads % rows.shape[0]
        or size < 1
        or (rows.shape[1] - 1) * size < past.shape[2]
    ):
        fail(
            node,
            f"its block mask {rows}, {columns} in blocks of {size} does not fit {heads} heads and"
            f" a past of {past.shape[2]} rows",
        )
    return heads, kv, dim


def _blocks(graph: Binder, rows: Value, columns: Value) -> Value:
    """Which blocks of keys each block of queries attends to, bool [layouts, blocks, blocks].

    Args:
        rows, columns: for each layout the CSR form of its mask.
    """
    op, (layouts, count), entries = graph.op, rows.shape, columns.shape[1]
    blocks = count - 1
    ends = op("Cast", cut(graph, rows, 1, 1, count), to=INT64)
    ends = graph.reshape(ends, [layouts, 1, blocks])
    after = op("GreaterOrEqual", graph.reshape(counted(graph, entries), [entries, 1]), ends)
    row = op("ReduceSum", op("Cast", after, to=INT64), graph.ints([2]), keepdims=0)
    # entries of the padding are in a row after the last one, and so are cut
    column = op("Max", op("Cast", columns, to=INT64), graph.constant(INT64, [], [0]))
    layout = graph.reshape(counted(graph, layouts), [layouts, 1])
    layout = op("Expand", layout, graph.ints([layouts, entries]))
    index = op(
        "Concat", *(op("Unsqueeze", v, graph.ints([2])) for v in (layout, row, column)), axis=2
    )
    none = op(
        "Expand", graph.constant(FLOAT, [1], [0.0]), graph.ints([layouts, blocks + 1, blocks])
    )
    one = op("Expand", graph.constant(FLOAT, [1], [1.0]), graph.ints([layouts, entries]))
    return op("Cast", cut(graph, op("ScatterND", none, index, one), 1, 0, blocks), to=BOOL)


@sparse.decompose
def sparse_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """GroupQueryAttention's cache, and a mask of blocks for the scores."""
    heads, kv, dim = _checked(node)
    op, size, past = graph.op, node.attr("sparse_block_size"), node.inputs[3]
    (batch, tokens), room = node.inputs[0].shape[:2], past.shape[2]
    lengths = op("Cast", node.inputs[8], to=INT64)
    total = op("Cast", graph.reshape(node.inputs[7], []), to=INT64)
    count, zero = (graph.constant(INT64, [], [n]) for n in (tokens, 0))
    # a prompt begins at 0, whatever its padding
    starts = op("Where", op("Equal", total, count), zero, op("Sub", lengths, count))
    place = op("Add", graph.reshape(starts, [batch, 1]), counted(graph, tokens))
    parts: list[Value | None] = [*node.inputs[:3]]
    if not node.has(1):
        at = [0, heads * dim, (heads + kv) * dim, (heads + 2 * kv) * dim]
        parts = [cut(graph, node.inputs[0], 2, at[i], at[i + 1]) for i in range(3)]
    q, k, v = (
        _by_heads(node, graph, x, n, place if turned else None)
        for x, n, turned in zip(parts, (heads, kv, kv), (True, True, False))
    )
    keys, values = (_appended(graph, node.inputs[3 + i], x, place) for i, x in enumerate((k, v)))
    key = counted(graph, room)
    seen = _blocks(graph, *node.inputs[5:7])
    layouts = seen.shape[0]
    each = op("Div", op("Min", place, graph.constant(INT64, [], [room - 1])), graph.ints([size]))
    seen = op("Gather", seen, op("Div", key, graph.ints([size])), axis=2)
    seen = op("Gather", seen, each, axis=1)  # [layouts, batch, tokens, room]
    seen = op("Transpose", seen, perm=[1, 0, 2, 3])
    if layouts > 1:
        order = graph.constant(INT64, [heads], [h % layouts for h in range(heads)])
        seen = op("Gather", seen, order, axis=1)
    past_ones = op("LessOrEqual", key, graph.reshape(place, [batch, 1, tokens, 1]))
    y = op(
        "CachedAttention",
        *(q, keys, values, None, op("And", seen, past_ones)),
        domain="edgewise",
        scale=node.attr("scale", 0.0) or dim**-0.5,
    )
    y = graph.reshape(op("Transpose", y, perm=[0, 2, 1, 3]), [batch, tokens, heads * dim])
    return [y, keys, values][: len(node.outputs)]


def _by_heads(
    node: BoundNode, graph: Binder, x: Value | None, heads: int, place: Value | None
) -> Value:
    """x [batch, tokens, heads * dim] as [batch, heads, tokens, dim], rotated where a place is
    given and the node rotates.
    """
    assert x is not None
    (batch, tokens), dim = x.shape[:2], x.shape[2] // heads
    x = graph.op("Transpose", graph.reshape(x, [batch, tokens, heads, dim]), perm=[0, 2, 1, 3])
    if place is None or not node.attr("do_rotary", 0):
        return x
    if not node.has(9) or not node.has(10):
        fail(node, "do_rotary is 1, but cos_cache or sin_cache is missing")
    shaped(node, 9, "cos_cache", None, dim // 2)
    shaped(node, 10, "sin_cache", *node.inputs[9].shape)
    return graph.op(
        "RotaryEmbedding",
        *(x, place, *node.inputs[9:11]),
        domain=MS,
        interleaved=node.attr("rotary_interleaved", 0),
    )


def _appended(graph: Binder, past: Value, new: Value, place: Value) -> Value:
    """The cache with new keys or values at their places."""
    batch, kv, tokens, _ = new.shape
    whole = graph.ints([batch, kv, tokens, 1])

    def spread(v: Value, shape: list[Dim]) -> Value:
        return graph.op("Expand", graph.reshape(v, shape), whole)

    index = graph.op(
        "Concat",
        spread(counted(graph, batch), [batch, 1, 1, 1]),
        spread(counted(graph, kv), [kv, 1, 1]),
        spread(place, [batch, 1, tokens, 1]),
        axis=3,
    )
    return graph.op("ScatterND", past, index, new)
