"""NGramHashMapping: the rows of embeddings of n-grams, by hashes of their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import BOOL, INT32, INT64
from ...declare.op import MS, Op, fail, one_number, takes
from ..attention.attention_kernel import shaped
from .slicing import cut

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

# Inputs: input_ids, multipliers, vocab_sizes, past_ids, head_offsets, eos_token_id, segment_ids.
mapping = Op("NGramHashMapping", MS)


def _checked(node: BoundNode) -> tuple[int, int]:
    """(tokens of the longest n-grams, hashes of each length), once the node is valid."""
    ids, size, heads = node.inputs[0], node.attr("max_ngram_size", 0), node.attr("n_head_per_ngram")
    if size < 2 or heads < 1:
        fail(node, f"n-grams of {size} tokens with {heads} hashes each", "Export the model again.")
    if ids.rank != 2:
        fail(node, f"its input_ids are {ids}; [batch, tokens] is expected")
    takes(node, (INT32, INT64), 0)
    takes(node, (ids.dtype,), 1, 2, 3, 4, 5)
    takes(node, (INT32,), 6)
    shaped(node, 1, "multipliers", None)
    if node.inputs[1].shape[0] < size:
        fail(node, f"its multipliers are {node.inputs[1]}; {size} or more are expected")
    shaped(node, 2, "vocab_sizes", (size - 1) * heads)
    shaped(node, 3, "past_ids", ids.shape[0], size - 1)
    shaped(node, 4, "head_offsets", (size - 1) * heads)
    shaped(node, 6, "segment_ids", *ids.shape)
    if node.has(5) and not one_number(node.inputs[5].shape):
        fail(node, f"its eos_token_id is {node.inputs[5]}; one number is expected")
    return size, heads


def _shifted(
    node: BoundNode, graph: Binder, ids: Value, missing: Value, size: int
) -> tuple[list[Value], Value]:
    """(the tokens, those one before each, two before each, ...; the history and the tokens)."""
    op, (batch, tokens) = graph.op, ids.shape
    before = node.input(3)
    if before is None:
        before = op("Expand", missing, graph.ints([batch, size - 1]))
    whole = op("Concat", before, ids, axis=1)
    none = op("Expand", graph.constant(BOOL, [1, 1], [False]), graph.ints([batch, tokens]))
    left, reset = none, node.has(5) and node.attr("reset_on_eos", 0)
    starts = None
    if node.has(6) and tokens > 1:
        segments = node.inputs[6]
        new = op(
            "Equal", cut(graph, segments, 1, 1, tokens), cut(graph, segments, 1, 0, tokens - 1)
        )
        # True where a token begins a segment, after as many more columns as shifts reach back
        pads = op("Expand", graph.constant(BOOL, [1, 1], [False]), graph.ints([batch, size]))
        starts = op("Concat", pads, op("Not", new), axis=1)
    shifts = [ids]
    for k in range(1, size):
        at = size - 1 - k
        shifted = cut(graph, whole, 1, at, at + tokens)
        if reset:
            left = op("Or", left, op("Equal", shifted, graph.reshape(node.inputs[5], [])))
        if starts is not None:
            left = op("Or", left, cut(graph, starts, 1, size - k, size - k + tokens))
        shifts.append(op("Where", left, missing, shifted) if left is not none else shifted)
    return shifts, whole


@mapping.decompose
def mapping_decompose(node: BoundNode, graph: Binder) -> list[Value]:
    """Products of tokens and multipliers, combined by exclusive or, modulo the size of each table;
    and the ids that the next call takes as past_ids.
    """
    size, heads = _checked(node)
    op, ids = graph.op, node.inputs[0]
    batch, tokens = ids.shape
    missing = graph.constant(ids.dtype, [], [node.attr("pad_id", 0)])
    if node.has(5):
        missing = graph.reshape(node.inputs[5], [])
    shifts, whole = _shifted(node, graph, ids, missing, size)
    mixed: Value | None = None
    hashes = []
    for k, shifted in enumerate(shifts):
        factor = graph.reshape(cut(graph, node.inputs[1], 0, k, k + 1), [])
        term = op("Mul", shifted, factor)
        mixed = term if mixed is None else op("BitwiseXor", mixed, term)
        if k:
            sizes = cut(graph, node.inputs[2], 0, (k - 1) * heads, k * heads)
            hashes.append(op("Mod", graph.reshape(mixed, [batch, tokens, 1]), sizes))
    y = op("Concat", *hashes, axis=2) if len(hashes) > 1 else hashes[0]
    if node.has(4):
        y = op("Add", y, node.inputs[4])
    return [y, cut(graph, whole, 1, tokens, tokens + size - 1)][: len(node.outputs)]
