"""Tokens that a smaller model guesses: texts and their distribution are those without it."""

import json
import shutil
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from edgewise import CausalLM, generate, pipeline
from edgewise.cli import main
from edgewise.compiler.compile import compile_package
from edgewise.compiler.onnx.source import BytesSource
from edgewise.errors import Aborted, InputError
from edgewise.logic.generation.speculation import DraftPace, Lookup
from edgewise.text.generate import model_defaults
from onnx import numpy_helper

from tests.logic.forms import both, module
from tests.training import llama

from .test_speculation import load, prompts

CAPACITY = 256
MODEL = Path(__file__).parents[2] / "web/demo/model"


def noisy(amount):
    """The model with other weights: it guesses right now and then."""
    model = onnx.load_from_string(llama.base("fp32"))
    r = np.random.default_rng(4)
    for one in model.graph.initializer:
        if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) == 2:
            x = numpy_helper.to_array(one)
            x = x + amount * x.std() * r.standard_normal(x.shape).astype(np.float32)
            one.CopyFrom(numpy_helper.from_array(x.astype(np.float32), one.name))
    return model.SerializeToString()


@contextmanager
def assistant(data):
    """A model. data: an .onnx file's bytes, or the path of a package."""
    if isinstance(data, bytes):
        data = compile_package({"model.onnx": BytesSource(data, "model.onnx")}, capacity=CAPACITY)
    lm = CausalLM(data)
    try:
        yield lm
        assert not lm.sequences
    finally:
        lm.free()


@pytest.fixture
def runs(monkeypatch):
    """Reads all guesses; (tokens read at once, tokens of the text that a round gave)."""
    sizes, gave, verify, over = [], [], CausalLM.verify, DraftPace.over
    monkeypatch.setattr(DraftPace, "allows", lambda *_: True)
    monkeypatch.setattr(CausalLM, "verify", lambda *a: sizes.append(len(a[2])) or verify(*a))
    monkeypatch.setattr(DraftPace, "over", lambda *a: gave.append(a[2]) or over(*a))
    return sizes, gave


FIELDS = [
    {},
    {"repetition_penalty": 1.3, "no_repeat_ngram_size": 4},
    {"do_sample": True, "seed": 5, "top_k": 3},
    {"do_sample": True, "seed": 6, "num_return_sequences": 3, "max_new_tokens": 20},
    {"prompt_lookup_num_tokens": 5},
    {"assistant_confidence_threshold": 0.0, "num_assistant_tokens": 3},
    {"max_new_tokens": CAPACITY},  # to the end of the caches
]


@pytest.mark.parametrize("amount", [0.0, 0.2, 1.0])
def test_texts_are_those_without_it(amount, runs):
    with load("fp32") as lm, assistant(noisy(amount)) as small:
        for given in FIELDS:
            fields = {"max_new_tokens": 60, "assistant_confidence_threshold": 0.01, **given}
            for prompt in prompts(lm.vocab_size):
                want = generate(lm, prompt, **fields)
                assert generate(lm, prompt, assistant_model=small, **fields) == want
    sizes, gave = runs
    assert max(sizes) > 5
    right = np.mean(gave)
    assert right > 3 if amount == 0 else right > 1.2 if amount == 0.2 else right >= 1


def test_turns_of_a_conversation(runs):
    """Both models keep what they have read."""
    with load("fp32") as lm, assistant(llama.base("q4")) as small:
        ids, read, forward = [*range(3, 150)], [], small.forward
        small.forward = lambda *a: read.append(len(a[1])) or forward(*a)
        for turn in range(2):
            [want] = generate(lm, ids, max_new_tokens=20)
            fields = {"max_new_tokens": 20, "cache": True, "assistant_model": small}
            assert generate(lm, ids, **fields) == [want]
            assert (max(read) >= 100) == (turn == 0), read
            ids = [*want, *range(30, 40)]
            read.clear()
        small.clear_cache()


def test_distribution_of_samples(runs):
    """Two tokens after a prompt, in many samples: as often as onnxruntime's logits say, whatever
    the smaller model guesses.
    """
    session = onnxruntime.InferenceSession(llama.base("fp32"))

    def probabilities(ids):
        feeds = {"input_ids": [ids], "attention_mask": [[1] * len(ids)]}
        feeds["position_ids"] = [range(len(ids))]
        given = {i.name: i for i in session.get_inputs()}
        feeds = {n: np.array(x, np.int64) for n, x in feeds.items() if n in given}
        for name, one in given.items():
            if name.startswith("past"):
                sizes = {"batch_size": 1}
                shape = [sizes.get(d, 0) if isinstance(d, str) else d for d in one.shape]
                feeds[name] = np.zeros(shape, np.float32)
        scores = session.run(["logits"], feeds)[0][0, -1].astype(np.float64) / 0.7
        best = np.argsort(-scores)[:4]
        p = np.exp(scores[best] - scores[best[0]])
        return dict(zip(best.tolist(), p / p.sum()))

    prompt, count = [*range(5, 25)], 1500
    want = {
        (a, b, c): p * q * s
        for a, p in probabilities(prompt).items()
        for b, q in probabilities([*prompt, a]).items()
        for c, s in probabilities([*prompt, a, b]).items()
    }
    fields = {"do_sample": True, "temperature": 0.7, "top_k": 4, "max_new_tokens": 7, "seed": 1}
    with load("fp32") as lm, assistant(noisy(0.05)) as small:
        rows = generate(
            lm,
            prompt,
            num_return_sequences=count,
            assistant_model=small,
            assistant_confidence_threshold=0.0,
            **fields,
        )
    seen = Counter(tuple(row[len(prompt) : len(prompt) + 3]) for row in rows)
    sizes, gave = runs
    assert len(sizes) > count / 2
    assert 1.2 < np.mean(gave) < 4  # some guesses are right, and some are not
    square = sum((seen[k] - count * p) ** 2 / (count * p) for k, p in want.items())
    assert square < len(want) + 5 * (2 * len(want)) ** 0.5  # of chi-squared


def test_refused_in_words_and_ended(runs):
    with load("fp32") as lm, load("hybrid") as other, assistant(llama.base("q4")) as small:
        with pytest.raises(InputError, match="assistant_model has a vocabulary of 61 tokens"):
            generate(lm, [1, 2, 3], assistant_model=other)
        for field, value in [("num_assistant_tokens", 0), ("assistant_confidence_threshold", "a")]:
            with pytest.raises(InputError, match=field):
                generate(lm, [1, 2, 3], assistant_model=small, **{field: value})
        put = []

        class Streamer:
            def put(self, ids):
                put.extend(ids)

            def end(self):
                pass

        prompt = [*range(3, 40)]
        [want] = generate(lm, prompt, max_new_tokens=30)
        with pytest.raises(Aborted) as e:
            generate(
                lm,
                prompt,
                max_new_tokens=30,
                assistant_model=small,
                streamer=Streamer(),
                signal=lambda: len(put) > 50,
            )
        assert e.value.sequences == [want[: len(put)]]
        assert not lm.sequences


def time_of(logic, right, several, guessing, reading, tokens=3000, length=300):
    """Seconds of texts, over those without guesses, if guesses of 5 tokens give `right`."""
    pace, drafts = logic.Pace(), logic.DraftPace()
    drafts.began(guessing / 5)
    seconds, made = 2 * guessing / 5, 0
    while made < tokens:
        at = 0
        behind = 200
        while at < length:
            if drafts.allows(pace, behind):
                if behind > 16:
                    seconds += reading * behind
                    drafts.read(behind, reading * behind)
                behind = 0
                drafts.guessing = logic.mean_of(drafts.guessing, guessing)
                pace.verified(several)
                seconds += guessing + several
                drafts.time += guessing + several
                drafts.over(pace, right)
                at += right
            else:
                pace.ran(1.0)
                seconds += 1
                drafts.time += 1
                at += 1
                behind += 1
        drafts.length = logic.mean_of(drafts.length, float(length))
        made += at
    return seconds / made


@both
def test_off_where_it_saves_no_time(form):
    """By what was measured; what is tried now and then takes little."""
    logic = module(form, "generation.speculation")
    assert time_of(logic, 4, 2.0, 0.6, 0.05) < 0.75
    for right in (1, 2, 3):
        assert time_of(logic, right, 2.5, 0.8, 0.05) < 1 / 0.97, right
    assert time_of(logic, 5, 2.0, 0.6, 1.0) < 1.15  # a text is read, to measure it
    for several, guessing in ((2.5, 2.0), (3.0, 5.0)):  # too slow for any text of the usual kind
        assert time_of(logic, 4, several, guessing, 0.2) < 1 / 0.97
    assert not logic.DraftPace().allows(logic.Pace(), 0)  # the time of a token is not known yet


def test_pipeline(tmp_path, runs):
    """A pipeline loads both, and refuses a model with another tokenizer."""
    prompt, fields = "Once upon a time", {"do_sample": False, "max_new_tokens": 30}
    want = pipeline("text-generation", MODEL)(prompt, **fields)
    pipe = pipeline("text-generation", MODEL, assistant_model=MODEL)
    assert pipe(prompt, **fields) == want
    assert np.mean(runs[1]) > 3
    other = shutil.copytree(MODEL, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    a, b = sorted(vocab, key=vocab.get)[-2:]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match=f"another tokenizer: its token {vocab[b]} is"):
        pipeline("text-generation", MODEL, assistant_model=other)
    padded = CausalLM(MODEL)
    padded.vocab_size += 64
    with pytest.raises(InputError, match=f"same tokens, .* padded to {padded.vocab_size} entries"):
        pipeline("text-generation", MODEL, assistant_model=padded)


@both
def test_vocabularies_that_are_padded(form):
    """Refused in words of their own: Qwen2.5 of 0.5B has 151936 logits, that of 7B 152064."""
    draft, token_of = module(form, "generation.draft"), lambda i: f"t{i}" if i < 9 else None
    draft.check_tokenizers(token_of, token_of, 12, 12)
    for sizes in ((12, 10), (10, 12)):
        with pytest.raises(InputError, match=f"padded to {sizes[1]} entries.*model to {sizes[0]}"):
            draft.check_tokenizers(token_of, token_of, *sizes)
    with pytest.raises(InputError, match="its token 9 is"):
        draft.check_tokenizers(token_of, lambda i: f"t{i}" if i < 10 else None, 9, 10)


def test_packages_with_prompt_lookup(tmp_path, capsys, monkeypatch):
    """`edgewise build --prompt-lookup`: a default of the package, beside the model's own."""
    built = tmp_path / "built.edge"
    assert not main(["build", str(MODEL), "--dtype=q4", f"-o{built}", "--prompt-lookup=15"])
    own = model_defaults(CausalLM(MODEL, dtype="q4"))
    with assistant(str(built)) as lm:
        assert model_defaults(lm) == {**own, "prompt_lookup_num_tokens": 15}
        looked, guess = [], Lookup.guess
        monkeypatch.setattr(Lookup, "guess", lambda *a: looked.append(a[2]) or guess(*a))
        generate(lm, [5, 6, 7, 8], max_new_tokens=5)
        assert looked[0] == 3  # the second of five tokens is known, and one follows the guess
        looked.clear()
        generate(lm, [5, 6, 7, 8], max_new_tokens=5, prompt_lookup_num_tokens=None)
        assert not looked
    assert main(["build", str(MODEL), f"-o{built}", "--prompt-lookup=0"])
    assert "Give at least 1" in capsys.readouterr().err
