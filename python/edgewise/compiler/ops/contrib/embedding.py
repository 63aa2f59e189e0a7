"""EmbedLayerNormalization and its quantized form: sums of embeddings, normalized."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT8, INT32, INT64, UINT8
from ...declare.op import MS, Op, fail, one_number, one_type, takes
from ..attention.attention_kernel import shaped

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

embed = Op("EmbedLayerNormalization", MS, half=[2, 3, 4], parameters=(2, 3, 4, 5, 6))


@embed.decompose
def embed_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    """The layer norm of words + positions + segments; the number of tokens of each sequence that
    are not padding; the sum.
    """
    ids, segments, words, positions, segment_words, gamma, beta, mask, position_ids = [
        *node.inputs,
        *[None] * 9,
    ][:9]
    if ids.rank != 2:
        fail(node, f"its input_ids are {ids}")
    batch, seq = ids.shape
    shaped(node, 1, "segment_ids", batch, seq)
    width = words.shape[-1]
    for i, name in ((2, "word"), (3, "position"), (4, "segment")):
        shaped(node, i, f"{name} embedding", None, width)
    shaped(node, 5, "gamma", width)
    shaped(node, 6, "beta", width)
    shaped(node, 7, "mask", batch, seq)
    if position_ids is not None and position_ids.shape[:1] != [1]:
        shaped(node, 8, "position_ids", batch, seq)
    if position_ids is None:
        if seq > positions.shape[0]:
            fail(
                node,
                f"{seq} tokens are more than its {positions.shape[0]} positions",
                "Feed fewer tokens.",
            )
        position_ids = graph.op("Range", *(graph.constant(INT64, [], [k]) for k in (0, seq, 1)))
    total = graph.op(
        "Add", graph.op("Gather", words, ids), graph.op("Gather", positions, position_ids)
    )
    if segment_words is not None:
        if segments is None:  # all tokens belong to the first one
            segments = graph.constant(INT64, [], [0])
        total = graph.op("Add", total, graph.op("Gather", segment_words, segments))
    out: list[Value | None] = [
        graph.op("LayerNormalization", total, gamma, beta, epsilon=node.attr("epsilon", 1e-12))
    ]
    if node.wants(1):
        out.append(_token_counts(graph, mask, batch))
    elif len(node.outputs) > 1:
        out.append(None)
    return [*out, total][: len(node.outputs)]


def _token_counts(graph: Binder, mask: Value | None, batch: int) -> Value:
    """How many elements of each row of a mask are 1; zeros without a mask. int32 [batch]."""
    if mask is None:
        return graph.constant(INT32, [batch], [0] * batch)
    ones = graph.op("Equal", mask, graph.constant(mask.dtype, [], [1]))
    return graph.op("ReduceSum", graph.op("Cast", ones, to=INT32), graph.ints([1]), keepdims=0)


quantized = Op("QEmbedLayerNormalization", MS)


@quantized.decompose
def quantized_decompose(node: BoundNode, graph: Binder) -> list[Value | None]:
    """The same of tables, scale and shift in bytes: inputs 2 to 6, whose scales are inputs 8 to 12
    and whose zero points are inputs 13 to 17.
    """
    floats: list[Value | None] = []
    for i in range(2, 7):
        x, scale, zero = (node.input(at) for at in (i, i + 6, i + 11))
        if x is None and i == 4:
            floats.append(None)
            continue
        if x is None or scale is None or zero is None:
            fail(node, f"one of its inputs {i}, {i + 6} and {i + 11} is missing")
        takes(node, (UINT8, INT8), i)
        one_type(node, i, i + 11)
        if not one_number(scale.shape) or not one_number(zero.shape):
            fail(node, f"its scale {scale} and zero point {zero}; one number each is expected")
        parts = (x, graph.reshape(scale, []), graph.reshape(zero, []))
        floats.append(graph.op("DequantizeLinear", *parts))
    y, counts, _ = graph.op(
        "EmbedLayerNormalization",
        *(*node.inputs[:2], *floats, node.input(7)),
        domain=MS,
        outputs=3,
        epsilon=node.attr("epsilon", 1e-12),
    )
    return [y, counts][: len(node.outputs)]
