"""BeamSearch and WhisperBeamSearch: generation with several candidates of each prompt, as one node
whose decoder, and encoder, are subgraphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, unsupported
from .search_state import SearchState, number_of

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext
    from ...declare.values import RunTensor


class _Hypotheses:
    """The best finished sequences of one prompt.

    Args:
        size: how many are kept.
        penalty: the exponent of the length that scores are divided by.
        early: whether the search of this prompt ends as soon as there are `size` of them.
    """

    def __init__(self, size: int, penalty: float, early: bool) -> None:
        self.size, self.penalty, self.early = size, penalty, early
        self.best: list[tuple[float, list[int]]] = []
        self.done = False

    def add(self, sequence: list[int], score: float) -> None:
        """Adds a finished sequence, if it is among the best. score: the sum of its tokens'."""
        score = score / len(sequence) ** self.penalty
        if len(self.best) < self.size or score > min(s for s, _ in self.best):
            self.best.append((score, sequence))
            if len(self.best) > self.size:
                self.best.remove(min(self.best, key=lambda b: b[0]))

    def finished(self, best_sum: float, length: int) -> bool:
        """Whether no unfinished sequence of this length can become better than those kept."""
        if len(self.best) < self.size:
            return False
        return self.early or min(s for s, _ in self.best) >= best_sum / length**self.penalty


class _Beams:
    """The beams of all prompts during a search.

    Attributes:
        sums: the score of each row: the sum of its tokens' logarithms of probability.
        found: the hypotheses of each prompt.
        kept: the scores of each step, where the node returns them.
    """

    def __init__(
        self,
        node: BoundNode,
        run: HostContext,
        state: SearchState,
        beams: int,
        length_penalty: float,
    ) -> None:
        self.node, self.run, self.state, self.beams = node, run, state, beams
        early = bool(node.attr("early_stopping", 0))
        self.found = [_Hypotheses(beams, length_penalty, early) for _ in range(state.batch)]
        # All rows of a prompt are the same at first: only one of them may be chosen from.
        self.sums = [0.0 if i % beams == 0 else -1e9 for i in range(state.rows)]
        self.kept: list[RunTensor] = []

    def step(self) -> None:
        """Each row gets its next token."""
        run, state, beams = self.run, self.state, self.beams
        scores = run.op("Add", state.scores(True), run.constant(FLOAT, [state.rows, 1], self.sums))
        if self.node.wants(2):
            self.kept.append(scores)
        vocabulary = scores.shape[1]
        flat = run.op(
            "Reshape", scores, run.constant(INT64, [2], [state.batch, beams * vocabulary])
        )
        values, index = (
            list(v.numbers)
            for v in run.op("TopK", flat, run.constant(INT64, [1], [2 * beams]), outputs=2)
        )
        chosen = []
        for b in range(state.batch):
            part = slice(b * 2 * beams, (b + 1) * 2 * beams)
            chosen += self._chosen(b, values[part], index[part], vocabulary)
        tokens, sources, sums = map(list, zip(*chosen))
        self.sums = sums
        state.append(tokens, sources)

    def _chosen(
        self, b: int, values: list[float], index: list[int], vocabulary: int
    ) -> list[tuple[int, int, float]]:
        """(token, row that it continues, score) of each beam of prompt b.

        Args:
            values: the best scores, twice as many as there are beams.
            index: where they are in [beams, vocabulary].
        """
        state, beams, hypotheses = self.state, self.beams, self.found[b]
        if hypotheses.done:
            return [(state.pad, b * beams, 0.0)] * beams
        chosen: list[tuple[int, int, float]] = []
        for rank, (score, at) in enumerate(zip(values, index)):
            beam, token = divmod(at, vocabulary)
            row = b * beams + beam
            if token == state.eos:
                if rank < beams:
                    hypotheses.add(state.sequences[row], score)
            else:
                chosen.append((token, row, score))
                if len(chosen) == beams:
                    break
        if len(chosen) < beams:
            fail(self.node, f"its {vocabulary} tokens are too few for {beams} beams")
        hypotheses.done = hypotheses.finished(values[0], state.length)
        return chosen

    @property
    def done(self) -> bool:
        """Whether the search of every prompt has ended."""
        return all(h.done for h in self.found)

    def best(self, returned: int) -> tuple[list[int], list[float]]:
        """The best sequences of each prompt, padded, one after the other; their scores."""
        sequences, scores = [], []
        for b, hypotheses in enumerate(self.found):
            if not hypotheses.done:
                for i in range(b * self.beams, (b + 1) * self.beams):
                    hypotheses.add(self.state.sequences[i], self.sums[i])
            for score, tokens in sorted(hypotheses.best, key=lambda h: -h[0])[:returned]:
                sequences += self.state.padded(tokens)
                scores.append(score)
        return sequences, scores

    def all_scores(self, steps: int) -> RunTensor:
        """The scores of each step, zeros for those not taken: [steps, batch, beams, vocabulary]."""
        state, run = self.state, self.run
        vocabulary = self.kept[0].shape[1] if self.kept else 0
        kept = [*self.kept]
        kept += [run.constant(FLOAT, list(kept[0].shape), [0.0] * (state.rows * vocabulary))] * (
            steps - len(kept)
        )
        shape = [steps, state.batch, self.beams, vocabulary]
        return run.op("Reshape", run.stack(kept), run.constant(INT64, [4], shape))


def _beam_search(
    node: BoundNode, run: HostContext, inputs: list[RunTensor | None], at: dict[str, int]
) -> list[RunTensor]:
    """The node's outputs. at: {name: index} of optional inputs."""
    optional = [*inputs, *[None] * 6]
    beams, returned = number_of(optional[3], 1), number_of(optional[4], 1)
    length_penalty = number_of(optional[5], 1.0)
    if beams < 1 or not 1 <= returned <= beams:
        fail(node, f"it returns {returned} sequences of {beams} beams")
    state = SearchState(node, run, inputs, beams, at)
    search, begin = _Beams(node, run, state, beams, length_penalty), state.length
    while state.length < state.longest and not search.done:
        search.step()
    sequences, scores = search.best(returned)
    outs = [
        run.constant(INT32, [state.batch, returned, state.longest], sequences),
        run.constant(FLOAT, [state.batch, returned], scores),
    ]
    if node.wants(2):
        outs.append(search.all_scores(state.longest - begin))
    return outs[: len(node.outputs)]


# Inputs: input_ids, max_length, min_length, num_beams, num_return_sequences, length_penalty, and
# these.
INPUTS = {
    "min_length": 2,
    "repetition_penalty": 6,
    "vocab_mask": 7,
    "prefix_vocab_mask": 8,
    "attention_mask": 9,
    "decoder_input_ids": 10,
    "logits_processor": 11,
}

beam_search = Op("BeamSearch", MS)


@beam_search.host
def beam_search_host(
    node: BoundNode, run: HostContext, inputs: list[RunTensor | None]
) -> list[RunTensor]:
    return _beam_search(node, run, inputs, INPUTS)


# As BeamSearch, then cross_qk_layer_head, extra_decoding_ids, temperature; input_ids are features
# [batch, bands, frames].
whisper_beam_search = Op("WhisperBeamSearch", MS)


@whisper_beam_search.host
def whisper_beam_search_host(
    node: BoundNode, run: HostContext, inputs: list[RunTensor | None]
) -> list[RunTensor]:
    if (
        node.wants(3)
        or node.wants(4)
        or node.attr("decoder_output_cross_qk", 0)
        or any(i < len(inputs) and inputs[i] is not None for i in (12, 13))
    ):
        unsupported(
            node,
            "the scores of cross attention and the probability of no speech",
            "Export it without them.",
        )
    return _beam_search(node, run, inputs, {**INPUTS, "temperature": 14})
