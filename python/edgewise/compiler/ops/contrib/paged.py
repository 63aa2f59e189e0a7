"""PagedAttention: tokens of several requests without padding, and caches of blocks that a table
assigns to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...declare.dtypes import E4M3FN, FLOAT, INT8, INT32, INT64
from ...declare.op import MS, Dim, Op, fail, one_number, product, takes, unsupported
from ..attention.attention_kernel import shaped
from .slicing import counted, cut, owners

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

# Inputs: query, key, value, key_cache, value_cache, cumulative_sequence_length, past_seqlens,
# block_table, cos_cache, sin_cache, slot_mapping, head_sink, q_norm_weight, k_norm_weight, k_scale,
# v_scale, attention_metadata (bounds for launches on a GPU, which are not needed).
paged = Op("PagedAttention", MS)


@dataclass(frozen=True)
class _Sizes:
    """Of a node.

    Attributes:
        tokens: of all requests.
        batch: requests.
        heads, kv, dim: heads of queries, heads of keys, elements of a head.
        v_dim: elements of a head of values, where they are in the rows of the keys; 0: they have
            a cache of their own.
        blocks, rows: of the cache: their number, and the rows of each one.
    """

    tokens: Dim
    batch: Dim
    heads: int
    kv: int
    dim: int
    v_dim: int
    blocks: Dim
    rows: Dim


def _sizes(node: BoundNode) -> _Sizes:
    """The node's sizes. Raises ModelError where its inputs do not fit."""
    q, cache, ends = node.inputs[0], node.inputs[3], node.inputs[5]
    heads, kv, layout = node.attr("num_heads"), node.attr("kv_num_heads"), _layout(node)
    if q.rank != 2 or cache is None or cache.rank != 4 or ends is None or ends.rank != 1:
        fail(node, f"its query {q}, key_cache {cache} and cumulative lengths {ends}")
    if not node.has(1) and layout == "LATENT":
        fail(node, "its key is missing, which a LATENT cache needs", "Export the model again.")
    shared = heads if node.has(1) else heads + 2 * kv
    if heads < 1 or kv < 1 or heads % kv or not shared or q.shape[1] % shared:
        fail(node, f"its query {q} does not divide into {heads} query heads and {kv} key heads")
    dim, batch, tokens = q.shape[1] // shared, ends.shape[0] - 1, q.shape[0]
    v_dim = (node.attr("v_head_size", 0) or dim) if layout == "LATENT" else 0
    if not 0 <= v_dim <= dim or v_dim and (kv != 1 or node.has(2) or node.has(4)):
        fail(
            node,
            f"its cache is LATENT: one key head, no value and no value_cache are expected, and a"
            f" v_head_size of at most {dim}, not {v_dim}",
            "Export the model again.",
        )
    if layout == "SEPARATE" and (node.has(1) != node.has(2) or not node.has(4)):
        fail(node, "one of key and value, or value_cache, is missing")
    if v_dim not in (0, dim) and not node.attr("scale", 0.0):
        fail(node, "its scale is missing, which a v_head_size needs", "Export the model again.")
    shaped(node, 1, "key", tokens, kv * dim)
    shaped(node, 2, "value", tokens, kv * dim)
    blocks, rows = cache.shape[:2]
    for i, name in ((3, "key_cache"), (4, "value_cache")):
        shaped(node, i, name, blocks, rows, kv, dim)
    for i, name, *shape in (
        (5, "cumulative_sequence_length", batch + 1),
        (6, "past_seqlens", batch),
        (7, "block_table", batch, None),
        (10, "slot_mapping", tokens),
    ):
        shaped(node, i, name, *shape)
        if i < 8 and not node.has(i) or node.has(i) and node.inputs[i].dtype != INT32:
            fail(node, f"its {name} is {node.input(i)}; int32 is expected")
    shaped(node, 11, "head_sink", heads)
    shaped(node, 12, "q_norm_weight", dim)
    shaped(node, 13, "k_norm_weight", dim)
    return _Sizes(tokens, batch, heads, kv, dim, v_dim, blocks, rows)


def _layout(node: BoundNode) -> str:
    layout = node.attr("kv_cache_layout", "SEPARATE")
    if layout not in ("SEPARATE", "LATENT"):
        fail(node, f"its kv_cache_layout is {layout!r}; SEPARATE or LATENT is expected")
    return str(layout)


@paged.decompose
def paged_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    """New keys and values go to their blocks first; then each request's blocks are gathered, and
    its queries attend to them. There is room for all tokens in each request, as only a run can tell
    their lengths.
    """
    takes(node, (FLOAT,), 0, 1, 2, 8, 9, 11, 12, 13, 14, 15)
    s = _sizes(node)
    op = graph.op
    ends = op("Cast", node.inputs[5], to=INT64)
    past, table = (op("Cast", node.inputs[i], to=INT64) for i in (6, 7))
    starts = cut(graph, ends, 0, 0, s.batch)
    lengths = op("Sub", cut(graph, ends, 0, 1, s.batch + 1), starts)
    request = owners(graph, ends, s.tokens)
    local = op("Sub", counted(graph, s.tokens), op("Gather", starts, request))
    place = op("Add", op("Gather", past, request), local)
    q, k, v = _parts(node, graph, s)
    q, k = (_turned(node, graph, x, place, 12 + i) for i, x in enumerate((q, k)))
    slots = _slots(node, graph, s, request, place, table)
    caches = [_written(node, graph, s, 0, k, slots)]
    if v is not None:
        caches.append(_written(node, graph, s, 1, v, slots))
    keys, *values = (_read(node, graph, s, i, c, table) for i, c in enumerate(caches))
    values = values or [cut(graph, keys, 3, 0, s.v_dim)]
    # [requests, tokens]: which token each query is; after the last one of a request any will do
    padded = op("Add", graph.reshape(starts, [s.batch, 1]), counted(graph, s.tokens))
    padded = op("Min", padded, graph.constant(INT64, [], [s.tokens - 1]))
    y = op(
        "CachedAttention",
        *(op("Transpose", op("Gather", q, padded, axis=0), perm=[0, 2, 1, 3]), keys, *values),
        None,
        _seen(node, graph, s, past, lengths, keys.shape[2]),
        node.input(11),
        domain="edgewise",
        scale=node.attr("scale", 0.0) or s.dim**-0.5,
        softcap=node.attr("softcap", 0.0),
    )
    width = s.heads * (s.v_dim or s.dim)
    y = graph.reshape(op("Transpose", y, perm=[0, 2, 1, 3]), [product([s.batch, s.tokens]), width])
    own = op("Add", op("Mul", request, graph.constant(INT64, [], [s.tokens])), local)
    outs: list[Value | None] = [op("Gather", y, own, axis=0), *caches]
    return outs[: len(node.outputs)]


def _parts(node: BoundNode, graph: Binder, s: _Sizes) -> tuple[Value, Value, Value | None]:
    """Queries, keys and values, [tokens, heads, dim]; no values where the keys hold them."""
    parts: list[Value | None] = [*node.inputs[:3]]
    if not node.has(1):
        at = [0, s.heads * s.dim, (s.heads + s.kv) * s.dim, (s.heads + 2 * s.kv) * s.dim]
        parts = [cut(graph, node.inputs[0], 1, at[i], at[i + 1]) for i in range(3)]
    q, k, v = (
        graph.reshape(x, [s.tokens, count, s.dim]) if x is not None else None
        for x, count in zip(parts, (s.heads, s.kv, s.kv))
    )
    assert q is not None and k is not None
    return q, k, v


def _turned(node: BoundNode, graph: Binder, x: Value, place: Value, norm: int) -> Value:
    """Queries or keys [tokens, heads, dim] after their norm, input `norm`, and their rotation."""
    if node.has(12) != node.has(13):
        fail(node, "one of q_norm_weight and k_norm_weight is missing")
    if node.has(norm):
        epsilon = node.attr("qk_norm_epsilon", 1e-6)
        x = graph.op("SimplifiedLayerNormalization", x, node.inputs[norm], epsilon=epsilon)
    if not node.attr("do_rotary", 0):
        return x
    if not node.has(8) or not node.has(9):
        fail(node, "do_rotary is 1, but cos_cache or sin_cache is missing")
    cos, sin = node.inputs[8:10]
    tokens, heads, dim = x.shape
    first, width = node.attr("rotary_offset", 0), 2 * cos.shape[-1]
    shaped(node, 8, "cos_cache", None, None)
    shaped(node, 9, "sin_cache", *cos.shape)
    if first < 0 or width < 2 or first + width > dim:
        fail(node, f"a rotation of {width} elements from {first} on does not fit heads of {dim}")
    turned = graph.reshape(cut(graph, x, 2, first, first + width), [1, tokens, heads, width])
    turned = graph.op(
        "RotaryEmbedding",
        graph.op("Transpose", turned, perm=[0, 2, 1, 3]),
        graph.reshape(place, [1, tokens]),
        *(cos, sin),
        domain=MS,
        interleaved=node.attr("rotary_interleaved", 0),
    )
    turned = graph.op("Transpose", turned, perm=[0, 2, 1, 3])
    parts = [graph.reshape(turned, [tokens, heads, width])]
    if first:
        parts.insert(0, cut(graph, x, 2, 0, first))
    if first + width < dim:
        parts.append(cut(graph, x, 2, first + width, dim))
    return graph.op("Concat", *parts, axis=2) if len(parts) > 1 else parts[0]


def _slots(
    node: BoundNode, graph: Binder, s: _Sizes, request: Value, place: Value, table: Value
) -> Value:
    """The row of the cache for each token, int64 [tokens]; -1: its keys are not written."""
    if node.has(10):
        return graph.op("Cast", node.inputs[10], to=INT64)
    rows = graph.constant(INT64, [], [s.rows])
    index = [graph.reshape(v, [s.tokens, 1]) for v in (request, graph.op("Div", place, rows))]
    block = graph.op("GatherND", table, graph.op("Concat", *index, axis=1))
    return graph.op("Add", graph.op("Mul", block, rows), graph.op("Mod", place, rows))


def _scale(node: BoundNode, graph: Binder, s: _Sizes, i: int) -> tuple[Value | None, int]:
    """(what the elements of the cache of keys (0) or values (1) are divided by, their type)."""
    name, cache, scale = "kv"[i], node.inputs[3 + i], node.input(14 + i)
    kind = node.attr(f"{name}_quant_type", "NONE")
    if node.attr(f"{name}_cache_dtype", "") in ("int4", "float4e2m1"):
        unsupported(node, "a cache of 4 bits", "Export it with a cache of 8 bits or more.")
    if kind == "NONE":
        takes(node, (FLOAT,), 3 + i)
        return None, FLOAT
    takes(node, (INT8, E4M3FN), 3 + i)
    if scale is None:
        fail(node, f"{name}_quant_type is {kind}, but {name}_scale is missing")
    if kind == "PER_CHANNEL":
        shaped(node, 14 + i, f"{name}_scale", s.kv, 1, s.dim)
        return graph.reshape(scale, [s.kv, s.dim]), cache.dtype
    if kind != "PER_TENSOR" or not one_number(scale.shape):
        fail(node, f"its {name}_quant_type is {kind!r}, and its scale {scale}")
    return graph.reshape(scale, []), cache.dtype


def _written(node: BoundNode, graph: Binder, s: _Sizes, i: int, new: Value, slots: Value) -> Value:
    """The cache of keys (0) or values (1) with the new ones in their rows."""
    op, (scale, dtype) = graph.op, _scale(node, graph, s, i)
    cache, count = node.inputs[3 + i], product([s.blocks, s.rows])
    if scale is not None:
        new = op("Div", new, scale)
        if dtype == INT8:
            low, high = (graph.constant(FLOAT, [], [x]) for x in (-128.0, 127.0))
            new = op("Clip", op("Round", new), low, high)
        new = op("Cast", new, to=dtype)
    flat = graph.reshape(cache, [count, s.kv, s.dim])
    if node.has(10):  # a row after the last one takes those that are not to be written
        flat = op("Concat", flat, cut(graph, flat, 0, 0, 1), axis=0)
        skipped = op("Less", slots, graph.constant(INT64, [], [0]))
        slots = op("Where", skipped, graph.constant(INT64, [], [count]), slots)
    flat = op("ScatterND", flat, graph.reshape(slots, [s.tokens, 1]), new)
    return graph.reshape(cut(graph, flat, 0, 0, count) if node.has(10) else flat, [*cache.shape])


def _read(node: BoundNode, graph: Binder, s: _Sizes, i: int, cache: Value, table: Value) -> Value:
    """Keys (0) or values (1) of each request as floats, [requests, kv, rows, dim]. What the unused
    entries of the table give is not seen.
    """
    table = graph.op("Max", table, graph.constant(INT64, [], [0]))
    x = graph.op("Gather", cache, table, axis=0)
    scale, _ = _scale(node, graph, s, i)
    if scale is not None:
        x = graph.op("Mul", graph.op("Cast", x, to=FLOAT), scale)
    x = graph.reshape(x, [s.batch, table.shape[1] * s.rows, s.kv, s.dim])
    return graph.op("Transpose", x, perm=[0, 2, 1, 3])


def _seen(
    node: BoundNode, graph: Binder, s: _Sizes, past: Value, lengths: Value, rows: Dim
) -> Value:
    """Which keys each query attends to, bool [requests, 1, tokens, rows]."""
    op, key = graph.op, counted(graph, rows)
    first, total = (graph.reshape(v, [s.batch, 1, 1, 1]) for v in (past, op("Add", past, lengths)))
    place = op("Add", first, graph.reshape(counted(graph, s.tokens), [s.tokens, 1]))
    seen = op("Less", key, total)
    causal, window = node.attr("is_causal", 1), node.attr("local_window_size", -1)
    if causal:
        seen = op("And", seen, op("LessOrEqual", key, place))
    if window > 0:
        near = op("Greater", op("Add", key, graph.constant(INT64, [], [window])), place)
        seen = op("And", seen, near)
    if causal or window > 0:
        return seen
    return op("Expand", seen, graph.ints([s.batch, 1, s.tokens, rows]))
