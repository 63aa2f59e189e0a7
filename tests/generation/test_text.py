"""Configuration, streamers, tokenizers, chat templates, the pipeline."""

import json
import sys
import threading

import pytest

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from edgewise.errors import EdgewiseError, InputError, TokenizerError, UnsupportedField
from edgewise.logic.generation.fields import GENERATION_FIELDS
from edgewise.pipelines import TextGenerationPipeline, pipeline
from edgewise.text import (
    ChatTemplate,
    GenerationConfig,
    TextIteratorStreamer,
    TextStreamer,
    Tokenizer,
    generate,
)

# --- configuration


def test_fields_and_defaults_are_those_of_transformers():
    theirs = transformers.GenerationConfig().__dict__
    ours = {name: default for name, (default, _, _) in GENERATION_FIELDS.items()}
    extra = {"presence_penalty", "frequency_penalty", "logit_bias", "seed"}
    # of the configurations of Whisper
    extra |= {"return_timestamps", "no_timestamps_token_id", "max_initial_timestamp_index"}
    assert set(theirs) - set(ours) - {"_original_object_hash"} == set()
    assert set(ours) - set(theirs) == extra
    assert {n: v for n, v in ours.items() if n not in extra | {"transformers_version"}} == {
        n: v for n, v in theirs.items() if n in ours and n != "transformers_version"
    }


@pytest.mark.parametrize(
    "name", [n for n, (_, how, _) in GENERATION_FIELDS.items() if how == "refused"]
)
def test_refused_fields(name):
    default, _, remedy = GENERATION_FIELDS[name]
    assert remedy
    GenerationConfig(**{name: default})
    with pytest.raises(UnsupportedField, match=name) as error:
        GenerationConfig(**{name: 3 if default in (None, 0, 0.0, 1, 1.0, False) else object()})
    assert error.value.remedy == remedy


def test_config():
    with pytest.raises(UnsupportedField, match="Did you mean 'max_new_tokens'"):
        GenerationConfig(max_new_token=3)
    with pytest.raises(UnsupportedField, match="model/generation_config.json"):
        GenerationConfig.from_dict({"num_beam_groups": 2}, "model/generation_config.json")
    config = GenerationConfig.from_dict(
        {
            "_from_model_config": True,
            "transformers_version": "4.1",
            "eos_token_id": [1, 2],
            "top_k": 5,
            "max_new_tokens": None,
            "cache_implementation": "hybrid",
        }
    )
    assert (
        config.eos_token_ids == [1, 2]
        and config.to_dict()["top_k"] == 5
        and config == eval(repr(config))
    )
    with pytest.raises(UnsupportedField):
        config.guidance_scale = 2.0
    config.guidance_scale = 1.0
    for fields in (
        {"max_new_tokens": 0},
        {"max_new_tokens": 1.5},
        {"num_beams": 0},
        {"temperature": "hot"},
        {"early_stopping": "soon"},
        {"max_time": -1},
        {"seed": 2**64},
        {"top_p": float("nan")},
        {"top_k": True},
    ):
        with pytest.raises(InputError, match=next(iter(fields))):
            GenerationConfig(**fields).validate()
    for fields in (
        {"logit_bias": [1]},
        {"logit_bias": {"x": 1.0}},
        {"sequence_bias": [[1, 2.0]]},
        {"bad_words_ids": [[]]},
        {"bad_words_ids": [["a"]]},
        {"eos_token_id": "x"},
        {"exponential_decay_length_penalty": 3},
        {"logit_bias": {1: float("nan")}},
    ):
        with pytest.raises(EdgewiseError):
            GenerationConfig(**fields).pack(100, 1, 10)
    with pytest.raises(InputError):
        GenerationConfig.from_dict([1])


# --- tokenizers

TEXTS = [
    "Once upon a time, there was a naïve dragon.",
    "Zwölf Boxkämpfer jagen Viktor",
    "日本語のテキスト、絵文字 🐉🎉!",
    "a\nb\n\nc  d",
    "",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model directory with a byte-level BPE tokenizer, so small that most characters beyond ASCII
    take several tokens.
    """
    path = tmp_path_factory.mktemp("model")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>", "<|user|>"],
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(
        ["once upon a time there was the dragon and the the the"] * 5, trainer
    )
    backend.save(str(path / "tokenizer.json"))
    template = (
        "{{ bos_token }}{% for m in messages %}\n  {% if m.role == 'system' %}{{"
        " raise_exception('no system please') }}{% endif %}{{ '<|user|>' if m.role == 'user' else"
        " '' }}{{ m.content | trim }}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}{%"
        " generation %}>{% endgeneration %}{% endif %}{{ tools | tojson if tools }}"
    )
    (path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": {"content": "</s>", "__type": "AddedToken"},
                "clean_up_tokenization_spaces": False,
                "chat_template": template,
            }
        )
    )
    return path


def test_tokenizer_against_transformers(directory):
    ours, theirs = (
        Tokenizer.from_pretrained(directory),
        transformers.AutoTokenizer.from_pretrained(directory),
    )
    for text in TEXTS + ["<s>once</s> <|user|>"]:
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"] == ours.encode(text, add_special_tokens=False)
        for skip in (False, True):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(
                ids, skip_special_tokens=skip
            )
        assert ours.decode(ids, clean_up_tokenization_spaces=True) == theirs.decode(
            ids, clean_up_tokenization_spaces=True
        )
    assert (ours.bos_token_id, ours.eos_token_id, ours.pad_token_id) == (
        theirs.bos_token_id,
        theirs.eos_token_id,
        None,
    )
    assert ours.vocab_size == len(theirs)


@pytest.mark.parametrize("bos,eos", [(True, False), (False, True), (True, True), (False, False)])
def test_add_bos(directory, tmp_path, bos, eos):
    (tmp_path / "tokenizer.json").write_text((directory / "tokenizer.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "LlamaTokenizer",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "add_bos_token": bos,
                "add_eos_token": eos,
            }
        )
    )
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (
        Tokenizer.from_pretrained(tmp_path).encode("once upon") == theirs("once upon")["input_ids"]
    )


CHAT = [
    {"role": "user", "content": " Hi <there> & you "},
    {"role": "assistant", "content": "Hello, "},
]


def test_chat_template_against_transformers(directory):
    ours, theirs = (
        Tokenizer.from_pretrained(directory),
        transformers.AutoTokenizer.from_pretrained(directory),
    )
    for messages in (CHAT[:1], CHAT):
        for extra in ({}, {"add_generation_prompt": True}, {"tools": [{"a": "<é>"}]}):
            assert ours.apply_chat_template(
                messages, tokenize=False, **extra
            ) == theirs.apply_chat_template(messages, tokenize=False, **extra)
        assert ours.apply_chat_template(messages) == theirs.apply_chat_template(messages)
    assert ours.apply_chat_template(
        CHAT, tokenize=False, continue_final_message=True
    ) == theirs.apply_chat_template(CHAT, tokenize=False, continue_final_message=True)
    assert CHAT[1]["content"] == "Hello, "


def test_chat_template_errors(directory):
    tokenizer = Tokenizer.from_pretrained(directory)
    with pytest.raises(TokenizerError, match="no system please"):
        tokenizer.apply_chat_template([{"role": "system", "content": "x"}])
    with pytest.raises(TokenizerError, match="line 2"):
        ChatTemplate("a\n{% if %}")
    with pytest.raises(TokenizerError, match="failed"):
        ChatTemplate("{{ 1 / 0 }}")([{"role": "user", "content": "x"}])
    with pytest.raises(TokenizerError):  # the sandbox
        ChatTemplate("{{ ''.__class__.__mro__ }}{{ messages.append(1) }}")(
            [{"role": "user", "content": "x"}]
        )
    tokenizer.chat_template = None
    with pytest.raises(TokenizerError, match="no chat template"):
        tokenizer.apply_chat_template(CHAT)
    assert ChatTemplate("{{ strftime_now('%Y') }}")([])[:2] == "20"


def test_without_the_library(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match="need the `tokenizers` library") as error:
        Tokenizer.from_pretrained(directory)
    assert "pip install edgewise[text]" in error.value.remedy


def test_broken_tokenizer_files(directory, tmp_path):
    good = (directory / "tokenizer.json").read_bytes()
    file = tmp_path / "tokenizer.json"
    with pytest.raises(TokenizerError, match="no tokenizer"):
        Tokenizer.from_pretrained(tmp_path)
    for bad, match in (
        (good[:1000], "line"),
        (b"", "line"),
        (b"[]", "object"),
        (b"{}", "not a valid"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b'{"model": {"type": "BPE", "vocab": 3}}', "not a valid"),
        (b"[" * 100000, "broken"),
    ):
        file.write_bytes(bad)
        with pytest.raises(TokenizerError, match=match) as error:
            Tokenizer.from_pretrained(tmp_path)
        assert str(file) in str(error.value) and error.value.remedy
    file.write_bytes(good)
    for bad in ('{"bos_token": 3}', "{", "[1]"):
        (tmp_path / "tokenizer_config.json").write_text(bad)
        with pytest.raises(TokenizerError, match="tokenizer_config.json"):
            Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    Tokenizer.from_pretrained(tmp_path)


# --- streamers


@pytest.mark.parametrize("by_word", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_streamer_gives_the_text_and_no_broken_characters(directory, text, by_word):
    tokenizer, pieces = Tokenizer.from_pretrained(directory), []
    streamer = TextStreamer(tokenizer, on_text=pieces.append, by_word=by_word)
    ids = tokenizer.encode(text)
    streamer.put(ids[:2])
    for i in ids[2:]:
        streamer.put([i])
    streamer.end()
    assert "".join(pieces) == text and not any("\ufffd" in piece for piece in pieces)


def test_streamer_prints_as_transformers_does(directory, capsys):
    import torch

    tokenizer, printed = Tokenizer.from_pretrained(directory), []
    for skip_prompt in (False, True):
        for streamer in (
            TextStreamer(tokenizer, skip_prompt),
            transformers.TextStreamer(tokenizer, skip_prompt),
        ):
            for ids in ([[1, 5, 6]], [7], [40], [41]):
                streamer.put(torch.tensor(ids))
            streamer.end()
            printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[2] == printed[3] and printed[0] != printed[2]
    with pytest.raises(ValueError):
        TextStreamer(tokenizer).put([[1], [2]])


class Bytes:
    """A tokenizer of the 97 tokens of the test model: duck-typed, as a caller in Pyodide would pass
    one.
    """

    def encode(self, text):
        return [ord(c) - 32 for c in text]

    def decode(self, ids, skip_special_tokens=False):
        return "".join(chr(i + 32) if i < 95 else "\n" for i in ids)


def test_streaming_generation(decoder):
    tokenizer = Bytes()
    expected = tokenizer.decode(generate(decoder, [5, 6, 7], max_new_tokens=12)[0])
    streamer = TextIteratorStreamer(tokenizer, timeout=600)
    thread = threading.Thread(
        target=generate,
        args=(decoder, [5, 6, 7]),
        kwargs={"max_new_tokens": 12, "streamer": streamer},
    )
    thread.start()
    assert "".join(streamer) == expected
    thread.join()
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=600)
    with pytest.raises(InputError):  # and the reader does not wait for ever
        generate(decoder, [5], streamer=streamer, suppress_tokens=list(range(97)))
    assert "".join(streamer) == ""
    theirs = transformers.TextIteratorStreamer(
        tokenizer, timeout=20
    )  # streamers written for transformers work, too
    generate(decoder, [5, 6, 7], max_new_tokens=12, streamer=theirs)
    assert "".join(theirs) == expected


# --- the pipeline


def test_pipeline(decoder):
    pipe = pipeline("text-generation", decoder, Bytes())
    assert isinstance(pipe, TextGenerationPipeline)
    fields = {"do_sample": False, "max_new_tokens": 5}
    new = Bytes().decode(generate(decoder, Bytes().encode("abc"), **fields)[0][3:])
    assert pipe("abc", **fields) == [{"generated_text": "abc" + new}]
    assert pipe("abc", return_full_text=False, **fields) == [{"generated_text": new}]
    assert pipe(["abc", "abc"], **fields) == [[{"generated_text": "abc" + new}]] * 2
    assert pipe("c", prefix="ab", return_full_text=False, **fields) == [{"generated_text": new}]
    assert len(pipe("abc", return_tensors=True, **fields)[0]["generated_token_ids"]) == 8
    assert len(pipe("abc", num_return_sequences=3, max_new_tokens=4)) == 3
    assert (
        len(
            pipe("abc", max_length=10, return_tensors=True, do_sample=False)[0][
                "generated_token_ids"
            ]
        )
        == 10
    )
    with pytest.warns(UserWarning, match="ends at 64"):
        assert (
            len(pipe("abc", return_tensors=True, seed=3)[0]["generated_token_ids"]) == 64
        )  # 256 by default, and sampled
    assert (
        pipe("abc", seed=3, max_new_tokens=9)
        == pipe("abc", seed=3, max_new_tokens=9)
        != pipe("abc", seed=4, max_new_tokens=9)
    )
    assert (
        len(
            pipe("a" * 80, handle_long_generation="hole", return_tensors=True, **fields)[0][
                "generated_token_ids"
            ]
        )
        == 64
    )
    for bad in ({"role": "user"}, [], [3], [[{"role": "user"}]], 7, None):
        with pytest.raises(InputError, match="neither text"):
            pipe(bad)
    with pytest.raises(TokenizerError, match="apply_chat_template"):
        pipe(CHAT)
    with pytest.raises(UnsupportedField, match="temprature"):
        pipe("abc", temprature=1.0)
    with pytest.raises(InputError, match="text-generation"):
        pipeline("video-classification", decoder)
    with pytest.raises(TokenizerError, match="tokenizer="):
        pipeline("text-generation", decoder)


def test_prompts_that_are_too_long(decoder, directory):
    """Refused with the numbers, or as transformers' tokenizer cuts them; an answer that reaches the
    end of the window ends.
    """
    pipe = pipeline("text-generation", decoder, str(directory))
    decoder.vocab_size = 300  # the tokenizer's
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    text = "once upon a time there was a little prompt " * 9
    count = len(theirs(text)["input_ids"])
    words = f"the prompt has {count} tokens, and a sequence of the model at most 64.*truncation"
    with pytest.raises(InputError, match=words):
        pipe(text)
    prompts = []
    pipe._generate = lambda ids, *_, **__: (
        prompts.append(ids) or {"sequences": [ids], "finish_reasons": ["length"]}
    )
    for side in ("left", "right"):
        theirs.truncation_side = side
        for new, room in ((10, 54), (500, 32)):
            pipe(text, truncation=True, truncation_side=side, max_new_tokens=new)
            expected = theirs(text, truncation=True, max_length=room)["input_ids"]
            assert prompts.pop() == expected
    pipe({"input_ids": [4] * 70}, truncation="longest_first", max_new_tokens=4)
    assert prompts.pop() == [4] * 60
    chat = [{"role": ("user", "assistant")[i % 2], "content": f"turn {i}"} for i in range(9)]
    pipe(chat, truncation=True, max_new_tokens=4)
    (got,) = prompts
    whole = [
        theirs.apply_chat_template(chat[i:], add_generation_prompt=True, tokenize=True)
        for i in range(0, 9, 2)
    ]
    assert got == next(ids for ids in whole if len(ids) <= 60) and len(whole[0]) > 60
    with pytest.raises(InputError, match="truncation_side"):
        pipe(text, truncation=True, truncation_side="middle")


def test_answers_that_reach_the_end(decoder):
    pipe = pipeline("text-generation", decoder, Bytes())
    fields = {"do_sample": False, "return_dict_in_generate": True, "return_tensors": True}
    with pytest.warns(UserWarning, match="ends at 64"):
        (out,) = pipe("a" * 40, max_new_tokens=100, **fields)
    assert len(out["generated_token_ids"]) == 64 and out["finish_reasons"] == "length"


def test_pipeline_with_a_tokenizer_of_the_library(decoder, tmp_path):
    """The methods of tokenizers.Tokenizer are native ones. A token is a character."""
    letters = {chr(33 + i): i for i in range(97)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    backend.save(str(tmp_path / "tokenizer.json"))
    native = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    pipe = pipeline("text-generation", decoder, tokenizer=native)
    fields = {"do_sample": False, "max_new_tokens": 5, "return_tensors": True}
    expected = generate(decoder, [64, 65, 66], do_sample=False, max_new_tokens=5)[0]
    for extra in ({}, {"add_special_tokens": False}, {"tokenizer_encode_kwargs": {"pair": None}}):
        assert pipe("abc", **fields, **extra) == [{"generated_token_ids": expected}]
    assert pipe("abc", max_new_tokens=5)[0]["generated_text"].startswith("abc")
    with pytest.raises(InputError, match="the tokenizer's encode does not take padding"):
        pipe("abc", tokenizer_encode_kwargs={"padding": True})


def test_pipeline_defaults(decoder):
    decoder.generation_config = {"temperature": 0.5, "do_sample": False, "eos_token_id": 3}
    config = TextGenerationPipeline(decoder, Bytes()).generation_config
    assert (config.temperature, config.do_sample, config.max_new_tokens, config.eos_token_id) == (
        0.5,
        False,
        256,
        3,
    )
    decoder.generation_config = {"max_length": 30}
    assert TextGenerationPipeline(decoder, Bytes()).generation_config.max_new_tokens is None
    decoder.generation_config, decoder.config = {}, {"eos_token_id": 9, "n_embd": 3}
    assert TextGenerationPipeline(decoder, Bytes()).generation_config.eos_token_id == 9


def test_pipeline_with_chat(model, engine, directory):
    """The model's vocabulary is smaller than the tokenizer's, so only tokens it has are let
    through.
    """
    import torch

    from .conftest import TorchDecoder

    torch.manual_seed(1)
    wide = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=300, n_positions=96, n_embd=16, n_layer=1, n_head=1)
    ).eval()
    decoder = TorchDecoder(wide, engine, 96)
    decoder.generation_config = {"eos_token_id": 1}
    try:
        pipe = pipeline("text-generation", decoder, str(directory))
        fields = {"do_sample": False, "max_new_tokens": 6}
        reference = transformers.pipeline(
            "text-generation", wide, tokenizer=transformers.AutoTokenizer.from_pretrained(directory)
        )
        for given in (CHAT[:1], CHAT, "once upon", [CHAT[:1], CHAT], ["once", "upon"]):
            for extra in ({}, {"return_full_text": False}):
                assert pipe(given, **fields, **extra) == reference(
                    given, eos_token_id=1, pad_token_id=0, **fields, **extra
                ), (given, extra)
    finally:
        engine.free(decoder.logits)
