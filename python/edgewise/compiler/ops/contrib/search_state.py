"""The state that BeamSearch, GreedySearch and Sampling share: tokens, decoder and scores.

Scores stay in the engine; only the best candidates of each row come to Python. The rules are those
of transformers' generate (onnxruntime/contrib_ops/cpu/transformers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import fail, unsupported
from .decoders import EncoderDecoder, GptDecoder, int32_matrix, rows_of

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext
    from ...declare.values import RunTensor
    from .decoders import DecoderSubgraph, Tokens

T = TypeVar("T")

LOWEST = -3.4028234663852886e38  # the score of a token that must not follow
GPT, T5, WHISPER = 0, 1, 2  # model_type


def number_of(v: RunTensor | None, default: T) -> T:
    """The one number of an input, or the default where it is absent."""
    return default if v is None else v.numbers[0]


class SearchState:
    """The tokens of each row so far, the state of the decoder, and the scores of what follows.

    Args:
        node: the search.
        run: computes with operators.
        inputs: of the node.
        beams: rows of each prompt.
        at: {name: index} of the inputs besides input_ids, max_length and min_length.

    Attributes:
        batch, rows: number of prompts, and of rows: batch * beams.
        sequences: the tokens of each row.
        longest: max_length.
        eos, pad: tokens.
    """

    def __init__(
        self,
        node: BoundNode,
        run: HostContext,
        inputs: list[RunTensor | None],
        beams: int,
        at: dict[str, int],
    ) -> None:
        self.run, self.beams = run, beams

        def get(name: str) -> RunTensor | None:
            return inputs[at[name]] if name in at and at[name] < len(inputs) else None

        self.eos, self.pad, self.ngram = (
            node.attr("eos_token_id", -1),
            node.attr("pad_token_id", -1),
            node.attr("no_repeat_ngram_size", 0),
        )
        self.longest = number_of(inputs[1], 0)
        self.shortest = number_of(get("min_length"), 0)
        self.penalty = number_of(get("repetition_penalty"), 1.0)
        self.temperature = number_of(get("temperature"), node.attr("temperature", 1.0))
        self.allowed, self.allowed_first = get("vocab_mask"), get("prefix_vocab_mask")
        if number_of(get("logits_processor"), 0):
            unsupported(node, "a logits_processor")
        self.first = True
        self.sequences: Tokens
        self.decoder: DecoderSubgraph
        ids = inputs[0]
        if ids is None:
            fail(node, "it has no input_ids", "Export the model again.")
        self._begin(node, ids, get("attention_mask"), get("decoder_input_ids"))
        if not 0 < self.longest or self.length > self.longest or self.rows < 1:
            fail(
                node,
                f"its max_length is {self.longest}, and {self.length} tokens are there already",
            )

    def _begin(
        self, node: BoundNode, ids: RunTensor, mask: RunTensor | None, start: RunTensor | None
    ) -> None:
        """Runs the decoder on the prompts.

        Args:
            ids: tokens [batch, length]; Whisper's features [batch, bands, frames].
            mask: as ids; None: tokens that are not padding.
            start: the decoder's first tokens, [batch, length].
        """
        kind = node.attr("model_type", GPT)
        if ids.dtype != (FLOAT if kind == WHISPER else INT32) or ids.rank != (
            3 if kind == WHISPER else 2
        ):
            unsupported(node, f"{ids} as its input_ids")
        self.batch = ids.shape[0]
        self.rows = self.batch * self.beams
        prompts = [] if kind == WHISPER else rows_of(ids)
        masks = (
            rows_of(mask)
            if mask is not None
            else [[int(t != self.pad) for t in row] for row in prompts]
        )
        if kind == GPT:
            self.sequences = self._repeat(prompts)
            self.decoder = GptDecoder(node, self.run, self.sequences, self._repeat(masks))
        elif kind in (T5, WHISPER):
            starts = (
                rows_of(start)
                if start is not None
                else [[node.attr("decoder_start_token_id", -1)]] * self.batch
            )
            fed = [ids] if kind == WHISPER else [ids, int32_matrix(self.run, masks)]
            self.decoder = EncoderDecoder(node, self.run, fed, masks, starts, self.beams)
            self.sequences = self._repeat(starts)
        else:
            unsupported(node, f"models of type {kind}")

    def _repeat(self, rows: Tokens) -> Tokens:
        return [list(r) for r in rows for _ in range(self.beams)]

    @property
    def length(self) -> int:
        """Tokens of each row so far."""
        return len(self.sequences[0])

    def padded(self, tokens: list[int]) -> list[int]:
        """A sequence padded to the maximum length."""
        return tokens + [self.pad] * (self.longest - len(tokens))

    def scores(self, log: bool) -> RunTensor:
        """[rows, vocabulary]: the logits of the tokens that may follow, after all rules. log:
        logarithms of probabilities instead.
        """
        run, x = self.run, self.decoder.logits()
        if log:
            x = run.op("LogSoftmax", x, axis=-1)
        if self.penalty != 1.0:
            x = self._penalized(x)
        for mask in (self.allowed, self.allowed_first if self.first else None):
            if mask is not None:
                x = self._masked(x, mask)
        if banned := self._banned():
            x = run.op(
                "ScatterND",
                x,
                run.constant(INT64, [len(banned), 2], [v for place in banned for v in place]),
                run.constant(FLOAT, [len(banned)], [LOWEST] * len(banned)),
            )
        if self.temperature not in (0.0, 1.0):
            x = run.op("Div", x, run.constant(FLOAT, [], [self.temperature]))
        self.first = False
        return x

    def _penalized(self, x: RunTensor) -> RunTensor:
        """Scores of tokens that a row already has, times the penalty where negative, else divided
        by it.
        """
        run = self.run
        known = run.constant(
            INT64,
            [self.rows, self.longest],
            [t for s in self.sequences for t in s + s[-1:] * (self.longest - len(s))],
        )
        s = run.op("GatherElements", x, known, axis=1)
        factor = run.constant(FLOAT, [], [self.penalty])
        s = run.op(
            "Where",
            run.op("Less", s, run.constant(FLOAT, [], [0.0])),
            run.op("Mul", s, factor),
            run.op("Div", s, factor),
        )
        return run.op("ScatterElements", x, known, s, axis=1)

    def _masked(self, x: RunTensor, mask: RunTensor) -> RunTensor:
        """LOWEST where the mask, [vocabulary], [batch, vocabulary] or [rows, vocabulary], is 0."""
        run = self.run
        if mask.rank == 2 and mask.shape[0] != self.rows:
            prompts = [i // self.beams for i in range(self.rows)]
            mask = run.op("Gather", mask, run.constant(INT64, [self.rows], prompts), axis=0)
        hidden = run.op("Equal", mask, run.constant(mask.dtype, [], [0]))
        return run.op("Where", hidden, run.constant(FLOAT, [], [LOWEST]), x)

    def _banned(self) -> list[tuple[int, int]]:
        """(row, token) of what must not follow: the end before min_length, repeated n-grams."""
        banned = (
            [(i, t) for i, s in enumerate(self.sequences) for t in _repeating(s, self.ngram)]
            if self.ngram
            else []
        )
        if self.length < self.shortest:
            banned += [(i, self.eos) for i in range(self.rows)]
        return banned

    def append(self, tokens: list[int], sources: list[int] | None = None) -> None:
        """Each row becomes the sequence of its source (default: of itself) and one more token."""
        self.run.trip()
        sources = list(range(self.rows)) if sources is None else sources
        self.sequences = [self.sequences[i] + [t] for i, t in zip(sources, tokens)]
        if self.length < self.longest:
            self.decoder.feed(tokens, sources)


def _repeating(tokens: list[int], size: int) -> list[int]:
    """Tokens that would complete an n-gram of this size that is already there."""
    if len(tokens) < size:
        return []
    tail = tokens[len(tokens) - size + 1 :] if size > 1 else []
    return sorted(
        {
            tokens[i + size - 1]
            for i in range(len(tokens) - size + 1)
            if tokens[i : i + size - 1] == tail
        }
    )
