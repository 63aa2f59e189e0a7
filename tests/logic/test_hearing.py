"""Recognition of pieces of words on both forms: the search of transducers against all alignments,
texts against the decoders of tokenizers, times against transformers' ParakeetProcessor
(make_parakeet_times.py).
"""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from edgewise.errors import InputError
from edgewise.logic.speech.transducer import Joined

from .forms import both, module

CASES = json.loads(Path(__file__).with_name("parakeet_times.json").read_text(encoding="utf-8"))


class Scores:
    """A model whose scores depend on all tokens and the frame.

    Args:
        tokens: how many there are; the last one is the blank.
        durations: how many there are.
    """

    def __init__(self, seed, tokens, durations):
        self.seed, self.tokens, self.durations = seed, tokens, durations
        self.known = {}  # tokens by their numbers
        self.asked = []

    def of(self, tokens, frame):
        """Logarithms of probabilities of tokens, and of durations."""
        generator = np.random.default_rng([self.seed, frame, *(t + 1 for t in tokens)])
        both = []
        for size in (self.tokens, self.durations):
            x = 2 * generator.standard_normal(size)
            both.append((x - np.log(np.exp(x).sum())).tolist() if size else [])
        return both

    def answer(self, request):
        if request.kind == "listen":
            return self.frames
        if request.kind == "done":
            return None
        kept = {*request.keep, request.place}
        self.known = {i: tokens for i, tokens in self.known.items() if i in kept}
        if request.place not in self.known:
            before = [] if request.parent < 0 else self.known[request.parent]
            self.known[request.place] = [*before, request.context[-1]] if self.made else []
        self.made = True
        self.asked.append((request.place, request.frame))
        scores, durations = self.of(self.known[request.place], request.frame)
        order = sorted(range(self.tokens), key=lambda i: -scores[i])
        return Joined(order, [scores[i] for i in order], durations)

    made = False
    frames = 0


def driven(steps, model):
    value = None
    while True:
        try:
            request = steps.send(value)
        except StopIteration as over:
            return over.value
        value = model.answer(request)


def alignments(model, frames, rule, durations, symbols, path=((), 0, 0, 0.0)):
    """Yields (tokens, logarithm of the probability) of all alignments."""
    tokens, frame, made, score = path
    if frame >= frames:
        yield tokens, score
        return
    scores, more = model.of(tokens, frame)
    for token in range(model.tokens):
        blank = token == model.tokens - 1
        after = tokens if blank else (*tokens, token)
        count = made + (not blank)
        full = blank or count >= symbols
        for step, extra in zip(durations, more, strict=True) if durations else [(0, 0.0)]:
            moved = max(step, 1) if full else step
            total = score + scores[token] + extra
            nexts = (after, frame + moved, 0 if moved else count, total)
            yield from alignments(model, frames, rule, durations, symbols, nexts)


@both
@pytest.mark.parametrize("durations", [[], [0, 1, 2], [1, 2]])
def test_beams_find_the_likeliest_tokens(form, durations):
    """All alignments of the same tokens count, so the sum of their probabilities is the highest."""
    transducer = module(form, "speech.transducer")
    for seed in range(6):
        symbols = 1 if seed % 2 or not durations else 2
        frames = 3 if symbols == 1 else 2
        scores = Scores(seed, 3, len(durations))
        sums = {}
        for tokens, score in alignments(scores, frames, None, durations, symbols):
            sums[tokens] = np.logaddexp(sums.get(tokens, -math.inf), score)
        model = transducer.Transducer(2, durations, symbols, 0)
        found = driven(transducer.searched(model, frames, 16), scores)
        assert tuple(one.token for one in found) == max(sums, key=sums.get)
        assert all(a.start <= b.start for a, b in zip(found, found[1:]))


@both
def test_greedy_tokens_and_what_is_kept(form):
    transducer = module(form, "speech.transducer")
    for seed, durations in ((1, []), (2, [0, 1, 2, 4])):
        scores = Scores(seed, 5, len(durations))
        model = transducer.Transducer(4, durations, 3, 0)
        found = driven(transducer.greedy(model, 40), scores)
        tokens, t, made, expected = [], 0, 0, []
        while t < 40:  # NeMo's rule
            words, more = scores.of(tokens, t)
            token = int(np.argmax(words))
            step = durations[int(np.argmax(more))] if durations else 0
            if token != 4:
                expected.append((token, t, t + (step if durations else 1)))
                tokens.append(token)
                made += 1
            if step or token == 4 or made == 3:
                t, made = t + max(step, 1), 0
        assert [tuple(one) for one in found] == expected
        assert len(scores.known) <= 3  # nothing else stays in memory


@both
def test_contexts_without_a_state(form):
    transducer = module(form, "speech.transducer")
    seen = []

    class Watched(Scores):
        def answer(self, request):
            if request.kind == "join":
                seen.append((request.place, tuple(request.context)))
            return super().answer(request)

    found = driven(transducer.greedy(transducer.Transducer(0, [], 1, 3), 30), Watched(5, 4, 0))
    tokens = [0] if not found else [one.token for one in found]
    for place, context in seen:
        assert context == tuple([-1, -1, 0, *tokens[:place]][-3:])


@both
def test_parts_of_long_sounds(form):
    """Tokens in what chunks share are there once, with frames of the recording."""
    transducer, ctc = module(form, "speech.transducer"), module(form, "speech.ctc")
    frames = ctc.Frames(16000, 1280, [], 64000, False)
    model = transducer.Transducer(1, [], 1, 1)
    heard, at = [], [0]

    def answer(request):
        if request.kind == "listen":
            at[0] = round(request.start / 1280)
            heard.append((request.start, request.length))
            return round(request.length / 1280)
        if request.kind == "done":
            return None
        token = 0 if (at[0] + request.frame) % 7 == 0 else 1
        return Joined([token], [0.0], [])

    steps, value = transducer.recognized(model, frames, {}, 400000), None
    while True:
        try:
            value = answer(steps.send(value))
        except StopIteration as over:
            found = over.value
            break
    assert len(heard) > 5 and [one.start for one in found] == list(range(0, 313, 7))
    with pytest.raises(InputError, match="do not advance"):
        options = {"chunk_length_s": 1, "stride_length_s": 1}
        next(iter_of(transducer.recognized(model, frames, options, 400000)))


def iter_of(steps):
    yield steps.send(None)


@both
def test_texts_are_those_of_tokenizers(form):
    tokenizers = pytest.importorskip("tokenizers")
    pieces, generator = module(form, "speech.pieces"), random.Random(3)
    words = ["▁the", "s", "▁", "é", "<0xC3>", "<0xA9>", "<0x41>", "▁a", ".", "<0xFF>", "<blk>"]
    parts = [
        tokenizers.decoders.Replace("▁", " "),
        tokenizers.decoders.ByteFallback(),
        tokenizers.decoders.Fuse(),
    ]
    decoder = tokenizers.decoders.Sequence(parts)
    model = pieces.Pieces(words, 10, [10])
    for _ in range(60):
        ids = [generator.randrange(11) for _ in range(generator.randrange(12))]
        # bytes that are no character: tokenizers has U+FFFD for each byte of a run
        data = [words[i] for i in ids if i != 10]
        expected = decoder.decode(data).strip()
        found = pieces.text_of(model, ids)
        assert found.replace("\ufffd", "") == found if "\ufffd" not in expected else True
        if "\ufffd" not in expected:
            assert found == expected


@both
@pytest.mark.parametrize("kind", ["tdt", "rnnt"])
def test_times_are_those_of_transformers(form, kind):
    pieces = module(form, "speech.pieces")
    words = CASES["words"]
    model = pieces.Pieces(words, 18, [0, 2, 18])
    for case in CASES["cases"]:
        if case["kind"] != kind:
            continue
        frame, heard = 0, []
        for token, step in zip(case["ids"], case["steps"], strict=True):
            if token != 18:
                end = frame + (step if kind == "tdt" else 1)
                heard.append(pieces.Heard(token, frame, end))
            frame += step
        found = pieces.transcript(model, heard, "char", 0.08, kind == "tdt")
        assert found["text"] == case["text"].strip()
        ours = [(c["text"].strip(), *c["timestamp"]) for c in found["chunks"]]
        theirs = [(text.strip(), start, end) for text, start, end in case["times"]]
        assert [o[0] for o in ours if o[0]] == [t[0] for t in theirs if t[0]]
        for one, other in zip((o for o in ours if o[0]), (t for t in theirs if t[0]), strict=True):
            assert one[1:] == pytest.approx(other[1:])
        text = " ".join(c["text"] for c in pieces.transcript(model, heard, "word", 1.0)["chunks"])
        assert text.split() == found["text"].split()


@both
def test_options(form):
    pieces, transducer = module(form, "speech.pieces"), module(form, "speech.transducer")
    expected = {None: "", False: "", True: "segment", "word": "word", "char": "char"}
    for value, kind in expected.items():
        assert pieces.times_of({"return_timestamps": value}) == kind
    with pytest.raises(InputError, match="no times of kind"):
        pieces.times_of({"return_timestamps": "line"})
    assert transducer.beams_of({}) == 1 and transducer.beams_of({"num_beams": 99}) == 16
    with pytest.raises(InputError, match="num_beams"):
        transducer.beams_of({"num_beams": 0.5})


WORDS = ["▁", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>", "<|en|>"]
WORDS += ["<|de|>", "<|pnc|>", "<|nopnc|>", "<|noitn|>", "<|notimestamp|>", "<|timestamp|>"]
WORDS += ["<|nodiarize|>", "<|endoftext|>", "<|0|>", "<|3|>", "<|12|>", "▁the", "s", "▁a"]


@both
def test_prompts_of_canary(form):
    """Those of onnx-asr 0.12.0 for Canary 1B v2, and of NeMo for Canary 1B."""
    canary, pieces = module(form, "speech.canary"), module(form, "speech.pieces")
    model = pieces.Pieces(WORDS, 12, [12])
    for options, times, expected in (
        ({}, "", [0, 1, 2, 3, 4, 4, 6, 8, 9, 11]),
        ({"language": "de"}, "", [0, 1, 2, 3, 5, 5, 6, 8, 9, 11]),
        ({"language": "German", "task": "translate"}, "", [0, 1, 2, 3, 5, 4, 6, 8, 9, 11]),
        ({"target_language": "de", "pnc": False}, "word", [0, 1, 2, 3, 4, 5, 7, 8, 10, 11]),
    ):
        assert canary.prompt_of(model, options, times) == expected
    first = ["<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>", "<|translate|>"]
    model = pieces.Pieces([*first, "<|pnc|>", "<|nopnc|>", "<|endoftext|>"], 7, [7])
    assert canary.prompt_of(model, {}, "") == [0, 1, 3, 1, 5]
    options = {"language": "de", "target_language": "en", "pnc": False}
    assert canary.prompt_of(model, options, "") == [0, 2, 4, 1, 6]
    for options, times, message in (
        ({}, "word", "gives no times"),
        ({"language": "xx"}, "", "unknown to the model"),
        ({"task": "sing"}, "", "transcribe, translate"),
    ):
        with pytest.raises(InputError, match=message):
            canary.prompt_of(model, options, times)


@both
def test_times_that_canary_writes(form):
    """`<|0|> the <|3|> <|3|> a s <|12|>`: words between their frames."""
    canary, pieces = module(form, "speech.canary"), module(form, "speech.pieces")
    model = pieces.Pieces(WORDS, 12, list(range(1, 16)))
    heard = canary.heard_of(model, [13, 16, 14, 14, 18, 17, 15, 16])
    assert [tuple(one) for one in heard] == [(16, 0, 3), (18, 3, 12), (17, 3, 12), (16, 12, 12)]
    found = pieces.transcript(model, heard, "word", 0.08)
    assert found["text"] == "the as the"
    expected = [("the", 0.0, 0.24), ("as", 0.24, 0.96), ("the", 0.96, 0.96)]
    for chunk, (text, start, end) in zip(found["chunks"], expected, strict=True):
        assert chunk["text"] == text and chunk["timestamp"] == pytest.approx((start, end))


@both
def test_tokens_of_canary_end(form):
    """A decoder that never ends is stopped where its plans end; parts are joined."""
    canary, pieces = module(form, "speech.canary"), module(form, "speech.pieces")
    ctc = module(form, "speech.ctc")
    model, frames = pieces.Pieces(WORDS, 12, [12]), ctc.Frames(16000, 1280, [], 64000, False)
    asked = []

    def run(count, answers):
        steps, value = canary.recognized(model, [1, 2], 8, frames, {}, count), None
        while True:
            try:
                request = steps.send(value)
            except StopIteration as over:
                return over.value
            value = 5
            if request.kind == "decode":
                asked.append((list(request.tokens), request.past))
                value = answers(len(asked))

    found = run(32000, lambda n: 16)
    assert [one.token for one in found] == [16] * 6 and asked[-1] == ([16], 6)
    asked.clear()
    sequences = [16, 17, 18, 12, 17, 18, 16, 12]
    found = run(100000, lambda n: sequences[n - 1])
    assert [one.token for one in found] == [16, 17, 18, 16]
