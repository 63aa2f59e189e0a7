"""Generation as one node of a graph: onnxruntime's BeamSearch, WhisperBeamSearch, GreedySearch and
Sampling over decoders (GPT-2's kind) and encoders with decoders (T5's and Whisper's kind), whose
graphs are attributes of the node.

The decoder of GPT-2's kind: input_ids, position_ids, attention_mask (int32), past_0.. [2, rows,
heads, length, dim] -> logits [rows, positions, vocabulary], present_0... Of T5's kind: the encoder
makes of input_ids and attention_mask what the decoder's cross attention reads, and maybe the first
logits; the decoder: input_ids, encoder_attention_mask, past_key_self_0.., past_key_cross_0.. ->
logits, present_key_self_0... Scores stay in the engine; what comes to Python are the best
candidates of each row. (onnxruntime/contrib_ops/cpu/transformers; the rules are those of
transformers' generate.)
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from ...declare.dtypes import FLOAT, INT32, INT64
from ...declare.op import MS, Op, fail, unsupported
from ...declare.values import RunTensor

if TYPE_CHECKING:
    from ...declare.annotations import BoundNode, Host

LOWEST = -3.4028234663852886e38  # what a token gets that must not follow


class _Search:
    """What the searches have in common: the rows' tokens so far, the decoder's state, and the
    scores of what may follow.
    """

    def __init__(self, node: BoundNode, run: Host, inputs, beams, at):
        """at: {name of an input: its place}, beyond input_ids, max_length and min_length."""
        self.n, self.run, self.beams = node, run, beams

        def get(name: str):
            return inputs[at[name]] if name in at and at[name] < len(inputs) else None

        def one(v, default):
            return default if v is None else v.numbers[0]

        ids, whisper = inputs[0], node.attr("model_type", 0) == 2
        if ids.dtype != (FLOAT if whisper else INT32) or ids.rank != (3 if whisper else 2):
            unsupported(node, f"{ids} as its input_ids")
        self.kind, self.eos, self.pad, self.ngram = (
            node.attr("model_type", 0),
            node.attr("eos_token_id", -1),
            node.attr("pad_token_id", -1),
            node.attr("no_repeat_ngram_size", 0),
        )
        self.batch = ids.shape[0]
        self.longest, self.shortest, self.penalty = (
            one(inputs[1], 0),
            one(get("min_length"), 0),
            one(get("repetition_penalty"), 1.0),
        )
        self.allowed, self.allowed_first, self.temperature = (
            get("vocab_mask"),
            get("prefix_vocab_mask"),
            one(get("temperature"), node.attr("temperature", 1.0)),
        )
        if one(get("logits_processor"), 0):
            unsupported(node, "a logits_processor")
        mask = get("attention_mask")
        rows = self.rows = self.batch * beams
        prompts = [] if whisper else _rows(ids)
        masks = (
            _rows(mask)
            if mask is not None
            else [[int(t != self.pad) for t in row] for row in prompts]
        )
        self.first = True
        if self.kind == 0:
            self.sequences = self._repeat(prompts)
            self.decoder = _Gpt(node, run, self.sequences, self._repeat(masks))
        elif self.kind in (1, 2):
            start = get("decoder_input_ids")
            starts = (
                _rows(start)
                if start is not None
                else [[node.attr("decoder_start_token_id", -1)]] * self.batch
            )
            fed = [ids] if whisper else [ids, _int32(run, masks)]
            self.decoder, self.sequences = (
                _EncoderDecoder(node, run, fed, masks, starts, beams),
                self._repeat(starts),
            )
        else:
            unsupported(node, f"models of type {self.kind}")
        if not 0 < self.longest or self.length > self.longest or rows < 1:
            fail(
                node,
                f"its max_length is {self.longest}, and {self.length} tokens are there already",
            )

    def _repeat(self, rows):
        return [list(r) for r in rows for _ in range(self.beams)]

    @property
    def length(self):
        return len(self.sequences[0])

    def scores(self, log):
        """[rows, vocabulary]: the decoder's logits of what comes next (log: logarithms of
        probabilities), as the rules change them.
        """
        run, logits = self.run, self.decoder.logits()
        x = run.op("LogSoftmax", logits, axis=-1) if log else logits
        lowest = run.constant(FLOAT, [], [LOWEST])
        rows, vocabulary = x.shape
        if self.penalty != 1.0:
            known = run.constant(
                INT64,
                [rows, self.longest],
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
            x = run.op("ScatterElements", x, known, s, axis=1)
        banned = (
            [(i, t) for i, s in enumerate(self.sequences) for t in _repeating(s, self.ngram)]
            if self.ngram
            else []
        )
        if self.length < self.shortest:
            banned += [(i, self.eos) for i in range(rows)]
        for mask in (self.allowed, self.allowed_first if self.first else None):
            if mask is not None:
                if mask.rank == 2 and mask.shape[0] != rows:
                    mask = run.op(
                        "Gather",
                        mask,
                        run.constant(INT64, [rows], [i // self.beams for i in range(rows)]),
                        axis=0,
                    )
                x = run.op(
                    "Where", run.op("Equal", mask, run.constant(mask.dtype, [], [0])), lowest, x
                )
        if banned:
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

    def go_on(self, tokens, sources=None):
        """Each row of `sources` (default: itself) with its next token."""
        self.run.trip()
        sources = list(range(self.rows)) if sources is None else sources
        self.sequences = [self.sequences[i] + [t] for i, t in zip(sources, tokens)]
        if self.length < self.longest:
            self.decoder.feed(tokens, sources)


def _rows(v):
    numbers, width = list(v.numbers), v.shape[1]
    return [numbers[i * width : (i + 1) * width] for i in range(v.shape[0])]


def _repeating(tokens, size):
    """Tokens that would end an n-gram which is there already."""
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


def _int32(run: Host, rows):
    return run.constant(INT32, [len(rows), len(rows[0])], [t for r in rows for t in r])


class _Gpt:
    """A decoder of GPT-2's kind. Positions count what the mask shows."""

    def __init__(self, n, run: Host, prompts, masks):
        self.run, self.n, self.mask = run, n, masks
        graph = n.attrs.get("decoder")
        self.body = run.body(graph)
        first = n.attrs.get("init_decoder")
        names = [i.name for i in graph.inputs]
        pasts = [
            i
            for i in graph.inputs[3:]
            if i.name.startswith("past_") and i.name != "past_sequence_length"
        ]
        if len(pasts) != len(names) - 3 or len(graph.outputs) != 1 + len(pasts):
            unsupported(
                n,
                f"a decoder with the inputs {', '.join(names)}",
                "Export it without a past that shares its buffer.",
            )
        positions = []
        for mask in masks:
            at, row = 0, []
            for m in mask:
                row.append(at if m else 0)
                at += m != 0
            positions.append(row)
        self.next = [sum(m != 0 for m in mask) for mask in masks]
        empty = [
            RunTensor(
                FLOAT,
                [
                    2,
                    len(prompts),
                    *[d if isinstance(d, int) and d > 0 else 1 for d in p.shape[2:3]],
                    0,
                    p.shape[4],
                ],
                b"",
            )
            for p in pasts
        ]
        for p, _e in zip(pasts, empty):
            if (
                p.shape is None
                or len(p.shape) != 5
                or not isinstance(p.shape[2], int)
                or not isinstance(p.shape[4], int)
            ):
                fail(
                    n,
                    f"its decoder's input '{p.name}' does not say how many heads of what size"
                    " it has",
                    "Export the model again.",
                )
        self.out = (run.body(first) if first is not None else self.body)(
            _int32(run, prompts), _int32(run, positions), _int32(run, masks), *empty
        )

    def logits(self):
        return _last(self.run, self.out[0])

    def feed(self, tokens, sources):
        run = self.run
        order = run.constant(INT64, [len(sources)], sources)
        pasts = [
            run.op("Gather", v, order, axis=1) if sources != list(range(len(sources))) else v
            for v in self.out[1:]
        ]
        self.mask = [self.mask[i] + [1] for i in sources]
        positions = [self.next[i] for i in sources]
        self.next = [p + 1 for p in positions]
        self.out = self.body(
            _int32(run, [[t] for t in tokens]),
            _int32(run, [[p] for p in positions]),
            _int32(run, self.mask),
            *pasts,
        )


class _EncoderDecoder:
    """An encoder and decoder of T5's or Whisper's kind. fed: the encoder's inputs; an older encoder
    takes the decoder's first tokens, too, and gives the first logits.
    """

    def __init__(self, n, run: Host, fed, masks, starts, beams):
        self.run, self.n = run, n
        encoder, decoder = n.attrs.get("encoder"), n.attrs.get("decoder")
        self.body, encode = run.body(decoder), run.body(encoder)
        self.names = [i.name for i in decoder.inputs]
        fed = [*fed, _int32(run, starts)][: len(encoder.inputs)]
        made = dict(zip([o.name for o in encoder.outputs], encode(*fed)))
        each = [i for i in range(len(starts)) for _ in range(beams)]
        order = run.constant(INT64, [len(each)], each)
        made = {k: run.op("Gather", v, order, axis=0) if beams > 1 else v for k, v in made.items()}
        self.known = {
            **({"encoder_attention_mask": _int32(run, [masks[i] for i in each])} if masks else {}),
            **{k: v for k, v in made.items() if k == "encoder_hidden_states"},
            **{k.replace("present_", "past_"): v for k, v in made.items() if "cross" in k},
        }
        self.pasts = [name for name in self.names if "_self_" in name]
        missing = [
            name for name in self.names[1:] if name not in self.known and name not in self.pasts
        ]
        if missing:
            unsupported(
                n,
                f"a decoder with the input {missing[0]}",
                "Export it without a past that shares its buffer.",
            )
        if "logits" in made:
            self.out = [
                made["logits"],
                *(made[name.replace("past_", "present_")] for name in self.pasts),
            ]
            return
        shapes = {i.name: i.shape for i in decoder.inputs}
        empty = []
        for name in self.pasts:
            shape = shapes[name]
            if (
                shape is None
                or len(shape) != 4
                or not isinstance(shape[1], int)
                or not isinstance(shape[3], int)
            ):
                fail(
                    n,
                    f"its decoder's input '{name}' does not say how many heads of what size it has",
                    "Export the model again.",
                )
            empty.append(RunTensor(FLOAT, [len(each), shape[1], 0, shape[3]], b""))
        self.step([starts[i] for i in each], empty)

    def step(self, tokens, pasts):
        pasts = dict(zip(self.pasts, pasts))
        self.out = self.body(
            _int32(self.run, tokens),
            *(pasts[name] if name in pasts else self.known[name] for name in self.names[1:]),
        )

    def logits(self):
        return _last(self.run, self.out[0])

    def feed(self, tokens, sources):
        run = self.run
        order = run.constant(INT64, [len(sources)], sources)
        pasts = [
            run.op("Gather", v, order, axis=0) if sources != list(range(len(sources))) else v
            for v in self.out[1:]
        ]
        self.step([[t] for t in tokens], pasts)


def _last(run: Host, logits):
    """[rows, vocabulary] of the last position of [rows, positions, vocabulary]."""
    rows, positions, vocabulary = logits.shape
    if positions != 1:
        logits = run.op(
            "Slice", logits, *(run.constant(INT64, [1], [i]) for i in (positions - 1, positions, 1))
        )
    return run.op("Reshape", logits, run.constant(INT64, [2], [rows, vocabulary]))


# ---- beams ----
class _Hypotheses:
    """The best finished sequences of one prompt."""

    def __init__(self, size, penalty, early):
        self.size, self.penalty, self.early, self.best, self.done = size, penalty, early, [], False

    def add(self, sequence, score):
        score = score / len(sequence) ** self.penalty
        if len(self.best) < self.size or score > min(s for s, _ in self.best):
            self.best.append((score, sequence))
            if len(self.best) > self.size:
                self.best.remove(min(self.best, key=lambda b: b[0]))

    def finished(self, best_sum, length):
        if len(self.best) < self.size:
            return False
        return self.early or min(s for s, _ in self.best) >= best_sum / length**self.penalty


def _beam_search(node: BoundNode, run: Host, inputs, places):
    def one(i: int, default):
        return inputs[i].numbers[0] if i < len(inputs) and inputs[i] is not None else default

    beams, returned, length_penalty = one(3, 1), one(4, 1), one(5, 1.0)
    if beams < 1 or not 1 <= returned <= beams:
        fail(node, f"{returned} sequences of {beams} beams are to be returned")
    s = _Search(node, run, inputs, beams, places)
    found = [
        _Hypotheses(beams, length_penalty, bool(node.attr("early_stopping", 0)))
        for _ in range(s.batch)
    ]
    sums, kept = [0.0 if i % beams == 0 else -1e9 for i in range(s.rows)], []
    begin = s.length
    while s.length < s.longest:
        scores = run.op("Add", s.scores(True), run.constant(FLOAT, [s.rows, 1], sums))
        if node.wants(2):
            kept.append(scores)
        vocabulary = scores.shape[1]
        flat = run.op("Reshape", scores, run.constant(INT64, [2], [s.batch, beams * vocabulary]))
        values, index = (
            list(v.numbers)
            for v in run.op("TopK", flat, run.constant(INT64, [1], [2 * beams]), outputs=2)
        )
        tokens, sources, sums = [], [], []
        for b, hypotheses in enumerate(found):
            at, chosen = b * 2 * beams, []
            if hypotheses.done:
                tokens, sources, sums = (
                    tokens + [s.pad] * beams,
                    sources + [b * beams] * beams,
                    sums + [0.0] * beams,
                )
                continue
            for rank in range(2 * beams):
                score, (beam, token) = values[at + rank], divmod(index[at + rank], vocabulary)
                row = b * beams + beam
                if token == s.eos:
                    if rank < beams:
                        hypotheses.add(s.sequences[row], score)
                else:
                    chosen.append((token, row, score))
                    if len(chosen) == beams:
                        break
            if len(chosen) < beams:
                fail(node, f"its {vocabulary} tokens are too few for {beams} beams")
            for part, of in zip((tokens, sources, sums), zip(*chosen)):
                part.extend(of)
            hypotheses.done = hypotheses.finished(values[at], s.length)
        s.go_on(tokens, sources)
        if all(h.done for h in found):
            break
    sequences, final = [], []
    for b, hypotheses in enumerate(found):
        if not hypotheses.done:
            for i in range(b * beams, (b + 1) * beams):
                hypotheses.add(s.sequences[i], sums[i])
        for score, tokens in sorted(hypotheses.best, key=lambda h: -h[0])[:returned]:
            sequences += tokens + [s.pad] * (s.longest - len(tokens))
            final.append(score)
    outs = [
        run.constant(INT32, [s.batch, returned, s.longest], sequences),
        run.constant(FLOAT, [s.batch, returned], final),
    ]
    if node.wants(2):
        steps, vocabulary = s.longest - begin, kept[0].shape[1] if kept else 0
        kept += [run.constant(FLOAT, list(kept[0].shape), [0.0] * (s.rows * vocabulary))] * (
            steps - len(kept)
        )
        outs.append(
            run.op(
                "Reshape",
                run.stack(kept),
                run.constant(INT64, [4], [steps, s.batch, beams, vocabulary]),
            )
        )
    return outs[: len(node.outputs)]


beam_search = Op("BeamSearch", MS)
# input_ids, max_length, min_length, num_beams, num_return_sequences, length_penalty,
# repetition_penalty, vocab_mask, prefix_vocab_mask, attention_mask, decoder_input_ids,
# logits_processor


@beam_search.host
def beam_search_host(node: BoundNode, run: Host, inputs: list[Any]) -> list[Any] | None:
    return _beam_search(
        node,
        run,
        inputs,
        {
            "min_length": 2,
            "repetition_penalty": 6,
            "vocab_mask": 7,
            "prefix_vocab_mask": 8,
            "attention_mask": 9,
            "decoder_input_ids": 10,
            "logits_processor": 11,
        },
    )


whisper_beam_search = Op(
    "WhisperBeamSearch",
    MS,
    # as BeamSearch, then cross_qk_layer_head, extra_decoding_ids, temperature; input_ids are
    # features [batch, bands, frames]
)


@whisper_beam_search.host
def whisper_beam_search_host(node: BoundNode, run: Host, inputs: list[Any]) -> list[Any] | None:
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
    return _beam_search(
        node,
        run,
        inputs,
        {
            "min_length": 2,
            "repetition_penalty": 6,
            "vocab_mask": 7,
            "prefix_vocab_mask": 8,
            "attention_mask": 9,
            "decoder_input_ids": 10,
            "logits_processor": 11,
            "temperature": 14,
        },
    )


# ---- one sequence per prompt ----
def _one_by_one(n, run: Host, inputs, places, choose):
    """choose(scores): the next token of each row."""
    s = _Search(n, run, inputs, 1, places)
    ended = [False] * s.rows
    while s.length < s.longest:
        tokens = choose(s.scores(False))
        ended = [e or t == s.eos for e, t in zip(ended, tokens)]
        s.go_on([s.pad if e else t for e, t in zip(ended, tokens)])
        if all(ended):
            break
    return run.constant(
        INT32,
        [s.rows, s.longest],
        [t for row in s.sequences for t in row + [s.pad] * (s.longest - len(row))],
    )


PLACES = {
    "min_length": 2,
    "repetition_penalty": 3,
    "vocab_mask": 4,
    "prefix_vocab_mask": 5,
    "attention_mask": 6,
}

greedy_search = Op(
    "GreedySearch",
    MS,
    # input_ids, max_length, min_length, repetition_penalty, vocab_mask, prefix_vocab_mask,
    # attention_mask
)


@greedy_search.host
def greedy_search_host(node: BoundNode, run: Host, inputs: list[Any]) -> list[Any] | None:
    return [
        _one_by_one(
            node,
            run,
            inputs,
            PLACES,
            lambda scores: list(run.op("ArgMax", scores, axis=1, keepdims=0).numbers),
        )
    ]


sampling = Op("Sampling", MS)  # as GreedySearch, then presence_mask, seed


@sampling.host
def sampling_host(node: BoundNode, run: Host, inputs: list[Any]) -> list[Any] | None:
    """Random numbers are not onnxruntime's: which tokens may follow is the same, which of them
    follows is not.
    """
    if node.attr("custom", 0) or len(inputs) > 7 and inputs[7] is not None:
        unsupported(node, "a presence penalty")
    seed = inputs[8].numbers[0] if len(inputs) > 8 and inputs[8] is not None else None
    draw, top_p, keep, filtered = (
        random.Random(seed),
        node.attr("top_p", 0.0),
        max(1, node.attr("min_tokens_to_keep", 1)),
        [],
    )

    def choose(scores):
        rows, vocabulary = scores.shape
        if 0.0 < top_p < 1.0:
            ranked, order = run.op(
                "TopK", scores, run.constant(INT64, [1], [vocabulary]), largest=0, outputs=2
            )  # from the least likely
            below = run.op(
                "CumSum", run.op("Softmax", ranked, axis=-1), run.constant(INT64, [], [1])
            )
            out = run.op(
                "And",
                run.op("LessOrEqual", below, run.constant(FLOAT, [], [1.0 - top_p])),
                run.op(
                    "Less",
                    run.op("Range", *(run.constant(INT64, [], [i]) for i in (0, vocabulary, 1))),
                    run.constant(INT64, [], [vocabulary - keep]),
                ),
            )
            scores = run.op(
                "ScatterElements",
                scores,
                order,
                run.op(
                    "Where",
                    out,
                    run.constant(FLOAT, [], [node.attr("filter_value", -1e20)]),
                    ranked,
                ),
                axis=1,
            )
        filtered[:] = [scores]
        shares, tokens = list(run.op("Softmax", scores, axis=-1).numbers), []
        for r in range(rows):
            at, left = 0, draw.random()
            row = shares[r * vocabulary : (r + 1) * vocabulary]
            last = max(i for i, p in enumerate(row) if p > 0)
            while at < last and left >= row[at]:
                left -= row[at]
                at += 1
            tokens.append(at)
        return tokens

    sequences = _one_by_one(node, run, inputs, PLACES, choose)
    return [sequences, filtered[0]][: len(node.outputs)] if filtered else [sequences]
