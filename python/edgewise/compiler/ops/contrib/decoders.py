"""The decoders that BeamSearch, GreedySearch and Sampling run: subgraphs with a key-value cache.

GPT-2's kind: input_ids, position_ids, attention_mask (int32), past_0, ... [2, rows, heads, length,
dim] -> logits [rows, positions, vocabulary], present_0, ...

T5's and Whisper's kind: the encoder computes the keys and values of the decoder's cross attention,
and, in older exports, the first logits. The decoder: input_ids, encoder_attention_mask,
past_key_self_0, ..., past_key_cross_0, ... -> logits, present_key_self_0, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import fail, unsupported
from ...declare.values import RunTensor
from ..host.control_flow import subgraph

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, HostContext
    from ...ir import Graph, Info

Tokens = list[list[int]]  # of each row

ENCODED = ("encoder_attention_mask", "encoder_hidden_states")  # inputs that are no caches
SHARED_PAST = "Export it without a past that shares its buffer."


class DecoderSubgraph(Protocol):
    """A decoder and its cache."""

    def logits(self) -> RunTensor:
        """[rows, vocabulary]: of the token that follows."""

    def feed(self, tokens: list[int], sources: list[int]) -> None:
        """Appends one token to each row. sources: the row whose cache each row continues."""


def int32_matrix(run: HostContext, rows: Tokens) -> RunTensor:
    """Rows of equal length as a tensor."""
    return run.constant(INT32, [len(rows), len(rows[0])], [t for r in rows for t in r])


def rows_of(v: RunTensor) -> Tokens:
    """The rows of a matrix of integers."""
    numbers, width = list(v.numbers), v.shape[1]
    return [numbers[i * width : (i + 1) * width] for i in range(v.shape[0])]


def _last_position(run: HostContext, logits: RunTensor) -> RunTensor:
    """[rows, vocabulary]: the last position of [rows, positions, vocabulary]."""
    rows, positions, vocabulary = logits.shape
    if positions != 1:
        logits = run.op(
            "Slice", logits, *(run.constant(INT64, [1], [i]) for i in (positions - 1, positions, 1))
        )
    return run.op("Reshape", logits, run.constant(INT64, [2], [rows, vocabulary]))


def _reordered(
    run: HostContext, cache: list[RunTensor], axis: int, sources: list[int]
) -> list[RunTensor]:
    """Tensors of a cache with the given rows. axis: the dimension of the rows."""
    if sources == list(range(len(sources))):
        return cache
    order = run.constant(INT64, [len(sources)], sources)
    return [run.op("Gather", v, order, axis=axis) for v in cache]


def _cache_shape(node: BoundNode, info: Info, rank: int, dims: tuple[int, int]) -> list[Any]:
    """The shape of a cache's tensor.

    Raises ModelError where one of the dimensions `dims`, the heads
    and their size, is unknown.
    """
    shape = info.shape
    if shape is None or len(shape) != rank or not all(isinstance(shape[d], int) for d in dims):
        fail(
            node,
            f"its decoder's input '{info.name}' does not state how many heads it has and their"
            " size",
            "Export the model again.",
        )
    return shape


class GptDecoder:
    """A decoder of GPT-2's kind. Masked tokens do not count in the positions."""

    def __init__(self, node: BoundNode, run: HostContext, prompts: Tokens, masks: Tokens) -> None:
        self.run, self.mask = run, masks
        graph = subgraph(node, "decoder")
        self.body = run.body(graph)
        pasts = self._pasts(node, graph)
        first = node.attrs.get("init_decoder")
        self.next = [sum(m != 0 for m in mask) for mask in masks]
        empty = [
            RunTensor(FLOAT, [2, len(prompts), max(heads, 1), 0, dim], b"")
            for _, _, heads, _, dim in (_cache_shape(node, p, 5, (2, 4)) for p in pasts)
        ]
        self.out = (run.body(first) if first is not None else self.body)(
            int32_matrix(run, prompts),
            int32_matrix(run, [_positions(mask) for mask in masks]),
            int32_matrix(run, masks),
            *empty,
        )

    @staticmethod
    def _pasts(node: BoundNode, graph: Graph) -> list[Info]:
        """The decoder's inputs that are tensors of the cache."""
        pasts = [
            i
            for i in graph.inputs[3:]
            if i.name.startswith("past_") and i.name != "past_sequence_length"
        ]
        if len(pasts) != len(graph.inputs) - 3 or len(graph.outputs) != 1 + len(pasts):
            names = ", ".join(i.name for i in graph.inputs)
            unsupported(node, f"a decoder with the inputs {names}", SHARED_PAST)
        return pasts

    def logits(self) -> RunTensor:
        return _last_position(self.run, self.out[0])

    def feed(self, tokens: list[int], sources: list[int]) -> None:
        run = self.run
        pasts = _reordered(run, self.out[1:], 1, sources)
        self.mask = [self.mask[i] + [1] for i in sources]
        positions = [self.next[i] for i in sources]
        self.next = [p + 1 for p in positions]
        self.out = self.body(
            int32_matrix(run, [[t] for t in tokens]),
            int32_matrix(run, [[p] for p in positions]),
            int32_matrix(run, self.mask),
            *pasts,
        )


def _positions(mask: list[int]) -> list[int]:
    """The position of each token of a row; 0 where the mask is 0."""
    at, row = 0, []
    for m in mask:
        row.append(at if m else 0)
        at += m != 0
    return row


class EncoderDecoder:
    """An encoder and a decoder of T5's or Whisper's kind.

    Args:
        fed: the encoder's inputs. One that computes the first logits also takes `starts`.
        masks: 0 for each prompt's tokens that are not attended to, else 1; empty for Whisper.
        starts: the decoder's first tokens.
        beams: rows of each prompt.
    """

    def __init__(
        self,
        node: BoundNode,
        run: HostContext,
        fed: list[RunTensor],
        masks: Tokens,
        starts: Tokens,
        beams: int,
    ) -> None:
        self.run = run
        encoder, decoder = subgraph(node, "encoder"), subgraph(node, "decoder")
        self.body, encode = run.body(decoder), run.body(encoder)
        self.names = [i.name for i in decoder.inputs]
        fed = [*fed, int32_matrix(run, starts)][: len(encoder.inputs)]
        made = dict(zip([o.name for o in encoder.outputs], encode(*fed)))
        each = [i for i in range(len(starts)) for _ in range(beams)]
        if beams > 1:
            order = run.constant(INT64, [len(each)], each)
            made = {k: run.op("Gather", v, order, axis=0) for k, v in made.items()}
        pasts = [name for name in self.names[1:] if name not in ENCODED]
        self.pasts = [name for name in pasts if "self" in name]
        crossed = [name for name in pasts if "cross" in name]
        for name in pasts:
            if name not in self.pasts and name not in crossed:
                unsupported(node, f"a decoder with the input {name}", SHARED_PAST)
        # Caches are matched by their order, whatever their names: those of the cross attention are
        # the encoder's last outputs.
        outputs = list(made.values())
        if len(crossed) > len(outputs):
            fail(node, f"its encoder gives {', '.join(made)} for the caches {', '.join(crossed)}")
        self.known = dict(zip(crossed, outputs[len(outputs) - len(crossed) :]))
        if masks:
            self.known["encoder_attention_mask"] = int32_matrix(run, [masks[i] for i in each])
        if "encoder_hidden_states" in made:
            self.known["encoder_hidden_states"] = made["encoder_hidden_states"]
        missing = [n for n in self.names[1:] if n not in self.known and n not in self.pasts]
        if missing:
            fail(node, f"its encoder gives no {missing[0]}, which its decoder takes")
        if "logits" in made:
            end = len(outputs) - len(crossed)
            self.out = [made["logits"], *outputs[end - len(self.pasts) : end]]
            return
        empty = []
        for info in decoder.inputs:
            if info.name in self.pasts:
                _, heads, _, dim = _cache_shape(node, info, 4, (1, 3))
                empty.append(RunTensor(FLOAT, [len(each), heads, 0, dim], b""))
        self._step([starts[i] for i in each], empty)

    def _step(self, tokens: Tokens, cache: list[RunTensor]) -> None:
        pasts = dict(zip(self.pasts, cache))
        self.out = self.body(
            int32_matrix(self.run, tokens),
            *(pasts[name] if name in pasts else self.known[name] for name in self.names[1:]),
        )

    def logits(self) -> RunTensor:
        return _last_position(self.run, self.out[0])

    def feed(self, tokens: list[int], sources: list[int]) -> None:
        pasts = _reordered(self.run, self.out[1:], 0, sources)
        self._step([[t] for t in tokens], pasts)
