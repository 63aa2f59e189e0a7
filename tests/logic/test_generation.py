"""Configuration of text generation: lengths are those of transformers, errors those of
tests/conformance/errors.json.
"""

import json

import numpy as np
import pytest
from edgewise.errors import EdgewiseError, InputError, ModelError, UnsupportedField
from edgewise.logic.generation.fields import ERRORS
from edgewise.logic.generation.records import STRUCTS, pack

from tests.conformance.vectors import vectors

from .forms import both, module

MEMBERS = [name for name, _ in STRUCTS["ew_sampling"]]
TEXTS = vectors("errors")


@both
def test_lengths(form):
    config, arguments = module(form, "generation.config"), module(form, "generation.arguments")
    for row in vectors("generation_lengths"):
        fields = config.Configuration(row["fields"], "generate")
        own = config.of_file({"eos_token_id": 7, **row["file"]})
        made = own.merged(config.Configuration(row["config"])).merged(fields)
        try:
            made.validate()
            limit, _ = arguments.length_limit(made, row["fields"], row["prompt"], 64)
            members, _ = made.pack(16, row["prompt"], limit)
            # A text that could end at once goes on until both minimum lengths are reached, and has
            # at least one token.
            least = max(members["min_length"], row["prompt"] + members["min_new_tokens"])
            length = min(limit, max(least, row["prompt"]) + 1) if row["ends"] else limit
        except InputError:
            length = None
        assert length == row["length"], json.dumps(row)


@both
def test_errors_of_fields(form):
    config = module(form, "generation.config")
    for fields, error in TEXTS["generation"]:
        with pytest.raises(EdgewiseError) as e:
            made = config.Configuration(fields, "generate")
            made.validate()
            made.pack(16, 4, 8)
        assert [type(e.value).__name__, e.value.what] == error


@both
def test_errors_of_codes(form):
    config = module(form, "generation.config")
    for code, error in TEXTS["sampling"]:
        e = config.error_for(ERRORS[code])
        if form == "python":  # errors are raised, not returned, across the boundary to Node
            assert [type(e).__name__, e.what] == error
        else:
            assert e.what == error[1]


@both
def test_packed(form):
    config = module(form, "generation.config")
    fields = {
        "eos_token_id": [3, 5],
        "bad_words_ids": [[1, 2], [4]],
        "logit_bias": {"6": -0.5},
        "sequence_bias": [[[1, 2], 2.0]],
        "suppress_tokens": 7,
        "do_sample": True,
        "forced_bos_token_id": 2,
        "exponential_decay_length_penalty": [4, 1.5],
        "encoder_no_repeat_ngram_size": 2,
        "early_stopping": "never",
        "num_beams": None,
        "min_length": 6,
    }
    members, lists = config.Configuration(fields).pack(16, 1, 8, [9, 8])
    assert members.keys() == set(MEMBERS)
    assert len(pack("ew_sampling", members)) == 4 * len(MEMBERS)
    # IEEE 754: -0.5 is 0xBF000000, 2 is 0x40000000
    bias = [1, 6, 0xBF000000 - 2**32, 2, 1, 2, 0x40000000]
    parts = {"eos": [3, 5], "suppress": [7], "bad_words": [2, 1, 2, 1, 4], "bias": bias}
    for name, numbers in {**parts, "encoder": [9, 8], "forced_eos": []}.items():
        at = members[f"{name}_at"]
        assert lists[at : at + members[f"{name}_n"]] == numbers
    expected = {"begin_index": 2, "early_stopping": 2, "num_beams": 1, "do_sample": 1, "top_k": 50}
    expected |= {"exponential_decay_start": 4, "exponential_decay_factor": 1.5, "min_length": 6}
    assert {name: members[name] for name in expected} == expected
    with pytest.raises(UnsupportedField, match="'encoder_no_repeat_ngram_size' is about the text"):
        config.Configuration(fields).pack(16, 1, 8)


@both
def test_names_and_refusals(form):
    config = module(form, "generation.config")
    for name in ("temprature", "__proto__", "constructor", "x" * 200):
        with pytest.raises(UnsupportedField, match="there is no generation field"):
            config.Configuration({name: 1})
    with pytest.raises(UnsupportedField, match="Did you mean 'temperature'"):
        config.Configuration({"temprature": 1})
    with pytest.raises(UnsupportedField, match=r"'num_beam_groups' \(set to 2\) is not supported"):
        config.Configuration({"num_beam_groups": 2})
    made = config.Configuration({"num_beam_groups": 1, "guidance_scale": 1, "top_k": None})
    assert made.values == {"num_beam_groups": 1, "guidance_scale": 1, "top_k": None}
    assert made.get("temperature") == 1
    assert config.of_file({"top_k": None, "top_p": 0.5}).values == {"top_p": 0.5}


@both
def test_arguments(form):
    config, arguments = module(form, "generation.config"), module(form, "generation.arguments")
    greedy = config.Configuration({"top_p": 0.5})
    set_so = "do_sample=True" if form == "python" else "do_sample: true"
    found = arguments.warnings_of(greedy, {"top_p": 0.5, "top_k": None, "length_penalty": 2})
    needs = [f"top_p has an effect only with {set_so}", "length_penalty has an effect only with"]
    assert [text.startswith(need) for text, need in zip(found, needs, strict=True)] == [True, True]
    assert arguments.checked_prompt([], 3, 16) == [3]
    assert arguments.checked_prompt([1, 2], None, 16) == [1, 2]
    for prompt in ([], [16], [-1], [1.5]):
        with pytest.raises(InputError):
            arguments.checked_prompt(prompt, None, 16)
    files = arguments.model_defaults
    assert files({}, {"eos_token_id": 3, "vocab_size": 9}) == {"eos_token_id": 3}
    assert files({"top_k": 1}, {"eos_token_id": 3}) == {"top_k": 1}
    arguments.check_streamer(greedy, 1)
    with pytest.raises(InputError, match="follow one sequence only"):
        arguments.check_streamer(greedy, 2)


@both
def test_stop_strings(form):
    """As StopStringCriteria of transformers: a string ends in the last token."""
    stops = module(form, "generation.stop_strings")
    words = ["a", "b", "ab", "\n\n", "\U0001f600", "b\U0001f600", " "]

    def decode(ids):
        return "".join(words[i] for i in ids)

    cases = [
        ("ab", [0, 1], True),
        ("ab", [0, 1, 6], False),  # it ended before the last token
        ("ab", [0, 2], True),
        ("a", [2], True),  # inside the last token
        ("\n", [0, 3], True),
        (["x", "\U0001f600a"], [4, 0], True),
        (["b\U0001f600"], [1, 4], True),
        (["b\U0001f600"], [4, 1], False),
        (["aaa"], [0, 0], False),
    ]
    for strings, ids, hit in cases:
        assert stops.StopStrings(decode, strings).hit(ids) is hit, (strings, ids)
    assert stops.stop_strings_of(decode, None) is None
    assert stops.stop_strings_of(decode, []) is None
    with pytest.raises(InputError, match="need a tokenizer"):
        stops.StopStrings(None, "a")
    for strings in (3, "", ["a", ""], [None]):
        with pytest.raises(InputError, match="none empty"):
            stops.StopStrings(decode, strings)


@both
def test_pieces(form):
    """As TextStreamer of transformers; bytes of incomplete characters are held back."""
    streamers = module(form, "generation.streamers")
    words = ["one", " two", "\n", "\ufffd", "\u4e2d", "\U0001f600 ", "x"]

    def decode(ids):
        return "".join(words[i] for i in ids).replace("\ufffd\ufffd", "\u00e9")

    def pieces(ids, skip_prompt=False, by_word=True):
        streamer = streamers.TextPieces(decode, skip_prompt, by_word)
        made = [streamer.put(part) for part in ids if not streamer.skips()]
        return [*made, streamer.end()]

    assert pieces([[0], [1], [1]]) == ["", "one ", "two ", "two"]
    assert pieces([[0], [1], [1]], skip_prompt=True) == [" ", "two ", "two"]
    assert pieces([[0], [1]], by_word=False) == ["one", " two", ""]
    assert pieces([[0], [2], [6]]) == ["", "one\n", "", "x"]
    assert pieces([[0], [3], [3]], by_word=False) == ["one", "", "\u00e9", ""]
    assert pieces([[4], [4]]) == ["\u4e2d", "\u4e2d", ""]
    assert pieces([[5], [6], [5]]) == ["\U0001f600 ", "", "x\U0001f600 ", ""]


@both
def test_caches_of_beams(form):
    """Each beam's cache has what its parent's had, no two beams share one."""
    beams = module(form, "generation.beams")
    for parents in ([0], [0, 0, 0], [2, 1, 0], [1, 1, 2], [2, 2, 2], [0, 0], [3, 1]):
        before = max(len(parents), max(parents) + 1) if parents[0] else 1
        found = beams.caches_of(parents, before)
        contents = dict(enumerate(range(before)))
        for source, target in found.copies:
            contents[target] = contents[source]
        assert [contents[cache] for cache in found.of_beams] == parents
        assert len(set(found.of_beams)) == len(parents)
        assert set(found.unused) == set(range(before)) - set(found.of_beams)


@both
def test_encoder_decoders(form):
    arguments = module(form, "generation.arguments")
    assert arguments.start_ids({"bos_token_id": 1}, {"decoder_start_token_id": 2}) == [2]
    assert arguments.start_ids({"bos_token_id": 1}, {}) == [1]
    with pytest.raises(InputError, match="no decoder_start_token_id"):
        arguments.start_ids({}, {})
    with pytest.raises(ModelError, match="decoder_start_token_id is x"):
        arguments.start_ids({"decoder_start_token_id": "x"}, {})
    assert arguments.truncated([5, 6, 7, 1], 3, 1) == [5, 6, 1]
    assert arguments.truncated([5, 6, 7, 8], 3, 1) == [5, 6, 7]
    assert arguments.truncated([5, 6], 3, 1) == [5, 6]


CHAT = [{"role": "user", "content": "Hi"}]
OPEN = [*CHAT, {"role": "assistant", "content": "He", "name": "x"}]


@both
def test_inputs(form):
    """As transformers' TextGenerationPipeline.__call__ divides its inputs; token ids are ours."""
    of = module(form, "generation.text")
    ids = {"input_ids": [1, 2]}
    assert of.inputs_of("a") == (["a"], False)
    assert of.inputs_of(CHAT) == ([CHAT], False)
    assert of.inputs_of(["a", CHAT, ids]) == (["a", CHAT, ids], True)
    assert of.inputs_of(ids) == ([ids], False)
    for wrong in (None, 3, [], [3], [[]], {}, [{"role": "user"}], [CHAT, [{"content": "x"}]]):
        with pytest.raises(InputError, match="neither text nor chat messages"):
            of.inputs_of(wrong)
    assert [of.continues(x, None) for x in ("a", CHAT, OPEN, ids)] == [False, False, True, False]
    assert [of.continues(x, True) for x in ("a", CHAT)] == [False, True]


@both
def test_results(form):
    """The records of transformers' TextGenerationPipeline.postprocess."""
    of, run = module(form, "generation.text"), module(form, "generation.run")
    letters = " \U0001f600abc"
    output = run.Output([[1, 2, 3, 4]], ["eos"], None, None, [-0.5])

    def shown(given, goes_on=False, options=None, details=False):
        (record,) = of.records_of(given, [1, 2], output, goes_on, options or {}, details, decode)
        return record

    def decode(ids):
        return "".join(letters[i] for i in ids)

    assert shown("\U0001f600a") == {"generated_text": "\U0001f600abc"}
    assert shown("x", options={"return_full_text": False}) == {"generated_text": "bc"}
    assert shown({"input_ids": [1, 2]}) == {"generated_text": "bc"}
    assert shown("x", options={"return_tensors": True}) == {"generated_token_ids": [1, 2, 3, 4]}
    assert shown(CHAT)["generated_text"] == [*CHAT, {"role": "assistant", "content": "bc"}]
    assert shown(OPEN, True)["generated_text"] == [CHAT[0], {**OPEN[1], "content": "Hebc"}]
    assert shown("x", options={"return_full_text": None}, details=True) == {
        "generated_text": "xbc",
        "finish_reasons": "eos",
        "sequences_scores": -0.5,
    }


@both
def test_defaults_of_the_task(form):
    """What of generation_config.json and the call overrides transformers' 256 new tokens."""
    of, config = module(form, "generation.text"), module(form, "generation.config")

    def new(own, fields, eos=None):
        defaults = of.task_defaults(config.of_file(own), {"max_new_tokens": 256}, eos)
        return of.defaults_of_call(defaults, fields)

    assert new({}, {}).get("max_new_tokens") == 256
    assert new({"max_length": 50}, {}).get("max_new_tokens") is None
    assert new({"max_length": 20}, {}).get("max_new_tokens") == 256
    assert new({"max_length": 50, "max_new_tokens": 5}, {}).get("max_new_tokens") == 5
    assert new({}, {"max_length": 30}).get("max_new_tokens") is None
    assert new({}, {"max_length": 30, "max_new_tokens": 4}).get("max_new_tokens") == 256
    assert new({}, {}, 7).get("eos_token_id") == 7
    assert new({"eos_token_id": 3}, {}, 7).get("eos_token_id") == 3


@both
def test_ties_at_the_limit_need_all_logits(form):
    holds = module(form, "generation.shortlist").holds
    members = {"vocab_size": 1000, "do_sample": 1, "top_k": 3, "temperature": 1.5}
    assert holds(members, [9.0 - i for i in range(256)])
    assert not holds(members, [1.0] * 256)  # more may have the same score
    # different logits whose scores at this temperature are the same
    x = np.float32(1.9) + np.arange(9, dtype=np.float32) * np.float32(2**-23)
    scores = (x / np.float32(1.5)).tolist()
    i = next(i for i in range(8) if scores[i] == scores[i + 1])
    low, high = x[i : i + 2].tolist()
    assert not holds(members, [high] * 3 + [low] * 253)
    assert holds(members, [1.0] * 1000)  # all there are


@both
def test_which_members_need_all_logits(form):
    suffices = module(form, "generation.shortlist").suffices
    config = module(form, "generation.config").Configuration

    def members(**fields):
        return config({"do_sample": True, **fields}).pack(16, 4, 8)[0]

    assert suffices(members()) and suffices(members(do_sample=False, top_k=0))
    for fields in (
        {"top_k": 0},
        {"top_k": 256},
        {"num_beams": 2},
        {"repetition_penalty": 1.1},
        {"suppress_tokens": [3]},
        {"logit_bias": {"3": 1.0}},
        {"min_new_tokens": 2},
        {"no_repeat_ngram_size": 2},
        {"bad_words_ids": [[1]]},
        {"remove_invalid_values": True},
    ):
        assert not suffices(members(**fields)), fields
