"""NGramRepeatBlock: no n-gram occurs twice in generated text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT64
from ...declare.op import MS, Op, fail
from ..attention.attention_kernel import shaped
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

ngram_repeat_block = Op("NGramRepeatBlock", MS)


@ngram_repeat_block.decompose
def ngram_repeat_block_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """The score of a token becomes -inf where it would complete an n-gram that the row already
    has.
    """
    ids, scores = node.inputs
    shaped(node, 0, "input_ids", None, None)
    size, (batch, length) = node.attr("ngram_size", 0), ids.shape
    shaped(node, 1, "scores", batch, None)
    if size < 1:
        fail(node, f"its ngram_size is {size}")
    count = length - size + 1
    if count < 1:
        return [scores]
    tail, same = cut(graph, ids, 1, count, length), None
    for j in range(size - 1):
        each = graph.op("Equal", cut(graph, ids, 1, j, j + count), cut(graph, tail, 1, j, j + 1))
        same = each if same is None else graph.op("And", same, each)
    low, high = (graph.constant(FLOAT, [], [v]) for v in (float("-inf"), float("inf")))
    limit = (
        graph.op("Where", same, low, high)
        if same is not None
        else graph.op("Expand", low, graph.ints([batch, count]))
    )
    return [
        graph.op(
            "ScatterElements",
            scores,
            graph.op("Cast", cut(graph, ids, 1, size - 1, length), to=INT64),
            limit,
            axis=1,
            reduction="min",
        )
    ]
