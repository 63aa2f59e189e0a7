"""GroupQueryAttention whose cache is an input of the model: with lengths that a run tells, keys and
values of another layer, bytes instead of floats, a window of the last positions, scores as output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT8, INT64, UINT8
from ...declare.needs import growth
from ...declare.op import MS, TooLong, fail, takes, unsupported
from ...declare.symbolic import Sym
from .attention_grad import part
from .attention_kernel import masking, shaped
from .rotary import check_positions
from .windowed_cache import Window

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Dim, Value


@dataclass
class _Cache:
    """Keys or values.

    Attributes:
        past: [batch, kv_heads, rows, dim], or with 4 bits dim / 2 bytes; None: there is none.
        new: float32 [batch, kv_heads, tokens, dim]; None: the past has all of them.
        scale: of quantized ones, which broadcasts to past; None: float32.
        bits: 8 or 4.
    """

    past: Value | None
    new: Value | None
    scale: Value | None
    bits: int

    def stored(self, graph: Binder) -> Value:
        """The new ones as the cache stores them."""
        assert self.new is not None
        return (
            self.new if self.scale is None else _quantized(graph, self.new, self.scale, self.bits)
        )

    def floats(self, graph: Binder, whole: Value) -> Value:
        """Rows of the cache as float32."""
        return whole if self.scale is None else _dequantized(graph, whole, self.scale, self.bits)


def is_shared(node: BoundNode) -> bool:
    """Whether its keys and values are those that another layer has put into the past."""
    return node.has(1) and node.inputs[1].rank == 3 and node.inputs[1].shape[1] == 0


def is_quantized(node: BoundNode) -> bool:
    return any(node.attr(f"{name}_quant_type", "NONE") != "NONE" for name in "kv")


@dataclass
class _Seen:
    """Which keys each query attends to.

    Attributes:
        starts, ends: position of the first query, and the number of keys, of each row: int64
            [batch]. ends is None where the mask alone decides.
        mask: of the scores, bool or numbers to add.
        causal, window: as of the kernel "attention".
    """

    starts: Value
    ends: Value | None
    mask: Value | None
    causal: int
    window: int


def cached_attention(
    node: BoundNode, graph: Binder, qkv: list[Value | None], heads: int, kv: int
) -> list[Value | None]:
    """The outputs of a GroupQueryAttention.

    Args:
        qkv: queries, keys and values, [batch, tokens, heads * dim]; keys and values None where they
            are in the past.
        heads, kv: of the queries, and of the keys.
    """

    def by_heads(x: Value, count: int) -> Value:
        x = graph.reshape(x, [*x.shape[:2], count, x.shape[2] // count])
        return graph.op("Transpose", x, perm=[0, 2, 1, 3])

    q, new_k, new_v = (
        by_heads(x, n) if x is not None else None for x, n in zip(qkv, (heads, kv, kv))
    )
    assert q is not None
    batch, _, tokens, dim = q.shape
    window = max(node.attr("local_window_size", -1), 0)
    _check(node, batch, kv, dim, window)
    starts, ends = _lengths(node, graph, batch, tokens, new_k is None)
    seen = _Seen(starts, ends, node.input(10), int(node.attr("causal", 1) != 0), window)
    if node.attr("do_rotary", 0):
        q, new_k = (_rotated(node, graph, x, starts) if x is not None else None for x in (q, new_k))
        assert q is not None
    caches = [_cache(node, i, x) for i, x in enumerate((new_k, new_v))]
    wholes, presents = _rows(node, graph, caches, seen, kv, tokens)
    keys, values = (c.floats(graph, x) for c, x in zip(caches, wholes))
    seen.mask = _widened(node, graph, seen.mask, batch, heads, tokens, keys.shape[2])
    attrs = {"scale": node.attr("scale", 0.0) or dim**-0.5, "softcap": node.attr("softcap", 0.0)}
    sink = _sink(node, graph, heads)
    y = graph.op(
        "CachedAttention",
        *(q, keys, values, seen.ends, seen.mask, sink),
        domain="edgewise",
        causal=seen.causal,
        window=seen.window,
        **attrs,
    )
    y = graph.reshape(
        graph.op("Transpose", y, perm=[0, 2, 1, 3]), [batch, tokens, heads * y.shape[3]]
    )
    outs: list[Value | None] = [y, *presents]
    if node.wants(3):
        outs.append(_scores(node, graph, q, keys, seen, sink, attrs))
    return outs[: len(node.outputs)]


def _rows(
    node: BoundNode, graph: Binder, caches: list[_Cache], seen: _Seen, kv: int, tokens: Dim
) -> tuple[list[Value], list[Value]]:
    """(keys and values to attend to, those of `present`), as the cache stores them."""
    if caches[0].new is None:
        pasts = [c.past for c in caches if c.past is not None]
        return pasts, pasts
    stored = [c.stored(graph) for c in caches]
    past = caches[0].past
    if past is None or (past.shape[2] == 0 and past.role != "cache"):
        return stored, stored
    if past.role == "cache":
        wholes = [graph.op("Concat", c.past, x, axis=2) for c, x in zip(caches, stored)]
        return wholes, wholes
    if node.attr("sliding_window_cache", 0):
        assert seen.ends is not None
        rows = Window(graph, past.shape[2], tokens, seen.window, seen.starts, seen.ends)
        wholes = [graph.op("Concat", c.past, x, axis=2) for c, x in zip(caches, stored)]
        seen.mask = rows.mask(node, seen.mask, node.attr("num_heads"))
        seen.ends, seen.causal, seen.window = None, 0, 0
        return wholes, [rows.kept(x) for x in wholes]
    count = grown(node, past.shape[2], tokens)
    index = _places(graph, past.shape[0], kv, tokens, seen.starts)
    wholes = [
        graph.op("ScatterGrown", c.past, index, x, domain="edgewise", rows=count)
        for c, x in zip(caches, stored)
    ]
    return wholes, wholes


def _scores(
    node: BoundNode,
    graph: Binder,
    q: Value,
    keys: Value,
    seen: _Seen,
    sink: Value | None,
    attrs: dict[str, float],
) -> Value:
    """The output output_qk, [batch, heads, tokens, total]: scores before (qk_output 1) or after
    (2) their softmax, 0 where a query does not attend to a key. They are computed a second time.
    """
    op, number = graph.op, lambda x: graph.constant(FLOAT, [], [x])
    (batch, heads, tokens, dim), (kv, rows) = q.shape, keys.shape[1:3]
    mode = node.attr("qk_output", 0)
    if mode not in (1, 2) or seen.ends is None:
        unsupported(node, f"scores as an output with qk_output = {mode}, or of a windowed cache")
    grouped = graph.reshape(q, [batch, kv, heads // kv * tokens, dim])
    scores = op("MatMul", grouped, op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = graph.reshape(scores, [batch, heads, tokens, rows])
    scores = op("Mul", scores, number(attrs["scale"]))
    if attrs["softcap"] > 0:
        cap = number(attrs["softcap"])
        scores = op("Mul", op("Tanh", op("Div", scores, cap)), cap)
    if seen.mask is not None:
        scores = op("Add", scores, seen.mask)

    def counted(n: Dim, shape: list[Dim]) -> Value:
        ends = (graph.constant(INT64, [], [i]) for i in (0, n, 1))
        return graph.reshape(op("Range", *ends), shape)

    key, first = counted(rows, [rows]), graph.reshape(seen.starts, [batch, 1, 1, 1])
    place = op("Add", first, counted(tokens, [tokens, 1]))
    visible = op("Less", key, graph.reshape(seen.ends, [batch, 1, 1, 1]))
    if seen.causal:
        visible = op("And", visible, op("LessOrEqual", key, place))
    if seen.window:
        near = op("Greater", op("Add", key, graph.constant(INT64, [], [seen.window])), place)
        visible = op("And", visible, near)
    if mode == 2:
        scores = op("Where", visible, scores, number(float("-inf")))
        if sink is not None:
            column = graph.reshape(sink, [1, heads, 1, 1])
            column = op("Expand", column, graph.ints([batch, heads, tokens, 1]))
            scores = op("Concat", scores, column, axis=3)
        scores = op("Softmax", scores, axis=3)
    else:
        scores = op("Where", visible, scores, number(0.0))
    total = rows if not node.has(6) else node.need(6)[0]
    if scores.shape[3] != total:
        scores = part(graph, scores, 3, 0, total)
    return scores


def grown(node: BoundNode, past: Dim, tokens: Dim) -> Dim:
    """The rows of `present`: the past may be a buffer with room after it."""
    if not node.has(6):
        return past + tokens
    if node.inputs[6].numbers is None:
        return past + growth(node, 6, 3, 2)
    (total,) = node.need(6)
    more = total - past
    if isinstance(more, Sym) and more.min <= 0 < more.max:
        raise TooLong(f"{total} positions exceed a past of {past} rows", node.where, more.max)
    return past if more <= 0 else total


def _check(node: BoundNode, batch: Dim, kv: int, dim: Dim, window: int) -> None:
    """Raises ModelError or UnsupportedOp where the cache does not fit."""
    takes(node, (FLOAT,), 10, 11, 12, 13)
    stored = dim
    if is_quantized(node):
        bits = node.attr("kv_cache_bit_width", 8)
        if bits not in (4, 8):
            unsupported(node, f"a cache of {bits} bits")
        takes(node, (INT8,) if bits == 8 else (UINT8,), 3, 4)
        stored = dim if bits == 8 else dim // 2
        if not node.has(12) or not node.has(13):
            fail(node, "its cache is quantized, but k_scale or v_scale is missing")
    else:
        takes(node, (FLOAT,), 3, 4)
    rows = node.inputs[3].shape[2] if node.has(3) else 0
    for i, name in ((3, "past_key"), (4, "past_value")):
        shaped(node, i, name, batch, kv, rows, stored)
    in_place = node.has(3) and node.inputs[3].role == "cache"
    if node.attr("sliding_window_cache", 0) and not in_place and not 0 < window <= rows:
        fail(
            node,
            f"its past {node.input(3)} has no room for a window of {window} positions",
            "Feed a past of at least local_window_size rows; they may be zeros.",
        )
    if node.attr("do_rotary", 0) and node.has(9):
        check_positions(node, 9, batch, node.inputs[0].shape[1])


def _lengths(
    node: BoundNode, graph: Binder, batch: Dim, tokens: Dim, shared: bool
) -> tuple[Value, Value]:
    """(position of the first query, number of keys) of each row, int64 [batch].

    A prompt begins at 0, whatever its padding: then all its tokens are keys. A cache of the engine
    has as many rows as tokens.
    """
    if node.has(3) and node.inputs[3].role == "cache":
        past = node.inputs[3].shape[2]
        starts, ends = (graph.constant(INT64, [1], [n]) for n in (past, past + tokens))
        return starts, ends
    one, count = graph.constant(INT64, [], [1]), graph.constant(INT64, [], [tokens])
    lengths = graph.op("Cast", graph.reshape(node.inputs[5], [batch]), to=INT64)
    lengths = graph.op("Add", lengths, one)
    starts = graph.op("Sub", lengths, count)
    if shared:
        return starts, lengths
    windowed = node.attr("sliding_window_cache", 0)
    if not node.has(3) or node.inputs[3].shape[2] == 0:
        starts = graph.op("Mul", starts, graph.constant(INT64, [], [0]))
    elif node.has(6):
        total = graph.op("Cast", graph.reshape(node.inputs[6], []), to=INT64)
        begins = graph.op("Equal", total, count)
        starts = graph.op("Where", begins, graph.constant(INT64, [], [0]), starts)
    return starts, lengths if windowed else graph.op("Add", starts, count)


def _rotated(node: BoundNode, graph: Binder, x: Value, starts: Value) -> Value:
    """x [batch, heads, tokens, dim] after its rotary embedding."""
    batch, _, tokens, _ = x.shape
    if node.has(9):
        ids = node.inputs[9]
    else:
        each = graph.op("Range", *(graph.constant(INT64, [], [i]) for i in (0, tokens, 1)))
        ids = graph.op("Add", graph.reshape(starts, [batch, 1]), each)
    cos, sin = node.inputs[7:9]
    return graph.op(
        "RotaryEmbedding",
        *(x, ids, cos, sin),
        domain=MS,
        interleaved=node.attr("rotary_interleaved", 0),
        rotary_embedding_dim=2 * cos.shape[1],
    )


def _places(graph: Binder, batch: Dim, kv: int, tokens: Dim, starts: Value) -> Value:
    """Where new keys and values go, int64 [batch, kv, tokens, 3]: row of the batch, head, place."""

    def counted(axis: int, count: Dim) -> Value:
        v = graph.op("Range", *(graph.constant(INT64, [], [i]) for i in (0, count, 1)))
        return graph.reshape(v, [count if a == axis else 1 for a in range(4)])

    place = graph.op("Add", graph.reshape(starts, [batch, 1, 1, 1]), counted(2, tokens))
    whole = graph.ints([batch, kv, tokens, 1])
    each = (counted(0, batch), counted(1, kv), place)
    return graph.op("Concat", *(graph.op("Expand", v, whole) for v in each), axis=3)


def _widened(
    node: BoundNode,
    graph: Binder,
    mask: Value | None,
    batch: Dim,
    heads: int,
    tokens: Dim,
    rows: Dim,
) -> Value | None:
    """The mask with a column for each row of the cache: those after the keys do not matter."""
    if mask is not node.input(10) or mask is None:
        return mask
    masking(node, 10, "attention_bias", batch, heads, tokens, mask.shape[-1])
    more = rows - mask.shape[-1]
    if mask.shape[-1] == 1 or more == 0:
        return mask
    if more < 0:
        fail(node, f"its attention_bias is {mask}; at most {rows} columns are expected")
    pads = graph.ints([0] * (2 * mask.rank - 1) + [more])
    return graph.op("Pad", mask, pads)


def _sink(node: BoundNode, graph: Binder, heads: int) -> Value | None:
    """The score of each head that takes a share of the softmax without a value."""
    if node.has(11):
        shaped(node, 11, "head_sink", heads)
        return node.inputs[11]
    if node.attr("smooth_softmax", 0) > 0:
        return graph.constant(FLOAT, [heads], [0.0] * heads)
    return None


# ---- quantized caches
def _cache(node: BoundNode, i: int, new: Value | None) -> _Cache:
    """Keys (i = 0) or values (i = 1) of the node."""
    scale = node.inputs[12 + i] if is_quantized(node) else None
    return _Cache(node.input(3 + i), new, scale, node.attr("kv_cache_bit_width", 8))


def _quantized(graph: Binder, x: Value, scale: Value, bits: int) -> Value:
    """round(x / scale), in int8; of 4 bits two in a byte, the first in the low bits, plus 8."""
    low, high = (-128.0, 127.0) if bits == 8 else (-8.0, 7.0)
    y = graph.op("Round", graph.op("Div", x, scale))
    y = graph.op("Clip", y, graph.constant(FLOAT, [], [low]), graph.constant(FLOAT, [], [high]))
    if bits == 8:
        return graph.op("Cast", y, to=INT8)
    pairs = graph.reshape(y, [*y.shape[:3], y.shape[3] // 2, 2])
    weights = graph.constant(FLOAT, [2], [1.0, 16.0])
    y = graph.op("Add", pairs, graph.constant(FLOAT, [], [8.0]))
    y = graph.op("ReduceSum", graph.op("Mul", y, weights), graph.ints([4]), keepdims=0)
    return graph.op("Cast", y, to=UINT8)


def _dequantized(graph: Binder, x: Value, scale: Value, bits: int) -> Value:
    y = graph.op("Cast", x, to=FLOAT)
    if bits == 4:
        high = graph.op("Floor", graph.op("Mul", y, graph.constant(FLOAT, [], [1 / 16])))
        low = graph.op("Sub", y, graph.op("Mul", high, graph.constant(FLOAT, [], [16.0])))
        both = [graph.op("Unsqueeze", v, graph.ints([4])) for v in (low, high)]
        y = graph.reshape(graph.op("Concat", *both, axis=4), [*x.shape[:3], 2 * x.shape[3]])
        y = graph.op("Sub", y, graph.constant(FLOAT, [], [8.0]))
    return graph.op("Mul", y, scale)
