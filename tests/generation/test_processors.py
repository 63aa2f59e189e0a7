"""core/sampling against transformers' LogitsProcessor classes, in the order and with the
arguments that generate() gives them.
"""

import math
import struct
from array import array

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from edgewise.errors import EngineError, InputError
from edgewise.host.text.config import GenerationConfig
from edgewise.logic.generation.config import error_for
from edgewise.logic.generation.fields import ERRORS
from edgewise.logic.generation.records import STRUCTS, offset, pack, size

VOCAB = 199


def run(
    engine,
    config,
    ids,
    logits,
    prompt=3,
    max_length=40,
    functions=("process", "warp"),
    patch=None,
    raw=None,
):
    """work.scores after the named functions, as a tensor; raises what the host would raise."""
    vocab = len(logits)
    members, lists = config.pack(vocab, prompt, max_length)
    members.update(patch or {})
    lists = raw if raw is not None else lists
    addresses = []

    def put(data):
        addresses.append(engine.alloc(max(1, len(data))))
        engine.write(addresses[-1], data)
        return addresses[-1]

    try:
        params, lists_at = (
            put(pack("ew_sampling", members)),
            put(struct.pack(f"<{len(lists)}i", *lists)),
        )
        ids_at, logits_at = put(struct.pack(f"<{len(ids)}i", *ids)), put(logits.numpy().tobytes())
        work = put(bytes(int(engine.call("ew_sampling_work_bytes", vocab))))
        for function in functions:
            args = (
                (params, lists_at, ids_at, len(ids), logits_at, work)
                if function == "process"
                else (params, work)
            )
            code = engine.call("ew_sampling_" + function, *args) & 0xFFFFFFFF
            if code >= 2**31:
                raise error_for(code - 2**32)
        scores = array("f")
        scores.frombytes(engine.read(work, 4 * vocab))
        return torch.tensor(scores)
    finally:
        for address in addresses:
            engine.free(address)


def theirs(fields, ids, logits, prompt=3, max_length=40):
    """What transformers' own _get_logits_processor builds, applied."""
    mixin = type("Model", (transformers.GenerationMixin,), {"config": transformers.GPT2Config()})()
    config = transformers.GenerationConfig(**fields)
    eos = fields.get("eos_token_id")
    config._eos_token_tensor = (
        None if eos is None else torch.tensor([eos] if isinstance(eos, int) else eos)
    )
    config.max_length = max_length
    processors = mixin._get_logits_processor(config, input_ids_seq_length=prompt, device="cpu")
    scores = logits[None].clone()
    if fields.get("num_beams", 1) > 1:
        scores = scores.log_softmax(-1)
    return processors(torch.tensor([ids]), scores)[0]


def compare(
    engine,
    fields,
    ids=(5, 9, 5, 7, 9, 5, 7, 11, 5, 9),
    scale=4.0,
    seed=0,
    prompt=3,
    max_length=40,
    vocab=VOCAB,
    logits=None,
    slack=0,
):
    if logits is None:
        logits = torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * scale
    got = run(engine, GenerationConfig(**fields), list(ids), logits, prompt, max_length)
    expected = theirs(fields, list(ids), logits, prompt, max_length)
    kept, wanted = torch.isfinite(got), torch.isfinite(expected)
    assert (kept != wanted).sum() <= slack, (fields, seed, kept.sum(), wanted.sum())
    both, atol = kept & wanted, 2e-5 if torch.equal(kept, wanted) else 2e-3
    assert torch.allclose(got[both], expected[both], rtol=2e-6, atol=atol), (
        fields,
        (got[both] - expected[both]).abs().max(),
    )


PROCESSORS = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"no_repeat_ngram_size": 11},
    {"no_repeat_ngram_size": 12},
    {"no_repeat_ngram_size": 50},
    {
        "bad_words_ids": [
            [3],
            [5, 9, 20],
            [9, 21],
            [8, 22],
            [5, 9, 5, 7, 9, 5, 7, 11, 5, 9, 30],
            [12] * 40,
            [4],
        ],
        "eos_token_id": 4,
    },
    {"bad_words_ids": [[4], [4, 5]], "eos_token_id": [4, 6]},
    {"sequence_bias": [[[5, 9, 20], 3.5], [[31], -2.0], [[9, 20], 1.0], [[7, 20], 9.0]]},
    {"suppress_tokens": [0, 1, 198]},
    {"begin_suppress_tokens": [2, 3]},
    {"min_length": 11, "eos_token_id": [4, 6]},
    {"min_length": 10, "eos_token_id": 4},
    {"min_new_tokens": 8, "eos_token_id": 4},
    {"min_new_tokens": 7, "eos_token_id": 4},
    {"min_length": 30},
    {"exponential_decay_length_penalty": (2, 1.1), "eos_token_id": [4, 6]},
    {"exponential_decay_length_penalty": (7, 1.5), "eos_token_id": 4},
    {"renormalize_logits": True},
    {"remove_invalid_values": True},
    {"forced_bos_token_id": 8},
    {"forced_eos_token_id": [8, 9]},
]


@pytest.mark.parametrize("fields", PROCESSORS, ids=str)
def test_processor(engine, fields):
    for seed in range(3):
        compare(engine, fields, seed=seed)


def test_forced_tokens_and_beginnings(engine):
    compare(engine, {"forced_bos_token_id": 8}, ids=[5], prompt=1)
    compare(engine, {"forced_bos_token_id": 8, "begin_suppress_tokens": [2]}, ids=[5, 8], prompt=1)
    compare(engine, {"begin_suppress_tokens": [2]}, ids=[5], prompt=1)
    compare(engine, {"begin_suppress_tokens": [2, 3]}, ids=[5, 6, 7], prompt=3)
    compare(engine, {"forced_eos_token_id": [8, 9]}, max_length=11)
    compare(engine, {"forced_eos_token_id": 8, "suppress_tokens": [3]}, max_length=11)


SAMPLERS = [
    {"temperature": 0.3},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 1000},
    {"top_p": 0.9},
    {"top_p": 0.3},
    {"top_p": 0.999},
    {"top_p": 0.0},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"min_p": 0.0},
    {"typical_p": 0.9},
    {"typical_p": 0.2},
    {"typical_p": 0.99},
    {"epsilon_cutoff": 3e-3},
    {"epsilon_cutoff": 0.9},
    {"eta_cutoff": 2e-2},
    {"eta_cutoff": 0.9},
    {
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
        "min_p": 0.02,
        "typical_p": 0.95,
        "epsilon_cutoff": 1e-3,
        "eta_cutoff": 1e-3,
        "renormalize_logits": True,
    },
]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("scale", [0.3, 2.0, 12.0])
@pytest.mark.parametrize("fields", SAMPLERS, ids=str)
def test_warper(engine, fields, scale, beams):
    for seed in range(5):
        compare(
            engine,
            {"top_k": 0, **fields, "do_sample": True, "num_beams": beams, "eos_token_id": [4, 6]},
            scale=scale,
            seed=seed,
        )


def test_everything_at_once_many_times(engine):
    """Random combinations. transformers sums 5000 float32 probabilities one after the other, so a
    limit may fall a token or two apart.
    """
    random = __import__("random").Random(3)
    for seed in range(60):
        fields = {
            "do_sample": True,
            "top_k": 0,
            "eos_token_id": [4, 6],
            "num_beams": random.choice([1, 1, 4]),
        }
        for part in random.sample(PROCESSORS[:-2], 3) + random.sample(SAMPLERS, 3):
            fields.update({k: v for k, v in part.items() if k != "eos_token_id"})
        if {"min_length", "min_new_tokens", "bad_words_ids"} & set(fields):
            fields.pop(
                "exponential_decay_length_penalty", None
            )  # of a suppressed eos, theirs makes NaN
        compare(
            engine,
            fields,
            ids=[random.randrange(30) for _ in range(random.randrange(3, 20))],
            seed=seed,
            vocab=5000,
            slack=4,
        )


def test_ties(engine):
    """fp16 and quantized logits have many equal values."""
    generator = torch.Generator().manual_seed(1)
    for _seed in range(10):
        logits = torch.randint(-6, 7, (VOCAB,), generator=generator).float() / 2
        logits[::7] = -0.0
        for fields in (
            {"top_k": 9},
            {"min_p": 0.3},
            {"typical_p": 0.6},
            {"epsilon_cutoff": 0.01},
            {"eta_cutoff": 0.02},
        ):
            compare(engine, {"top_k": 0, "do_sample": True, **fields}, logits=logits)
    # top_p cuts inside a group of equals, where torch's sort decides: it is stable, so the higher
    # id stays
    logits = torch.zeros(8)
    got = run(engine, GenerationConfig(do_sample=True, top_k=0, top_p=0.5), [1, 2, 3], logits)
    assert got.isfinite().tolist() == [False] * 4 + [True] * 4


def test_presence_and_frequency_penalty(engine):
    """OpenAI's formula, on the new tokens only: logit -= count * frequency + (count > 0) *
    presence.
    """
    logits, ids = torch.randn(VOCAB), [5, 9, 5, 7, 9, 7, 7]
    got = run(
        engine,
        GenerationConfig(presence_penalty=0.5, frequency_penalty=0.25),
        ids,
        logits,
        prompt=3,
    )
    expected = logits.clone()
    expected[7] -= 3 * 0.25 + 0.5
    expected[9] -= 0.25 + 0.5
    assert torch.allclose(got, expected)


def test_logit_bias_is_a_sequence_bias_of_one_token(engine):
    logits = torch.randn(VOCAB)
    one = run(engine, GenerationConfig(logit_bias={"7": 2.5, 9: -math.inf}), [1, 2, 3], logits)
    expected = logits.clone()
    expected[7] += 2.5
    expected[9] = -math.inf
    assert torch.allclose(one, expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_logits(engine, bad):
    logits = torch.randn(VOCAB)
    logits[17] = bad
    for fields in ({}, {"num_beams": 2}, {"do_sample": True}):
        with pytest.raises(EngineError, match="NaN"):
            run(engine, GenerationConfig(**fields), [1, 2, 3], logits)
    got = run(engine, GenerationConfig(remove_invalid_values=True), [1, 2, 3], logits)
    assert got.isfinite().all() and got[17] == (0 if bad != bad else torch.finfo(torch.float32).max)


def test_nothing_left(engine):
    for fields in ({}, {"do_sample": True}):
        with pytest.raises(InputError, match="suppressed"):
            run(
                engine,
                GenerationConfig(suppress_tokens=list(range(VOCAB)), **fields),
                [1, 2, 3],
                torch.randn(VOCAB),
            )


def test_wrong_ids_are_refused_before_they_are_used(engine):
    logits = torch.randn(VOCAB)
    for ids in ([1, VOCAB], [-1], [2**31 - 1]):
        with pytest.raises(InputError, match="outside"):
            run(engine, GenerationConfig(repetition_penalty=1.1), ids, logits)
    for fields in (
        {"suppress_tokens": [VOCAB]},
        {"bad_words_ids": [[1, -2]]},
        {"logit_bias": {VOCAB: 1.0}},
        {"eos_token_id": VOCAB},
        {"forced_bos_token_id": VOCAB},
        {"begin_suppress_tokens": [10**9]},
        {"sequence_bias": [[[VOCAB], 1.0]]},
    ):
        with pytest.raises(InputError, match=str(next(iter(fields)))[:8]):
            run(engine, GenerationConfig(**fields), [1], logits)
    # and by C itself, where a host forgot
    for raw, patch in (
        ([VOCAB], {"eos_n": 1}),
        ([5], {"suppress_n": 2}),
        ([5], {"suppress_at": 2}),
        ([-1, 5], {"bad_words_n": 2}),
        ([3, 5], {"bad_words_n": 2}),
        ([1, 5], {"bias_n": 2}),
        ([0], {"bad_words_n": 1}),
        ([2**31 - 1, 1], {"bias_n": 2}),
        ([], {"eos_at": 2**32 - 1, "eos_n": 2}),
    ):
        with pytest.raises((InputError, EngineError)):
            run(
                engine,
                GenerationConfig(),
                [1],
                logits,
                patch={"lists_length": len(raw), **patch},
                raw=raw,
            )


def test_out_of_range_fields_are_named(engine):
    for name, value in (
        ("temperature", 0.0),
        ("temperature", -1.0),
        ("top_p", 1.5),
        ("min_p", -0.1),
        ("typical_p", 0.0),
        ("epsilon_cutoff", 1.0),
        ("repetition_penalty", 0.0),
        ("eta_cutoff", -1.0),
    ):
        with pytest.raises(InputError, match=name):
            run(engine, GenerationConfig(do_sample=True, **{name: value}), [1], torch.randn(VOCAB))


def test_layout_is_what_the_compiler_makes(engine, tmp_path):
    """Offsets in logic come from records.py; C's from the compiler."""
    import subprocess

    from .conftest import ROOT

    lines = ['#include "sampling/sampling.h"', "#include <stddef.h>"]
    for name, members in STRUCTS.items():
        lines.append(f'_Static_assert(sizeof({name}) == {size(name)}, "{name}");')
        lines += [
            f'_Static_assert(offsetof({name}, {member}) == {offset(name, member)}, "{member}");'
            for member, _ in members
        ]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    subprocess.run(["gcc", "-std=c11", "-fsyntax-only", "-I", ROOT / "core", source], check=True)
    assert ERRORS["BAD_FIELD"] == -1000
