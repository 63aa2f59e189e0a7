"""com.microsoft's Attention, which projects its queries, keys and values itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, FLOAT, INT32
from ...declare.op import MS, Dim, Op, fail, takes, unsupported
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

attention = Op("Attention", MS, half=[1], parameters=(1, 2))


@dataclass(frozen=True)
class _AttentionSizes:
    """Of an Attention node.

    Attributes:
        batch, queries: the first two dimensions of the input.
        heads: how many there are.
        hidden: columns of the queries, of the keys and of the values, of all heads.
        past: how many keys the past has.
    """

    batch: Dim
    queries: Dim
    heads: int
    hidden: list[int]
    past: Dim

    @property
    def keys(self) -> Dim:
        """How many keys there are, with those of the past."""
        return self.queries + self.past


def _checked_sizes(node: BoundNode) -> _AttentionSizes:
    """The node's sizes. Raises ModelError or UnsupportedOp where its inputs do not fit."""
    x, w, bias, _, past, _, past_length = [*node.inputs, *[None] * 7][:7]
    takes(node, (FLOAT,), 0, 2, 4, 5)
    heads, sizes = node.attr("num_heads", 0), list(node.attr("qkv_hidden_sizes") or [])
    if (
        past_length is not None
        or node.attr("past_present_share_buffer", 0)
        or node.attr("do_rotary", 0)
    ):
        unsupported(node, "a past that shares its buffer, or rotary positions")
    if x.rank != 3 or w.rank != 2 or w.shape[0] != x.shape[2] or heads < 1:
        fail(node, f"{x}, {w} and {heads} heads do not fit")
    sizes = sizes or [w.shape[1] // 3] * 3
    if (
        len(sizes) != 3
        or sum(sizes) != w.shape[1]
        or sizes[0] != sizes[1]
        or any(s % heads for s in sizes)
        or bias is not None
        and list(bias.shape) != [w.shape[1]]
    ):
        fail(
            node,
            f"{heads} heads of queries, keys and values of {sizes} columns do not fit {w} and"
            f" {bias}",
        )
    batch, queries, _ = x.shape
    if past is not None and (
        past.rank != 5
        or past.shape[:3] != [2, batch, heads]
        or past.shape[4] != sizes[0] // heads
        or sizes[2] != sizes[0]
    ):
        fail(node, f"its past {past} does not fit")
    return _AttentionSizes(batch, queries, heads, sizes, past.shape[3] if past is not None else 0)


def _attention_mask(
    node: BoundNode, graph: Binder, mask: Value, sizes: _AttentionSizes, low: float
) -> Value:
    """The mask as numbers to add to scores, [batch, 1, 1 or queries, keys]: `low` for a key that a
    query must not attend to, else 0.
    """
    takes(node, (INT32,), 3)
    shape, batch, queries, keys = list(mask.shape), sizes.batch, sizes.queries, sizes.keys
    if shape in ([batch], [2 * batch], [3 * batch + 2]):
        # The end of each sequence's keys, then its beginning; the third form adds offsets for
        # packed batches, which are not needed.
        at = graph.op("Range", *(graph.constant(INT32, [], [k]) for k in (0, keys, 1)))
        ends = graph.op("Reshape", cut(graph, mask, 0, 0, batch), graph.ints([batch, 1]))
        seen = graph.op("Less", at, ends)
        if shape == [2 * batch] and batch:
            starts = graph.op(
                "Reshape", cut(graph, mask, 0, batch, 2 * batch), graph.ints([batch, 1])
            )
            seen = graph.op("And", seen, graph.op("GreaterOrEqual", at, starts))
        shape = [batch, keys]
    elif shape in ([batch, keys], [batch, queries, keys]):
        seen = graph.op("Cast", mask, to=BOOL)
    elif len(shape) == 4 and shape[:2] == [batch, 1] and shape[2] == shape[3] >= keys:
        # A square over all positions: the rows after the past belong to the queries.
        rows = cut(graph, mask, 2, keys - queries, keys)
        seen = graph.op("Cast", cut(graph, rows, 3, 0, keys), to=BOOL)
        shape = [batch, queries, keys]
    else:
        unsupported(
            node,
            f"the mask {mask}",
            "Masks [batch], [2 * batch], [3 * batch + 2], [batch, keys], [batch, queries, keys] and"
            " [batch, 1, positions, positions] can be computed.",
        )
    seen = graph.reshape(seen, [batch, 1, *([1] if len(shape) == 2 else []), *shape[1:]])
    return graph.op(
        "Where", seen, graph.constant(FLOAT, [], [0.0]), graph.constant(FLOAT, [], [low])
    )


@attention.decompose
def attention_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The projection, then ONNX's Attention."""
    sizes = _checked_sizes(node)
    x, w, bias, mask, past, added, _ = [*node.inputs, *[None] * 7][:7]
    qkv = graph.op("MatMul", x, w)
    if bias is not None:
        qkv = graph.op("Add", qkv, bias)
    width = sizes.hidden[0]
    at = [0, width, 2 * width, w.shape[1]]
    q, k, v = (cut(graph, qkv, 2, at[i], at[i + 1]) for i in range(3))
    first: list[Value | None] = [None, None]
    if past is not None:
        first = [graph.reshape(cut(graph, past, 0, i, i + 1), [*past.shape[1:]]) for i in (0, 1)]
    low = node.attr("mask_filter_value", -10000.0)
    if mask is not None and list(mask.shape) in ([1, 1], [sizes.batch, 1]):
        mask = None  # one number for all keys of a row has no effect on a softmax
    biases = [_attention_mask(node, graph, mask, sizes, low)] if mask is not None else []
    biases += [added] if added is not None else []
    y, keys, values = graph.op(
        "Attention",
        q,
        k,
        v,
        graph.op("Add", *biases) if len(biases) == 2 else biases[0] if biases else None,
        *first,
        outputs=3,
        q_num_heads=sizes.heads,
        kv_num_heads=sizes.heads,
        is_causal=int(bool(node.attr("unidirectional", 0))),
        **({"scale": node.attr("scale", 0.0)} if node.attr("scale", 0.0) else {}),
    )
    if not node.wants(1):
        return [y]
    present = [graph.op("Unsqueeze", p, graph.ints([0])) for p in (keys, values)]
    return [y, graph.op("Concat", *present, axis=0)]
