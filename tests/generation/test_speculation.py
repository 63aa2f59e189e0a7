"""Tokens that are read ahead of their choice: texts and their distribution are those without."""

import random
from contextlib import contextmanager

import numpy as np
import onnxruntime
import pytest
from edgewise import CausalLM, generate
from edgewise.compiler.compile import compile_package
from edgewise.compiler.onnx.source import BytesSource
from edgewise.errors import Aborted
from edgewise.logic.generation.speculation import MAX_MATCH, MAX_PLACES, MIN_MATCH, Pace

from tests.logic.forms import both, module
from tests.training import llama

from .hybrid import hybrid_model

CAPACITY = 256
ROWS = 16  # tokens of a run that checks guesses


@contextmanager
def load(kind):
    data = hybrid_model().SerializeToString() if kind == "hybrid" else llama.base(kind)
    files = {"model.onnx": BytesSource(data, "model.onnx")}
    lm = CausalLM(compile_package(files, capacity=CAPACITY))
    try:
        yield lm
    finally:
        lm.free()


@pytest.fixture
def runs(monkeypatch):
    """Reads all guesses; the numbers of tokens that were read at once."""
    sizes, verify = [], CausalLM.verify
    monkeypatch.setattr(Pace, "allows", lambda *_: True)
    monkeypatch.setattr(CausalLM, "verify", lambda *a: sizes.append(len(a[2])) or verify(*a))
    return sizes


def prompts(vocab):
    r = random.Random(3)
    piece = [r.randrange(1, vocab) for _ in range(12)]
    yield [r.randrange(1, vocab) for _ in range(40)]
    yield piece * 4
    yield [*piece, *(r.randrange(1, vocab) for _ in range(30)), *piece[:5]]


@pytest.mark.parametrize("kind", ["q4", "fp32"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 4},
        {"do_sample": True, "seed": 5, "top_k": 3},
        {"do_sample": True, "seed": 6, "num_return_sequences": 3},
        {"max_new_tokens": CAPACITY},  # to the end of the cache
    ],
)
def test_texts_are_those_without_guesses(kind, fields, runs):
    with load(kind) as lm:
        assert lm.verified == ROWS
        fields = {"max_new_tokens": 60, **fields}
        whole = {"return_dict_in_generate": True, "output_logits": True, **fields}
        for prompt in prompts(lm.vocab_size):
            want = generate(lm, prompt, **whole)
            for most in (1, 5, 40):
                assert (
                    generate(lm, prompt, prompt_lookup_num_tokens=most, **fields)
                    == (want["sequences"])
                )
            found = generate(lm, prompt, prompt_lookup_num_tokens=15, cache=True, **whole)
            assert found["sequences"] == want["sequences"]
            bound = 1e-4 * np.abs(want["logits"]).max()
            np.testing.assert_allclose(found["logits"], want["logits"], rtol=0, atol=bound)
        assert {2, 6, ROWS} <= {*runs}


def test_distribution_of_samples(runs):
    """Two tokens after a prompt, in many samples: as often as onnxruntime's logits say."""
    session = onnxruntime.InferenceSession(llama.base("fp32"))

    def logits(ids):
        feeds = {"input_ids": [ids], "attention_mask": [[1] * len(ids)]}
        feeds["position_ids"] = [range(len(ids))]
        given = {i.name: i for i in session.get_inputs()}
        feeds = {n: np.array(x, np.int64) for n, x in feeds.items() if n in given}
        for name, one in given.items():
            if name.startswith("past"):
                shape = [
                    1 if d == "batch_size" else 0 if isinstance(d, str) else d for d in one.shape
                ]
                feeds[name] = np.zeros(shape, np.float32)
        return session.run(["logits"], feeds)[0][0, -1].astype(np.float64)

    def probabilities(ids):
        scores = logits(ids) / 0.7
        best = np.argsort(-scores)[:4]
        p = np.exp(scores[best] - scores[best[0]])
        return dict(zip(best.tolist(), p / p.sum()))

    with load("fp32") as lm:
        first = next(prompts(lm.vocab_size))[:8]
        likely = max(probabilities(first), key=probabilities(first).get)
        prompt = [*first, likely, *first]  # the guess begins with the likely token
        want = {
            (a, b): p * q
            for a, p in probabilities(prompt).items()
            for b, q in probabilities([*prompt, a]).items()
        }
        fields = {"do_sample": True, "temperature": 0.7, "top_k": 4, "max_new_tokens": 3}
        count, seen = 3000, dict.fromkeys(want, 0)
        rows = generate(
            lm, prompt, num_return_sequences=count, seed=1, prompt_lookup_num_tokens=4, **fields
        )
        for row in rows:
            seen[tuple(row[len(prompt) : len(prompt) + 2])] += 1
    assert len(runs) > count / 8
    square = sum((seen[k] - count * p) ** 2 / (count * p) for k, p in want.items())
    assert square < len(want) + 5 * (2 * len(want)) ** 0.5  # of chi-squared


def test_streams_stops_and_processors(runs):
    """The caller sees one token after the other, and may end at any of them."""
    with load("q4") as lm:
        prompt = [*range(3, 15)] * 4
        [want] = generate(lm, prompt, max_new_tokens=40)
        lookup = {"prompt_lookup_num_tokens": 15, "max_new_tokens": 40}
        put, seen = [], []

        class Streamer:
            def put(self, ids):
                put.extend(ids)

            def end(self):
                put.append(None)

        generate(lm, prompt, streamer=Streamer(), **lookup)
        assert put == [*want, None]
        generate(lm, prompt, logits_processor=lambda ids, _: seen.append(ids), **lookup)
        assert seen == [want[:n] for n in range(len(prompt), len(want))]
        for n in (1, 7, 23):
            end = len(prompt) + n
            [ids] = generate(
                lm, prompt, stopping_criteria=lambda ids, _, end=end: len(ids) >= end, **lookup
            )
            assert ids == want[:end]
            put.clear()
            with pytest.raises(Aborted) as e:
                generate(lm, prompt, signal=lambda: len(put) >= end, streamer=Streamer(), **lookup)
            assert e.value.sequences[0] == want[: len(e.value.sequences[0])]
        assert runs
        assert not lm.sequences


def test_states_that_cannot_be_cut_are_not_read_ahead():
    with load("hybrid") as lm:
        assert lm.verified == 0
        prompt = [1, 2, 3, 4] * 5
        assert generate(lm, prompt, max_new_tokens=9, prompt_lookup_num_tokens=3) == generate(
            lm, prompt, max_new_tokens=9
        )


@both
def test_guess(form):
    logic = module(form, "generation.speculation")
    r = random.Random(1)
    for _ in range(40):
        ids = [r.randrange(4) for _ in range(r.randint(1, MAX_PLACES))]
        want, length = [], 0
        for n in range(MAX_MATCH, MIN_MATCH - 1, -1):
            places = [i for i in range(n, len(ids)) if ids[i - n : i] == ids[len(ids) - n :]]
            if places:
                want, length = (ids[places[-1] :] * 5)[:5], n
                break
        lookup = logic.Lookup()
        lookup.add(ids[: len(ids) // 2])
        lookup.add(ids)
        found, guesses = lookup.guess(ids, 5)
        assert (found, list(guesses)) == (length, want), ids


def time_of(logic, text, several):
    """Seconds of a text whose runs of guesses take `several` times as long as one token, over the
    seconds without guesses.
    """
    pace = logic.Pace()
    ahead = logic.Speculation(pace, 15, 4)
    seconds = 0.0
    for n in range(20, len(text)):
        if ahead.chosen(text[n - 1]):
            continue
        ahead.left()
        guesses = list(ahead.guess(text[:n], len(text) - n))
        if guesses:
            seconds += several
            pace.verified(float(several))
            ahead.read(guesses, 4)
        else:
            seconds += 1
            pace.ran(1.0)
    return seconds / (len(text) - 20)


@both
def test_off_where_it_saves_no_time(form):
    """By what was measured: texts without repetitions, and runs that take too long."""
    logic = module(form, "generation.speculation")
    r = random.Random(2)
    copied = [r.randrange(500) for _ in range(150)]
    copy = [*copied, *copied]
    noise = [r.randrange(6) for _ in range(400)]  # pairs occur again, what follows them does not
    assert time_of(logic, copy, 2.5) < 0.7
    for several in (2.5, 4, 30):
        assert time_of(logic, noise, several) < 1.03
    assert time_of(logic, copy, 30) < 1.15  # one run, to measure it
