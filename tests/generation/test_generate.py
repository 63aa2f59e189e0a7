"""The generation loop against transformers' generate, with the logits of a tiny random model."""

import itertools
import threading
import warnings
from collections import Counter
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise.errors import Aborted, EngineError, InputError, UnsupportedField
from edgewise.text import GenerationConfig, generate, generate_async, steps
from tiers import slow_unless

PROMPT = [5, 17, 33, 8]


def theirs(model, prompt=PROMPT, **fields):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **fields,
        )
    return out


def same(decoder, model, **fields):
    """Both sides; sequences compared up to their end (transformers pads)."""
    out = theirs(model, **fields)
    ours = generate(decoder, PROMPT, return_dict_in_generate=True, output_scores=True, **fields)
    expected, eos = out.sequences.tolist(), fields.get("eos_token_id")
    padding = {
        0,
        eos[0] if isinstance(eos, list) else eos,
    }  # beam search takes a pad token 0 for none
    assert len(ours.sequences) == len(expected)
    for mine, other in zip(ours.sequences, expected):
        assert mine == other[: len(mine)] and set(other[len(mine) :]) <= padding, (
            fields,
            mine,
            other,
        )
    if fields.get("num_beams", 1) > 1:
        assert torch.allclose(
            torch.tensor(ours.sequences_scores), out.sequences_scores, atol=1e-4
        ), fields
    return ours, out


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_new_tokens": 1},
        {"max_new_tokens": 40},
        {"max_length": 9},
        {"max_length": 20},
        {"max_new_tokens": 10, "max_length": 6},
        {"max_new_tokens": 25, "repetition_penalty": 1.5},
        {"max_new_tokens": 30, "no_repeat_ngram_size": 2},
        {"max_new_tokens": 20, "bad_words_ids": [[1], [2, 3], [60, 61]]},
        {"max_new_tokens": 8, "forced_eos_token_id": 9, "eos_token_id": 9},
        {"max_new_tokens": 8, "begin_suppress_tokens": list(range(50))},
        {"max_new_tokens": 8, "suppress_tokens": list(range(50))},
        {"max_new_tokens": 8, "sequence_bias": [[[44], 9.0], [[44, 45], 9.0]]},
        {"use_cache": False},
    ],
    ids=str,
)
def test_greedy(decoder, model, fields):
    ours, out = same(decoder, model, **fields)
    assert ours.finish_reasons == ["eos" if "eos_token_id" in fields else "length"]
    for mine, other in zip(ours.scores, out.scores):
        got, want = torch.tensor(mine[0]), other[0]
        assert torch.allclose(got[want.isfinite()], want[want.isfinite()], atol=1e-5)


def test_eos(decoder, model):
    free = theirs(model, max_new_tokens=30).sequences[0].tolist()[len(PROMPT) :]
    for eos in (free[3], [free[6], free[10]], [96, free[2]]):
        ours, _ = same(decoder, model, max_new_tokens=30, eos_token_id=eos)
        assert ours.finish_reasons == ["eos"]
        same(decoder, model, max_new_tokens=30, eos_token_id=eos, min_new_tokens=12)
        same(decoder, model, max_new_tokens=30, eos_token_id=eos, min_length=14)
        same(
            decoder,
            model,
            max_new_tokens=30,
            eos_token_id=eos,
            exponential_decay_length_penalty=(5, 1.2),
        )


BEAMS = [2, 4], [1.0, 0.0, -1.0, 2.5], [True, False, "never"], [None, 40, [40, 12], "common"]


def every_pair(*chosen):
    """A quarter of all combinations, with each pair of values of two options."""
    return sum(values.index(value) for values, value in zip(BEAMS, chosen)) % 4 == 0


@pytest.mark.parametrize(
    "num_beams,length_penalty,early_stopping,eos",
    slow_unless(every_pair, itertools.product(*BEAMS)),
    ids=str,
)
def test_beam_search(decoder, model, num_beams, length_penalty, early_stopping, eos):
    if (
        eos == "common"
    ):  # tokens that occur in the search, so that sequences end at different lengths
        free = theirs(
            model, max_new_tokens=14, num_beams=num_beams, num_return_sequences=num_beams
        ).sequences[:, len(PROMPT) + 2 :]
        eos = [token for token, _ in Counter(free.flatten().tolist()).most_common(2)]
    ours, _ = same(
        decoder,
        model,
        num_beams=num_beams,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        eos_token_id=eos,
        max_new_tokens=14,
        num_return_sequences=num_beams,
    )
    assert decoder.most_open <= num_beams


@pytest.mark.parametrize(
    "fields",
    [
        {"repetition_penalty": 1.4},
        {"no_repeat_ngram_size": 2},
        {"bad_words_ids": [[1], [2, 3]]},
        {"renormalize_logits": True, "repetition_penalty": 0.8},
        {"min_new_tokens": 6, "eos_token_id": 40},
        {"forced_eos_token_id": 3, "eos_token_id": 3},
        {"num_return_sequences": 2},
        {"max_new_tokens": 1},
    ],
    ids=str,
)
def test_beam_search_with_processors(decoder, model, fields):
    same(decoder, model, **{"num_beams": 3, "max_new_tokens": 12, **fields})


def test_own_processor_and_criteria_in_beam_search(decoder, model):
    class Theirs(transformers.LogitsProcessor):
        def __call__(self, ids, scores):
            scores = scores.clone()
            scores[:, 44] += 2
            return scores

    class Stop(transformers.StoppingCriteria):
        def __call__(self, ids, scores, **_):
            return ids[:, -1] % 5 == 2

    def mine(ids, scores):
        assert ids[: len(PROMPT)] == PROMPT
        scores[44] += 2

    out = theirs(
        model,
        num_beams=3,
        max_new_tokens=12,
        num_return_sequences=3,
        logits_processor=transformers.LogitsProcessorList([Theirs()]),
        stopping_criteria=transformers.StoppingCriteriaList([Stop()]),
    )
    ours = generate(
        decoder,
        PROMPT,
        num_beams=3,
        max_new_tokens=12,
        num_return_sequences=3,
        logits_processor=mine,
        stopping_criteria=lambda ids, scores: ids[-1] % 5 == 2,
        return_dict_in_generate=True,
    )
    for one, other in zip(ours.sequences, out.sequences.tolist()):
        assert one == other[: len(one)]
    assert "stopping_criteria" in ours.finish_reasons


def test_sampling_is_repeatable_and_seeds_differ(decoder):
    fields = {"do_sample": True, "max_new_tokens": 15, "top_k": 0}
    one = generate(decoder, PROMPT, seed=1, **fields)
    assert one == generate(decoder, PROMPT, seed=1, **fields)
    assert one != generate(decoder, PROMPT, seed=2, **fields)
    assert one != generate(decoder, PROMPT, seed=1 + 2**32, **fields)
    several = generate(decoder, PROMPT, seed=1, num_return_sequences=3, **fields)
    assert several[0] == one[0] and len({tuple(s) for s in several}) == 3
    beams = [
        generate(decoder, PROMPT, seed=s, num_beams=3, num_return_sequences=3, **fields)
        for s in (1, 1, 2)
    ]
    assert beams[0] == beams[1] != beams[2]
    assert generate(decoder, PROMPT, do_sample=True, top_k=1, max_new_tokens=10) == generate(
        decoder, PROMPT, max_new_tokens=10
    )


def test_sampling_follows_the_distribution(decoder, model):
    """First tokens of many sequences against softmax: chi-squared over the likely tokens."""
    n = 4000
    sequences = generate(
        decoder,
        PROMPT,
        do_sample=True,
        seed=5,
        num_return_sequences=n,
        max_new_tokens=1,
        temperature=1.5,
        top_k=12,
    )
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0, -1]
    best = logits.topk(12)
    expected = dict(zip(best.indices.tolist(), (torch.softmax(best.values / 1.5, 0) * n).tolist()))
    counts = Counter(s[-1] for s in sequences)
    assert set(counts) <= set(expected)
    assert (
        sum((counts[t] - e) ** 2 / e for t, e in expected.items()) < 40
    )  # 11 degrees of freedom: p = 4e-5


@pytest.mark.parametrize("engine", ["native"], indirect=True)  # all draw the same numbers
def test_sampled_beams_draw_without_replacement(decoder, model):
    """With 2 beams and one new token, the best of the 2 first-drawn of 4 candidates comes back."""
    n = 600
    with torch.no_grad():
        p = torch.softmax(model(torch.tensor([PROMPT])).logits[0, -1].topk(6).values, 0)
        tokens = model(torch.tensor([PROMPT])).logits[0, -1].topk(6).indices.tolist()
    expected = Counter()
    for first in range(6):
        for second in range(6):
            if first != second:
                expected[tokens[min(first, second)]] += float(p[first] * p[second] / (1 - p[first]))
    got = Counter(
        generate(decoder, PROMPT, do_sample=True, num_beams=2, max_new_tokens=1, top_k=6, seed=s)[
            0
        ][-1]
        for s in range(n)
    )
    assert sum((got[t] - n * e) ** 2 / (n * e) for t, e in expected.items() if n * e > 1) < 30, (
        got,
        expected,
    )


def test_prompt_is_computed_once(decoder):
    generate(decoder, PROMPT, do_sample=True, num_return_sequences=4, max_new_tokens=2)
    assert decoder.forwards == 1 + 4 and decoder.most_open == 2


def test_batch_and_shapes(decoder):
    single = [generate(decoder, p, max_new_tokens=5)[0] for p in ([1, 2], [3, 4, 5])]
    assert generate(decoder, [[1, 2], [3, 4, 5]], max_new_tokens=5) == single
    assert generate(decoder, torch.tensor([[1, 2]]), max_new_tokens=5) == single[:1]
    out = generate(
        decoder,
        PROMPT,
        max_new_tokens=3,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    assert (
        len(out.scores) == len(out["logits"]) == 3
        and len(out.scores[0]) == 1
        and len(out.scores[0][0]) == 97
    )
    assert out.nothing_like_this is None


def test_abort(decoder):
    event, seen = threading.Event(), []

    class Streamer:
        def put(self, ids):
            seen.extend(ids)
            if len(seen) == len(PROMPT) + 3:
                event.set()

        def end(self):
            seen.append("end")

    with pytest.raises(Aborted) as error:
        generate(decoder, PROMPT, max_new_tokens=30, streamer=Streamer(), signal=event)
    assert (
        error.value.sequences == [seen[:-1]] and seen[-1] == "end" and len(seen) == len(PROMPT) + 4
    )
    for signal in (lambda: True, type("Signal", (), {"aborted": True})()):
        for beams in (1, 2):
            with pytest.raises(Aborted):
                generate(decoder, PROMPT, signal=signal, num_beams=beams)
    running = steps(decoder, PROMPT, max_new_tokens=30)
    next(running)
    running.close()  # the fixtures see that everything was closed and freed


def failing(after, result):
    """A function that raises at its call number `after`."""
    calls = iter(range(100))

    def call(*_):
        if next(calls) == after:
            raise KeyError("mine")
        return result

    return call


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("who", ["stopping_criteria", "logits_processor", "streamer"])
def test_callers_that_raise(decoder, who, beams, after):
    """Their error arrives, the streamer ends, nothing stays, and the next call is as any other."""
    ended = []
    caller = failing(after, False if who == "stopping_criteria" else None)
    options = {who: caller, "num_beams": beams}
    if who == "streamer":
        options = {who: SimpleNamespace(put=caller, end=lambda: ended.append(1))}
    expected = generate(decoder, PROMPT, max_new_tokens=8)
    with pytest.raises(KeyError, match="mine"):
        generate(decoder, PROMPT, max_new_tokens=8, **options)
    assert not decoder.sequences and ended == [1] * (who == "streamer")
    assert generate(decoder, PROMPT, max_new_tokens=8) == expected


@pytest.mark.parametrize("beams", [1, 2])
def test_abort_within_a_prompt(decoder, monkeypatch, beams):
    """It is heard between pieces of the prompt, and in the forward pass that it ends."""
    prompt, event = list(range(1, 12)), threading.Event()
    expected = generate(decoder, prompt, max_new_tokens=5, num_beams=beams)
    monkeypatch.setattr(decoder, "prefill_chunk", 4, raising=False)
    assert generate(decoder, prompt, max_new_tokens=5, num_beams=beams) == expected
    for ends, runs in ((False, 2), (True, 2)):
        event.clear()
        before, real = decoder.forwards, type(decoder).forward

        def forward(sequence, ids, ends=ends, before=before, real=real):
            address = real(decoder, sequence, ids)
            if decoder.forwards == before + 2:
                event.set()
                if ends:
                    raise Aborted("within a run", "forward")
            return address

        monkeypatch.setattr(decoder, "forward", forward)
        with pytest.raises(Aborted, match="generation was aborted") as e:
            generate(decoder, prompt, max_new_tokens=5, num_beams=beams, signal=event)
        assert e.value.sequences == [] and decoder.forwards == before + runs
        monkeypatch.delattr(decoder, "forward")
    assert generate(decoder, prompt, max_new_tokens=5, num_beams=beams) == expected


def test_async(decoder):
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with (
        ThreadPoolExecutor(1) as other
    ):  # a thread without a loop: in this one Playwright's runs once the browser tests have begun
        out = other.submit(
            lambda: asyncio.run(generate_async(decoder, PROMPT, max_new_tokens=6))
        ).result()
    assert out == generate(decoder, PROMPT, max_new_tokens=6)


def test_max_time_and_criteria(decoder):
    for beams in (1, 2):
        out = generate(
            decoder,
            PROMPT,
            max_new_tokens=50,
            max_time=1e-6,
            num_beams=beams,
            return_dict_in_generate=True,
        )
        assert out.finish_reasons == ["max_time"] and len(out.sequences[0]) == len(PROMPT) + 1
    out = generate(
        decoder,
        PROMPT,
        max_new_tokens=50,
        stopping_criteria=[lambda ids, scores: len(ids) == 9],
        return_dict_in_generate=True,
    )
    assert out.finish_reasons == ["stopping_criteria"] and len(out.sequences[0]) == 9


class Letters:
    """Token i is a letter or two."""

    def decode(self, ids, skip_special_tokens=False):
        return "".join(chr(97 + i % 26) + ("" if i < 60 else chr(97 + i // 26)) for i in ids)


def test_stop_strings(decoder):
    free = generate(decoder, PROMPT, max_new_tokens=30)[0]
    text = Letters().decode(free[len(PROMPT) :])
    for start, length in ((4, 3), (7, 1), (2, 6)):
        stop = text[start : start + length]
        for beams in (1, 2):
            out = generate(
                decoder,
                PROMPT,
                max_new_tokens=30,
                stop_strings=["~~~", stop],
                tokenizer=Letters(),
                num_beams=beams,
                return_dict_in_generate=True,
            )
            if out.finish_reasons[0] == "stop_string":
                whole, before = (Letters().decode(out.sequences[0][:n]) for n in (None, -1))
                assert stop in whole[len(before) - len(stop) + 1 :]
            else:
                assert beams == 2
        out = generate(decoder, PROMPT, max_new_tokens=30, stop_strings=stop, tokenizer=Letters())[
            0
        ]
        shortest = next(
            n
            for n in range(len(PROMPT) + 1, 40)
            if Letters()
            .decode(free[:n])
            .find(stop, max(0, len(Letters().decode(free[: n - 1])) - len(stop) + 1))
            >= 0
        )
        assert out == free[:shortest]
    with pytest.raises(InputError, match="tokenizer"):
        generate(decoder, PROMPT, stop_strings="x")


def test_lengths(decoder):
    with pytest.raises(InputError, match="max_length is 3"):
        generate(decoder, PROMPT, max_length=3)
    with pytest.raises(InputError, match="a sequence of the model at most 64"):
        generate(decoder, [1] * 64)
    with pytest.warns(UserWarning, match="ends at 64"):
        assert len(generate(decoder, PROMPT, max_new_tokens=100)[0]) == 64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(generate(decoder, [1] * 50)[0]) == 64  # the default is truncated silently
        assert len(generate(decoder, PROMPT)[0]) == len(PROMPT) + 20
        assert len(generate(decoder, PROMPT, GenerationConfig(max_length=30))[0]) == 30
        decoder.generation_config = {"max_length": 12}
        assert len(generate(decoder, PROMPT)[0]) == 12
        assert len(generate(decoder, PROMPT, max_new_tokens=2)[0]) == 6


def test_wrong_calls(decoder):
    for ids, match in (([], "empty"), ([97], "97"), ([-1], "-1"), ("text", "token ids")):
        with pytest.raises(InputError, match=match):
            generate(decoder, ids)
    assert generate(decoder, [], bos_token_id=5, max_new_tokens=2)[0][0] == 5
    with pytest.raises(InputError, match="a object is no streamer"):
        generate(decoder, PROMPT, streamer=object())
    two = SimpleNamespace(put=print, end=print)
    with pytest.raises(InputError, match="one sequence only"):
        generate(decoder, PROMPT, streamer=two, num_beams=2)
    with pytest.raises(InputError, match="num_beams"):
        generate(decoder, PROMPT, num_return_sequences=3, num_beams=2)
    with pytest.raises(InputError, match="greedy"):
        generate(decoder, PROMPT, num_return_sequences=3)
    with pytest.raises(UnsupportedField, match="attention_mask"):
        generate(decoder, PROMPT, attention_mask=[1])
    with pytest.raises(InputError, match="5 scores"):
        generate(decoder, PROMPT, logits_processor=lambda ids, scores: [0.0] * 5)
    with pytest.raises(InputError, match="suppressed"):
        generate(decoder, PROMPT, num_beams=2, suppress_tokens=list(range(97)))
    with pytest.raises(EngineError, match="NaN"):
        generate(decoder, PROMPT, logits_processor=lambda ids, scores: [float("nan")] * 97)
    with pytest.warns(UserWarning, match="temperature"):
        generate(decoder, PROMPT, temperature=0.5, max_new_tokens=1)


def test_priorities(decoder):
    """Arguments, then the config's own fields, then the model's generation_config.json."""
    decoder.generation_config = {
        "max_new_tokens": 3,
        "transformers_version": "4.40.0",
        "eos_token_id": None,
    }
    assert len(generate(decoder, PROMPT)[0]) == 7
    assert len(generate(decoder, PROMPT, {"max_new_tokens": 5})[0]) == 9
    assert (
        len(generate(decoder, PROMPT, GenerationConfig(max_new_tokens=5), max_new_tokens=6)[0])
        == 10
    )
    decoder.generation_config = {"do_sample": True, "temperature": 50.0, "top_k": 0}
    assert generate(decoder, PROMPT, GenerationConfig(do_sample=False)) == generate(
        decoder, PROMPT, do_sample=False
    )
    decoder.generation_config = {"penalty_alpha": 0.6}
    with pytest.raises(UnsupportedField, match="generation_config.json.*penalty_alpha"):
        generate(decoder, PROMPT)
