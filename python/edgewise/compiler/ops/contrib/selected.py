"""DynamicSparseAttention: attention to keys that a selector has chosen for each token, of the cache
(Qwen4-Exp) or of an auxiliary sequence beside a window of the cache (DeepSeek V4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...declare.dtypes import BOOL, FLOAT, INT8, INT32, INT64
from ...declare.op import MS, Dim, Op, fail, product, takes, unsupported
from ..attention.attention_kernel import shaped
from .slicing import counted, cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

# Inputs: query, key, value, past_key, past_value, auxiliary_key, auxiliary_value,
# selected_indices, selected_counts, seqlens_k, total_sequence_length, cos_cache, sin_cache,
# position_ids, q_norm_weight, k_norm_weight, head_sink, committed_length, key_scale, value_scale.
# Without key and value, query holds all three.
selected = Op("DynamicSparseAttention", MS)

FORMS = {("selected_only", "main"), ("local_plus_selected", "auxiliary")}


def _checked(node: BoundNode) -> tuple[int, int, int]:
    """(query heads, key heads, elements of a head), once the node is valid."""
    q, heads, kv = node.inputs[0], node.attr("num_heads"), node.attr("kv_num_heads")
    form = node.attr("attention_mode", "selected_only"), node.attr("selected_kv_source", "main")
    if form not in FORMS or not node.attr("is_causal", 1) or node.attr("output_bf16", 0):
        unsupported(node, f"{form[0]} with {form[1]} keys, without is_causal, or with output_bf16")
    if node.wants(3):
        unsupported(node, "validation_status as an output")
    takes(node, (FLOAT,), 0, 1, 2, 5, 6, 11, 12, 14, 15, 16, 18, 19)
    takes(node, (INT32, INT64), 7, 8, 9, 10, 13)
    shared = heads if node.has(1) else heads + 2 * kv
    if heads < 1 or kv < 1 or heads % kv or q.rank != 3 or q.shape[2] % shared:
        fail(node, f"its query {q} does not divide into {heads} query heads and {kv} key heads")
    (batch, tokens), dim = q.shape[:2], q.shape[2] // shared
    for i, name in ((1, "key"), (2, "value")):
        shaped(node, i, name, batch, tokens, kv * dim)
    for i, name in ((5, "auxiliary_key"), (6, "auxiliary_value")):
        shaped(node, i, name, batch, kv, None, dim)
    rows = node.input(7)
    if node.has(1) != node.has(2) or rows is None or rows.rank != 2 or not node.has(8):
        fail(node, f"its key {node.input(1)}, value {node.input(2)} and selected_indices {rows}")
    if any(not node.has(i) for i in (9, 10)) or form[1] == "auxiliary" and not node.has(5):
        fail(node, "seqlens_k, total_sequence_length or auxiliary_key is missing")
    if node.attr("local_window_size", 0) < 1 and form[1] == "auxiliary":
        fail(node, "local_plus_selected needs a local_window_size")
    for i, shape in ((14, [dim]), (15, [dim]), (16, [heads]), (18, [kv * dim]), (19, [kv * dim])):
        shaped(node, i, "weight, sink or scale", *shape)
    return heads, kv, dim


@selected.decompose
def selected_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """GroupQueryAttention's cache, and a mask of the keys that are chosen."""
    heads, kv, dim = _checked(node)
    op, (batch, tokens) = graph.op, node.inputs[0].shape[:2]
    parts: list[Any] = [*node.inputs[:3]]
    if not node.has(1):
        at = [0, heads * dim, (heads + kv) * dim, (heads + 2 * kv) * dim]
        parts = [cut(graph, node.inputs[0], 2, at[i], at[i + 1]) for i in range(3)]
    place = _places(node, graph, batch, tokens)
    q = _turned(node, graph, parts[0], heads, node.input(14), place)
    k = _turned(node, graph, parts[1], kv, node.input(15), place)
    pasts = _cached(node, graph, k, parts[2], heads, kv, dim)
    keys, values = (_floats(node, graph, x, i, kv, dim) for i, x in enumerate(pasts))
    rows = keys.shape[2]
    last = graph.reshape(place, [batch, 1, tokens, 1])
    key = counted(graph, rows)
    seen = op("LessOrEqual", key, last)
    beside = node.attr("selected_kv_source", "main") == "auxiliary"
    if beside:
        window = graph.constant(INT64, [], [node.attr("local_window_size")])
        seen = op("And", seen, op("Greater", op("Add", key, window), last))
        more = node.inputs[5]
        chosen = _chosen(node, graph, batch, tokens, more.shape[2])
        seen = op("Concat", seen, chosen, axis=3)
        keys = op("Concat", keys, more, axis=2)
        values = op("Concat", values, node.input(6) or more, axis=2)
    else:
        seen = op("And", seen, _chosen(node, graph, batch, tokens, rows))
    sink = node.input(16)
    if sink is None and node.attr("smooth_softmax", 0):
        sink = graph.constant(FLOAT, [heads], [0.0] * heads)
    y = op(
        "CachedAttention",
        *(q, keys, values, None, seen, sink),
        domain="edgewise",
        scale=node.attr("scale", 0.0) or dim**-0.5,
    )
    if not beside:  # a token without keys gives zeros
        some = op("Greater", node.inputs[8], op("Sub", node.inputs[8], node.inputs[8]))
        some = graph.reshape(some, [batch, 1, tokens, 1])
        y = op("Where", some, y, graph.constant(FLOAT, [], [0.0]))
    y = graph.reshape(op("Transpose", y, perm=[0, 2, 1, 3]), [batch, tokens, heads * dim])
    return [y, *pasts][: len(node.outputs)]


def _places(node: BoundNode, graph: Binder, batch: Dim, tokens: Dim) -> Value:
    """The position of each token, int64 [batch, tokens]. A cache of the engine has as many rows as
    tokens; a prompt begins at 0, whatever its padding.
    """
    past = node.input(3)
    if past is not None and past.role == "cache":
        starts = graph.constant(INT64, [1], [past.shape[2]])
    else:
        count, zero = (graph.constant(INT64, [], [n]) for n in (tokens, 0))
        lengths = graph.op("Cast", graph.reshape(node.inputs[9], [batch]), to=INT64)
        lengths = graph.op("Add", lengths, graph.constant(INT64, [], [1]))
        total = graph.op("Cast", graph.reshape(node.inputs[10], []), to=INT64)
        begins = graph.op("Equal", total, count)
        starts = graph.op("Where", begins, zero, graph.op("Sub", lengths, count))
    starts = graph.op("Add", graph.reshape(starts, [-1, 1]), counted(graph, tokens))
    return graph.op("Expand", starts, graph.ints([batch, tokens]))


def _turned(
    node: BoundNode, graph: Binder, x: Value, heads: int, weight: Value | None, place: Value
) -> Value:
    """Queries or keys [batch, heads, tokens, dim] after their norm and rotary embedding."""
    (batch, tokens), dim = x.shape[:2], x.shape[2] // heads
    x = graph.reshape(x, [batch, tokens, heads, dim])
    if weight is not None:
        epsilon = node.attr("qk_norm_epsilon", 1e-6)
        x = graph.op("SimplifiedLayerNormalization", x, weight, epsilon=epsilon)
    x = graph.op("Transpose", x, perm=[0, 2, 1, 3])
    if not node.attr("do_rotary", 0):
        return x
    if not node.has(11) or not node.has(12):
        fail(node, "do_rotary is 1, but cos_cache or sin_cache is missing")
    width, first = 2 * node.inputs[11].shape[1], node.attr("rotary_offset", 0)
    if first < 0 or first + width > dim:
        fail(node, f"its rotary_offset {first} leaves no room for {width} of {dim} channels")
    ids = graph.op("Cast", node.inputs[13], to=INT64) if node.has(13) else place
    y = graph.op(
        "RotaryEmbedding",
        *(cut(graph, x, 3, first, first + width), ids, *node.inputs[11:13]),
        domain=MS,
        interleaved=node.attr("rotary_interleaved", 0),
    )
    around = [cut(graph, x, 3, 0, first)] if first else []
    after = [cut(graph, x, 3, first + width, dim)] if first + width < dim else []
    return graph.op("Concat", *around, y, *after, axis=3) if around or after else y


def _cached(
    node: BoundNode, graph: Binder, k: Value, v: Value, heads: int, kv: int, dim: int
) -> list[Value]:
    """The keys and values of `present`."""
    batch, _, tokens, _ = k.shape
    k = graph.reshape(graph.op("Transpose", k, perm=[0, 2, 1, 3]), [batch, tokens, kv * dim])
    nothing = graph.op(
        "Expand", graph.constant(FLOAT, [1], [0.0]), graph.ints([batch, tokens, heads * dim])
    )
    scales: list[Any] = [
        graph.reshape(node.inputs[i], [1, kv, 1, dim]) if node.has(i) else None for i in (18, 19)
    ]
    quantized = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"} if scales[0] else {}
    lengths = [graph.op("Cast", node.inputs[i], to=INT32) for i in (9, 10)]
    inputs = [nothing, k, v, node.input(3), node.input(4), *lengths, *[None] * 5, *scales]
    while inputs[-1] is None:
        inputs.pop()
    _, *pasts = graph.op(
        "GroupQueryAttention",
        *inputs,
        domain=MS,
        outputs=3,
        num_heads=heads,
        kv_num_heads=kv,
        **quantized,
    )
    return pasts


def _floats(node: BoundNode, graph: Binder, x: Value, i: int, kv: int, dim: int) -> Value:
    """Keys (i = 0) or values (i = 1) of the cache as float32."""
    if x.dtype != INT8:
        return x
    scale = graph.reshape(node.inputs[18 + i], [1, kv, 1, dim])
    return graph.op("Mul", graph.op("Cast", x, to=FLOAT), scale)


def _chosen(node: BoundNode, graph: Binder, batch: Dim, tokens: Dim, rows: Dim) -> Value:
    """Which keys are chosen, bool [batch, 1, tokens, rows]."""
    op, most = graph.op, node.inputs[7].shape[1]
    counts = op("Cast", graph.reshape(node.inputs[8], [product([batch, tokens]), 1]), to=INT64)
    valid = op("Less", counted(graph, most), counts)
    end = graph.constant(INT64, [], [rows])
    index = op("Where", valid, op("Cast", node.inputs[7], to=INT64), end)
    none = op(
        "Expand",
        graph.constant(FLOAT, [1], [0.0]),
        graph.ints([product([batch, tokens]), rows + 1]),
    )
    one = op(
        "Expand", graph.constant(FLOAT, [1], [1.0]), graph.ints([product([batch, tokens]), most])
    )
    marks = cut(graph, op("ScatterElements", none, index, one, axis=1), 1, 0, rows)
    return graph.reshape(op("Cast", marks, to=BOOL), [batch, 1, tokens, rows])
