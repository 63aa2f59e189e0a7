"""Options of text to text on both forms. Expected values: transformers' tokenizers of multilingual
models (NLLB, M2M100, mBART), and T5's prefixes in its config.json.
"""

import pytest
from edgewise.errors import InputError

from .forms import both, module

T5 = {
    "prefix": "own: ",
    "task_specific_params": {
        "translation_en_to_de": {"prefix": "translate English to German: "},
        "translation_en_to_fr": {},
    },
}
LANGUAGES = {"eng_Latn": 7, "__fr__": 8, "de_XX": 9}


@both
def test_prefixes_and_languages(form):
    text2text = module(form, "generation.text2text")

    def found(options, config=T5):
        call = text2text.call_of(options, False, config, LANGUAGES)
        return call.prefix, call.source, call.forced

    assert found({}, {}) == ("", None, None) and found({}) == ("own: ", None, None)
    assert found({"prefix": ""}) == ("", None, None)
    pair = {"src_lang": "en", "tgt_lang": "de"}
    assert found(pair) == ("translate English to German: ", None, None)
    assert found({**pair, "prefix": "de: "}) == ("de: ", None, None)
    assert found({"src_lang": "eng_Latn", "tgt_lang": "fr"}) == ("own: ", 7, 8)
    assert found({"tgt_lang": "de"}, {"task_specific_params": None}) == ("", None, 9)
    for options in ({"src_lang": "en"}, {"tgt_lang": "toString"}):
        (name,) = options
        with pytest.raises(InputError, match="the model has no language") as e:
            found(options)
        assert e.value.where.endswith(name)


@both
def test_prompts(form):
    text2text = module(form, "generation.text2text")
    call = text2text.call_of({"src_lang": "eng_Latn"}, True, {}, LANGUAGES)
    # as NLLB's tokenizer: the language first, once
    assert text2text.prompt_of(call, [8, 20, 21, 2], 9, 2) == [7, 20, 21, 2]
    assert text2text.prompt_of(call, [8, 20, 21, 22, 2], 4, 2) == [7, 20, 21, 2]
    call = text2text.call_of({"truncation": False}, True, {}, LANGUAGES)
    assert text2text.prompt_of(call, [8, 20, 21, 2], 3, 2) == [8, 20, 21, 2]


@both
def test_special_tokens(form):
    special_tokens = module(form, "generation.text2text").special_tokens
    config = {"additional_special_tokens": ["eng_Latn", {"content": "__fr__"}, 3, {"content": 4}]}
    assert special_tokens(config) == ["eng_Latn", "__fr__"]
    assert special_tokens({}) == special_tokens({"additional_special_tokens": "x"}) == []


@both
def test_options(form):
    text2text = module(form, "generation.text2text")
    call = text2text.call_of({"clean_up_tokenization_spaces": False}, True, {}, {})
    assert call.truncation and not call.tensors
    assert call.decoding == {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    assert text2text.call_of({}, False, {}, {}).decoding == {"skip_special_tokens": True}
    for options, text in (
        ({"return_tensors": True, "return_text": True}, "return_text excludes return_tensors"),
        ({"return_tensors": "pt"}, "return_tensors: it is"),
        ({"prefix": 3}, "prefix: it is 3"),
        ({"truncation": 1}, "truncation: it is 1"),
    ):
        with pytest.raises(InputError, match=text):
            text2text.check(options)
