"""GreedySearch and Sampling: generation of one sequence per prompt, as one node whose decoder is a
subgraph.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import MS, Op, unsupported
from .search_state import SearchState, number_of

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext
    from ...declare.values import RunTensor


def _generate(
    node: BoundNode,
    run: HostContext,
    inputs: list[RunTensor | None],
    choose: Callable[[RunTensor], list[int]],
) -> RunTensor:
    """The sequences, int32 [batch, max_length]. choose(scores): the next token of each row."""
    state = SearchState(node, run, inputs, 1, INPUTS)
    ended = [False] * state.rows
    while state.length < state.longest and not all(ended):
        tokens = choose(state.scores(False))
        ended = [e or t == state.eos for e, t in zip(ended, tokens)]
        state.append([state.pad if e else t for e, t in zip(ended, tokens)])
    return run.constant(
        INT32,
        [state.rows, state.longest],
        [t for row in state.sequences for t in state.padded(row)],
    )


# Inputs: input_ids, max_length, and these.
INPUTS = {
    "min_length": 2,
    "repetition_penalty": 3,
    "vocab_mask": 4,
    "prefix_vocab_mask": 5,
    "attention_mask": 6,
}

greedy_search = Op("GreedySearch", MS)


@greedy_search.host
def greedy_search_host(
    node: BoundNode, run: HostContext, inputs: list[RunTensor | None]
) -> list[RunTensor]:
    def choose(scores: RunTensor) -> list[int]:
        return list(run.op("ArgMax", scores, axis=1, keepdims=0).numbers)

    return [_generate(node, run, inputs, choose)]


def _nucleus(node: BoundNode, run: HostContext, scores: RunTensor, top_p: float) -> RunTensor:
    """Scores with filter_value for all tokens but the most likely ones that together reach a
    probability of top_p (nucleus sampling); at least min_tokens_to_keep stay.
    """
    vocabulary, keep = scores.shape[1], max(1, node.attr("min_tokens_to_keep", 1))
    ranked, order = run.op(  # from the least likely
        "TopK", scores, run.constant(INT64, [1], [vocabulary]), largest=0, outputs=2
    )
    below = run.op("CumSum", run.op("Softmax", ranked, axis=-1), run.constant(INT64, [], [1]))
    rank = run.op("Range", *(run.constant(INT64, [], [i]) for i in (0, vocabulary, 1)))
    out = run.op(
        "And",
        run.op("LessOrEqual", below, run.constant(FLOAT, [], [1.0 - top_p])),
        run.op("Less", rank, run.constant(INT64, [], [vocabulary - keep])),
    )
    filtered = run.constant(FLOAT, [], [node.attr("filter_value", -1e20)])
    return run.op("ScatterElements", scores, order, run.op("Where", out, filtered, ranked), axis=1)


def _drawn(draw: random.Random, shares: list[float]) -> int:
    """A token drawn with these probabilities."""
    at, left = 0, draw.random()
    last = max(i for i, p in enumerate(shares) if p > 0)
    while at < last and left >= shares[at]:
        left -= shares[at]
        at += 1
    return at


sampling = Op("Sampling", MS)  # inputs as GreedySearch, then presence_mask, seed


@sampling.host
def sampling_host(
    node: BoundNode, run: HostContext, inputs: list[RunTensor | None]
) -> list[RunTensor]:
    """Its random numbers are not onnxruntime's: the distribution of tokens is the same, but not
    the tokens drawn.
    """
    if node.attr("custom", 0) or len(inputs) > 7 and inputs[7] is not None:
        unsupported(node, "a presence penalty")
    draw = random.Random(number_of(inputs[8] if len(inputs) > 8 else None, None))
    top_p = node.attr("top_p", 0.0)
    filtered: list[RunTensor] = []  # the scores of the last step

    def choose(scores: RunTensor) -> list[int]:
        rows, vocabulary = scores.shape
        if 0.0 < top_p < 1.0:
            scores = _nucleus(node, run, scores, top_p)
        filtered[:] = [scores]
        shares = list(run.op("Softmax", scores, axis=-1).numbers)
        return [_drawn(draw, shares[r * vocabulary : (r + 1) * vocabulary]) for r in range(rows)]

    sequences = _generate(node, run, inputs, choose)
    return [sequences, filtered[0]][: len(node.outputs)] if filtered else [sequences]
