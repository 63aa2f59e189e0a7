"""Biases by relative positions: T5's buckets, and WavLM's gate on them."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import MS, NotStatic, Op, Sym, fail, takes
from .packed import padded
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

relative = Op("RelativePositionBias", MS)


@relative.decompose
def relative_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """[1, heads, queries, keys]: the number of each head for the bucket of key - query.

    The table is declared as [buckets, heads], but a row of its memory is a head.
    """
    table = node.inputs[0]
    takes(node, (FLOAT,), 0)
    (queries,), (keys,) = node.need(1), node.need(2)
    both, longest = bool(node.attr("is_bidirectional", 0)), node.attr("max_distance", 0)
    if isinstance(queries, Sym) or isinstance(keys, Sym):
        raise NotStatic("buckets of positions that depend on the length of a run")
    if table.rank != 2 or longest < 1 or min(queries, keys) < 0:
        fail(node, f"its table {table}, of {queries} queries and {keys} keys up to {longest}")
    buckets, heads = table.shape
    distances = range(1 - queries, keys)
    by_distance = [_bucket(d, buckets, longest, both) for d in distances]
    places = [by_distance[k - q + queries - 1] for q in range(queries) for k in range(keys)]
    table = graph.reshape(table, [1, heads, buckets])
    return [graph.op("Gather", table, graph.constant(INT64, [queries, keys], places), axis=2)]


def _bucket(distance: int, buckets: int, longest: int, both: bool) -> int:
    """The bucket of a key that is `distance` behind its query: one for each short distance, and
    logarithmic ones up to `longest` (Raffel et al. 2020).
    """
    first = 0
    if both:
        buckets //= 2
        first = buckets if distance > 0 else 0
    exact, distance = buckets // 2, abs(distance)
    if distance < exact:
        return first + distance
    part = log(distance / exact) / log(longest / exact)
    return first + min(exact + int(part * (buckets - exact)), buckets - 1)


# Inputs: query, its bias, rel_pos, weight, bias, eco_a, token_offset.
gated = Op("GatedRelativePositionBias", MS)


@gated.decompose
def gated_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """rel_pos [1, heads, length, length] times a number of each query and head."""
    takes(node, (FLOAT,), *range(6))
    q, q_bias, rel_pos, w, bias, eco = node.inputs[:6]
    heads = node.attr("num_heads", 0)
    q = graph.op("Add", q, q_bias)
    if node.has(6):
        q = padded(node, graph, q, node.inputs[6])
    if q.rank != 3 or heads < 1 or q.shape[2] % heads or w.rank != 2 or w.shape[1] % 2:
        fail(node, f"its queries {q}, of {heads} heads, and weights {w}")
    batch, length, width = q.shape
    q = graph.reshape(q, [batch, length, heads, width // heads])
    q = graph.op("Transpose", q, perm=[0, 2, 1, 3])
    gates = graph.op("Add", graph.op("MatMul", q, w), bias)
    gates = graph.reshape(gates, [batch, heads, length, 2, w.shape[1] // 2])
    gates = graph.op("Sigmoid", graph.op("ReduceSum", gates, graph.ints([4]), keepdims=0))
    u, r = (cut(graph, gates, 3, i, i + 1) for i in (0, 1))
    one, two = (graph.constant(FLOAT, [], [x]) for x in (1.0, 2.0))
    inner = graph.op("Sub", graph.op("Mul", r, eco), one)
    return [graph.op("Mul", graph.op("Add", graph.op("Mul", u, inner), two), rel_pos)]
