"""A slice of a tensor along one axis, as operators of com.microsoft are composed of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import Dim

if TYPE_CHECKING:
    from ...declare.annotations import Binder, Value


def cut(graph: Binder, v: Value, axis: int, start: Dim, end: Dim, step: int = 1) -> Value:
    """v[start:end:step] along an axis."""
    return graph.op("Slice", v, *(graph.ints([i]) for i in (start, end, axis, step)))


def counted(graph: Binder, n: Dim) -> Value:
    """0, 1, ... n - 1, int64."""
    return graph.op("Range", *(graph.constant(INT64, [], [i]) for i in (0, n, 1)))


def owners(graph: Binder, ends: Value, tokens: Dim) -> Value:
    """The request of each token, int64 [tokens].

    Args:
        ends: how many tokens the requests before each one have, int64 [requests + 1].
    """
    batch = ends.shape[0] - 1
    own = graph.reshape(cut(graph, ends, 0, 1, batch + 1), [1, batch])
    after = graph.op("GreaterOrEqual", graph.reshape(counted(graph, tokens), [tokens, 1]), own)
    return graph.op("ReduceSum", graph.op("Cast", after, to=INT64), graph.ints([1]), keepdims=0)
