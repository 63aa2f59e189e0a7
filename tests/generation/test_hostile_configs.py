"""generation_config.json, tokenizer_config.json and fields of any content: a result or an error of
ours.
"""

import json
import random
import warnings

import pytest
from edgewise.errors import EdgewiseError, InputError
from edgewise.logic.generation.fields import GENERATION_FIELDS
from edgewise.pipelines import TextGenerationPipeline
from edgewise.text import GenerationConfig, Tokenizer, generate

from .test_lengths import Decoder

DEEP = [[]]
for _ in range(300):
    DEEP = [DEEP]
VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    -(2**63),
    2**200,
    10**4400,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\0",
    "\ud800",
    [],
    [1],
    [[1]],
    [[]],
    ["a"],
    [None],
    [[1, 2], 3.0],
    [[[1], 2.0]],
    [1, 2],
    [2**70],
    {},
    {"a": 1},
    {"1": 2},
    {"1": "x"},
    {"-1": 1.0},
    [-1],
    [99],
    DEEP,
    "never",
    [[2**40]],
    {"1": 10**400},
]


@pytest.mark.parametrize("name", [n for n in GENERATION_FIELDS if not n.startswith("_")])
def test_fields_of_any_value(engine, name):
    for value in VALUES:
        for source in ("file", "config", "fields"):
            decoder = None
            try:
                decoder = Decoder(engine, {name: value} if source == "file" else {})
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    config = {name: value} if source == "config" else None
                    fields = {name: value} if source == "fields" else {}
                    generate(decoder, [1, 2, 3], config, **{"max_time": 2, **fields})
            except EdgewiseError as e:
                assert e.what and e.where
            finally:
                if decoder is not None:
                    engine.free(decoder.logits)


def test_configurations_that_are_no_objects():
    for value in (*VALUES, b"x"):
        if not isinstance(value, dict):
            with pytest.raises(EdgewiseError):
                GenerationConfig.from_dict(value)


# long: a table of damaged files
def test_pipeline_of_damaged_files(engine):
    """Random values in the configuration files of a model: the pipeline generates, or raises an
    error.
    """
    pytest.importorskip("tokenizers")
    base = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 0,
                "content": "<s>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": "<s>",
            "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3},
            "merges": ["a b"],
        },
    }
    config = {
        "tokenizer_class": "LlamaTokenizerFast",
        "add_bos_token": True,
        "add_eos_token": True,
        "bos_token": "<s>",
        "eos_token": {"content": "<s>"},
        "model_max_length": 1000,
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
        "clean_up_tokenization_spaces": True,
    }

    def places(x, path=()):
        if path:
            yield path
        for k in x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ():
            yield from places(x[k], (*path, k))

    ran = 0
    for i in range(800):
        rng = random.Random(i)
        files = json.loads(
            json.dumps(
                {
                    "tokenizer.json": base,
                    "tokenizer_config.json": config,
                    "generation_config.json": {"eos_token_id": 3, "max_new_tokens": 3},
                }
            )
        )
        for _ in range(rng.choice((1, 1, 2))):
            *path, last = rng.choice(list(places(files)))
            if not path:
                continue
            at = files
            for k in path:
                at = (
                    at[k]
                    if isinstance(at, dict) and k in at or isinstance(at, list) and k < len(at)
                    else {}
                )
            if isinstance(at, (dict, list)) and (
                last in at if isinstance(at, dict) else last < len(at)
            ):
                at[last] = rng.choice([v for v in VALUES if v is not DEEP and v != 10**4400])
        decoder = Decoder(engine, {})
        try:
            decoder.generation_config = files["generation_config.json"]
            texts = {n: json.dumps(v).encode() for n, v in files.items()}
            pipe = TextGenerationPipeline(decoder, Tokenizer.from_files(texts.get, "m"))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pipe("ab a", max_time=2)
                pipe([{"role": "user", "content": "ab"}], max_time=2)
            ran += 1
        except EdgewiseError as e:
            assert e.what and e.where, repr(e)
        finally:
            engine.free(decoder.logits)
    assert ran > 80


def test_tokens_and_texts_of_any_kind(engine):
    pytest.importorskip("tokenizers")
    tokenizer = Tokenizer(
        json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
            }
        )
    )
    for ids in ([-1], [2**32], [2**70], [0, -5]):
        with pytest.raises(EdgewiseError):
            tokenizer.decode(ids)
    assert tokenizer.decode([2**31]) == "" and tokenizer.decode([]) == ""
    with pytest.raises(InputError, match="character 0 is half of a surrogate pair"):
        tokenizer.encode("\ud800")
