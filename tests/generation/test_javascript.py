"""The TypeScript loop on the wasm engine gives what the Python loop gives on the native one: same
tokens for the same seed.
"""

import json
import math
import shutil
import struct
import subprocess
import warnings

import pytest
from edgewise.errors import EdgewiseError
from edgewise.logic.generation.speculation import DraftPace, Pace
from edgewise.text import TextStreamer, generate

from .conftest import ROOT

WASM = ROOT / "web/dist/engine/edgewise-simd128.wasm"
ESBUILD = ROOT / "web/node_modules/.bin/esbuild"

SAMPLED = {"do_sample": True, "seed": 1, "top_k": 0}
SCENARIOS = [
    {},
    {"max_new_tokens": 40},
    {"max_length": 9},
    {"max_length": 20},
    {"max_length": 2},
    {"max_new_tokens": 100},
    {"use_cache": False},
    {"max_new_tokens": 50, "prompt_lookup_num_tokens": 5},
    {"max_new_tokens": 50, "prompt_lookup_num_tokens": 9, "repetition_penalty": 1.1, **SAMPLED},
    {"max_new_tokens": 50, "prompt_lookup_num_tokens": 9, **SAMPLED, "top_k": 2},
    {
        "max_new_tokens": 20,
        "repetition_penalty": 1.7,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.7,
    },
    {"max_new_tokens": 30, "no_repeat_ngram_size": 2, "eos_token_id": [3, 5, 8]},
    {
        "bad_words_ids": [[1], [2, 3]],
        "suppress_tokens": [7, 9],
        "begin_suppress_tokens": [4],
        "logit_bias": {"11": 3.5, "12": -2},
    },
    {"sequence_bias": [[[17], 9.5], [[17, 18], 20.0]]},
    {"forced_eos_token_id": [5, 6], "max_new_tokens": 6},
    {"min_new_tokens": 10, "eos_token_id": list(range(0, 300, 3)), "max_new_tokens": 30},
    {"exponential_decay_length_penalty": [3, 1.3], "eos_token_id": 3, "max_new_tokens": 40},
    *[
        {**SAMPLED, "max_new_tokens": 25, **extra}
        for extra in (
            {},
            {"seed": 2},
            {"seed": 2**52 + 3},
            {"seed": -1},
            {"temperature": 0.4},
            {"temperature": 3.0},
            {"top_k": 5},
            {"top_p": 0.5},
            {"min_p": 0.1},
            {"typical_p": 0.4},
            {"epsilon_cutoff": 0.02},
            {"eta_cutoff": 0.05},
            {"renormalize_logits": True, "top_p": 0.9, "output_scores": True},
            {"num_return_sequences": 3},
            {"num_beams": 3},
            {"num_beams": 4, "num_return_sequences": 4, "top_k": 9},
        )
    ],
    *[
        {
            "num_beams": beams,
            "length_penalty": penalty,
            "early_stopping": early,
            "eos_token_id": [3, 5, 8, 13],
            "num_return_sequences": 2,
            "max_new_tokens": 15,
        }
        for beams in (2, 5)
        for penalty in (1.0, -0.5, 1.7)
        for early in (True, False, "never")
    ],
    {"num_beams": 3, "output_scores": True, "max_new_tokens": 4},
    {"max_new_tokens": 4, "output_scores": True, "output_logits": True},
    {"stop_strings": ["ab", "c", "q r"], "max_new_tokens": 50},
    {"stop_strings": "e", "num_beams": 2, "max_new_tokens": 20},
    {"max_time": 1e-9},
    {"max_time": 1e-9, "num_beams": 2},
    {"temperature": 0.5},
    {"early_stopping": True},
    {"guidance_scale": 1},
    # errors
    {"guidance_scale": 2},
    {"nonsense": 1},
    {"num_beam_groups": 2},
    {"temperature": 0, "do_sample": True},
    {"eos_token_id": 300},
    {"top_p": 2, "do_sample": True},
    {"suppress_tokens": list(range(300))},
    {"num_return_sequences": 2},
    {"num_beams": 2, "num_return_sequences": 3},
    {"max_new_tokens": 0},
    {"bad_words_ids": [[]]},
    {"logit_bias": {"x": 1}},
    {"stop_strings": [""]},
    {"seed": 1.5},
    {"num_beams": 1.5},
    {"early_stopping": "soon"},
    {"bad_words_ids": 5},
    {"exponential_decay_length_penalty": ["a", 1]},
    {"exponential_decay_length_penalty": 3},
    {"stop_strings": 5},
    {"stop_strings": [5]},
    {"temperature": 1e300, "do_sample": True},
    {"sequence_bias": "abc"},
    {"eos_token_id": [[1]]},
    {"logit_bias": 7},
    {"logit_bias": [1]},
    {"max_time": "soon"},
    {"num_beams": 10**8},
    {"suppress_tokens": 1e300},
    {"stop_strings": []},
]
CASES = [{"ids": [5, 6, 7], "config": config} for config in SCENARIOS] + [
    {"ids": ids, "config": config, **more}
    for ids, config, more in (
        ([], {}, {}),
        ([300], {}, {}),
        ([1] * 64, {}, {}),
        ([1] * 63, {}, {}),
        ([], {"bos_token_id": 4}, {}),
        ([[1, 2], [3]], {}, {}),
        ([1], {"forced_bos_token_id": 8}, {}),
        (list(range(40)), {}, {"prefill_chunk": 16}),
        (list(range(40)), {"num_beams": 2}, {"prefill_chunk": 7}),
        (
            [1],
            {},
            {
                "generation_config": {
                    "max_new_tokens": 3,
                    "do_sample": None,
                    "transformers_version": "4.0",
                }
            },
        ),
        ([1], {}, {"generation_config": {"max_length": 20}}),
        ([1], {"max_new_tokens": 5}, {"generation_config": {"max_new_tokens": 3}}),
        ([1], {}, {"generation_config": {"nonsense": 3}}),
        *(
            ([1] * 5, fields, {"object": one})
            for one in (
                {"max_length": 20},
                {"max_length": 9},
                {"max_new_tokens": 4},
                {"temperature": 0.5},
                {"min_length": 11, "min_new_tokens": 2, "eos_token_id": list(range(300))},
            )
            for fields in (
                {},
                {"max_length": 20},
                {"max_new_tokens": 3},
                {"max_length": 20, "max_new_tokens": None},
            )
        ),
        ([1, 2], {}, {"processor": 44}),
        ([1, 2], {**SAMPLED}, {"processor": 44}),
        ([1, 2], {"num_beams": 3}, {"processor": 44}),
        *(
            ([5, 6, 7], {"max_new_tokens": 50, **fields}, more)
            for fields in (
                {},
                {"prompt_lookup_num_tokens": 5, "num_assistant_tokens": 3},
                {"repetition_penalty": 1.1, "assistant_confidence_threshold": 0, **SAMPLED},
                {"num_return_sequences": 3, **SAMPLED},
            )
            for more in ({}, {"assistant": 4}, {"assistant": 1})
        ),
    )
]


class Drafts(DraftPace):
    """Reads all guesses of a smaller model."""

    def allows(self, pace, behind):
        return True


class Eager(Pace):
    """Reads all guesses."""

    def __init__(self):
        super().__init__()
        self.drafts = Drafts()

    def allows(self, length, count):
        return True


class Decoder:
    vocab_size, max_length, config, generation_config, prefill_chunk = 300, 64, {}, {}, None
    verified, pace = 8, Eager()

    def __init__(self, engine, wrong=0):
        self.wrong = wrong  # it guesses one of so many tokens wrongly
        self.engine, self.sequences, self.next, self.logits = engine, {}, 0, engine.alloc(1200)
        self.rows = engine.alloc(1200 * self.verified)

    def open(self):
        self.next += 1
        self.sequences[self.next] = []
        return self.next

    def close(self, sequence):
        del self.sequences[sequence]

    def copy(self, source, target):
        self.sequences[target] = list(self.sequences[source])

    def truncate(self, sequence, n):
        del self.sequences[sequence][n:]

    def forward(self, sequence, ids):
        self.sequences[sequence] += ids
        h = 17
        for i in self.sequences[sequence][-3:]:
            h = (h * 31 + i) % 2**32
        if self.wrong and len(self.sequences[sequence]) % self.wrong == 0:
            h += 1
        values = [((h + i) * 2654435761 % 2**32 >> 9) % 4096 / 256 - 8 for i in range(300)]
        self.engine.write(self.logits, struct.pack("<300f", *values))
        return self.logits

    def verify(self, sequence, ids, _):
        rows = [self.engine.read(self.forward(sequence, [i]), 1200) for i in ids]
        self.engine.write(self.rows, b"".join(rows))
        return self.rows


class Letters:
    def decode(self, ids, **_):
        return "".join(chr(97 + i % 26) + ("" if i % 3 else " ") for i in ids)


def python_result(engine, case):
    decoder, text = Decoder(engine), []
    small = Decoder(engine, case["assistant"]) if "assistant" in case else None
    decoder.prefill_chunk, decoder.generation_config = (
        case.get("prefill_chunk"),
        case.get("generation_config", {}),
    )
    config, ids, processor = case["config"], case["ids"], case.get("processor")
    plain = (
        "num_beams" not in config
        and "num_return_sequences" not in config
        and not (ids and isinstance(ids[0], list))
    )

    def add(_, scores):
        scores[processor] += 5

    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                result = dict(
                    generate(
                        decoder,
                        ids,
                        case.get("object"),
                        tokenizer=Letters(),
                        streamer=TextStreamer(Letters(), on_text=text.append) if plain else None,
                        logits_processor=add if processor else None,
                        assistant_model=small,
                        **{"return_dict_in_generate": True, **config},
                    )
                )
            except EdgewiseError as error:
                result = {"error": type(error).__name__}
        assert not decoder.sequences and not (small and small.sequences)
    finally:
        for one in (decoder, small) if small else (decoder,):
            engine.free(one.logits)
            engine.free(one.rows)
    return {
        **result,
        "warnings": sum(issubclass(w.category, UserWarning) for w in warned),
        "text": "".join(piece + "|" for piece in text),
    }


@pytest.mark.skipif(
    not (WASM.exists() and ESBUILD.exists() and shutil.which("node")),
    reason="the web build is not there: make web",
)
def test_javascript_gives_the_same(engine, tmp_path):
    bundle = tmp_path / "generation.mjs"
    subprocess.run(
        [
            ESBUILD,
            ROOT / "web/src/worker/generation/index.ts",
            "--bundle",
            "--format=esm",
            f"--outfile={bundle}",
            "--log-level=error",
        ],
        check=True,
    )
    done = subprocess.run(
        ["node", ROOT / "tests/generation/scenarios.mjs", bundle, WASM],
        input=json.dumps(CASES),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *theirs, aborted, throwing = json.loads(done.stdout)
    assert throwing == [["mine", True, 0]] * 10
    assert aborted == {"error": "Aborted", "early": True, "sequences": [True], "leaked": 0}
    assert len(theirs) == len(CASES)
    errors, alone = 0, None
    for case, other in zip(CASES, theirs):
        mine = python_result(engine, case)
        if "assistant" in case:  # the text is that without it
            assert mine == alone
        alone = mine
        assert other["leaked"] == 0, case
        for name in ("error", "sequences", "finish_reasons", "warnings", "text"):
            assert mine.get(name) == other.get(name), (case, name, mine.get(name), other.get(name))
        errors += "error" in mine
        if "sequences_scores" in mine:
            assert mine["sequences_scores"] == other["sequences_scores"], case
        for step, others in zip(mine.get("scores", []), other.get("scores") or []):
            for one, two in zip(step, others):  # to the last bit
                assert [None if x == -math.inf else x for x in one] == two, case
        assert len(mine.get("scores", [])) == len(other.get("scores") or [])
    assert errors == 38


def test_on_the_built_library(engine):
    """The library that ships, with its optimizations, gives what the sanitized build gives."""
    try:
        from edgewise.engine import default_engine

        built = default_engine()
    except (ImportError, EdgewiseError) as error:
        pytest.skip(f"the native library is not there: {error}")
    for config in (
        {"max_new_tokens": 20},
        {**SAMPLED, "top_p": 0.7, "max_new_tokens": 20},
        {**SAMPLED, "typical_p": 0.5, "max_new_tokens": 20},
        {"num_beams": 3, "num_return_sequences": 3, "eos_token_id": [3, 5], "output_scores": True},
        {**SAMPLED, "num_beams": 3},
    ):
        case = {"ids": [1, 2, 3], "config": config}
        assert python_result(built, case) == python_result(engine, case)
