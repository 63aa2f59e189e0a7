"""audio-text-to-text in Python, from samples to tokens, beside transformers."""

from __future__ import annotations

import edgewise
import numpy as np
import pytest
from edgewise.compiler.task_package import compile_task
from edgewise.errors import Aborted, InputError, PackageError
from edgewise.host.session.open import folder_files

from .sounds import QUESTION, SIZE, SOUND_MODELS, answered, messages, sound

TASK = "audio-text-to-text"
GREEDY = {"max_new_tokens": 10, "do_sample": False}
COUNTS = [[], [SIZE], [7777], [40000, 12345], [2 * SIZE, 3, 31999]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in SOUND_MODELS.items()}


def given(counts):
    return [sound(count, seed) for seed, count in enumerate(counts)]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("voxtral", marks=pytest.mark.family("Voxtral", exporter="torch")),
        pytest.param("qwen2_audio", marks=pytest.mark.family("Qwen2-Audio", exporter="torch")),
    ],
)
def test_tokens_are_those_of_transformers(models, name):
    model, answers = models[name], set()
    with edgewise.pipeline(TASK, model.root) as made:
        for counts in COUNTS:
            sounds = given(counts)
            [got] = made(sounds, messages(len(sounds)), return_tensors=True, **GREEDY)
            wanted = answered(model, sounds, 10)
            assert got["generated_token_ids"] == wanted
            answers.add(tuple(wanted[-10:]))
    assert len(answers) > 1  # they depend on the sounds


def test_packages_forms_of_input_and_what_is_kept(models, tmp_path):
    model = models["voxtral"]
    package = compile_task(folder_files(model.root)[0], TASK)
    package.save(str(tmp_path / "model.edge"))
    [first] = given([40000])
    with edgewise.pipeline(TASK, tmp_path / "model.edge") as made:
        wanted = answered(model, [first], 10)
        parts = [{"type": "audio", "audio": {"raw": first, "sampling_rate": 16000}}, QUESTION]
        chat = [{"role": "user", "content": parts}]
        for _ in range(2):  # the second time its features are kept
            [got] = made(chat, return_tensors=True, **GREEDY)
            assert got["generated_token_ids"] == wanted
        text = "<s>user : [AUDIO] what is in this \n a :"
        [got] = made(first, text, **GREEDY)
        assert got["input_text"] == text and got["generated_text"]
        with pytest.raises(Aborted):
            made(chat, signal=lambda: True)
    del package.manifest["programs"]["pre"]
    package.save(str(tmp_path / "less.edge"))
    with edgewise.pipeline(TASK, tmp_path / "less.edge") as made:
        with pytest.raises(PackageError, match="it has no program 'pre'"):
            made(first, text, **GREEDY)


def test_bad_input(models):
    with edgewise.pipeline(TASK, models["qwen2_audio"].root) as made:
        [one] = given([9000])
        for sounds, text, message in (
            ([one, one], messages(1), "1 of the sounds have no place"),
            ([], messages(1), "a part of a message has no sound"),
            ([one], "what is this", "0 placeholders"),
            ([one], "<|AUDIO|> <|AUDIO|>", "2 placeholders"),
            ([np.zeros(0, np.float32)], messages(1), "no samples"),
            (["nowhere.wav"], messages(1), "nowhere.wav"),
            ([one], [{"role": "user", "content": [{"type": "image"}]}], "the type 'image'"),
            ([b"no sound"], messages(1), "^audio: "),
        ):
            with pytest.raises(InputError, match=message):
                made(sounds, text)
        [got] = made([one], messages(1), return_tensors=True, **GREEDY)  # it goes on
        assert got["generated_token_ids"] == answered(models["qwen2_audio"], [one], 10)


def test_transcripts(models, tmp_path):
    """The prompt is mistral-common's: encode_transcription of its InstructTokenizerV7."""
    model = models["voxtral"]
    words = model.processor.tokenizer
    with edgewise.pipeline("automatic-speech-recognition", model.root) as listen:
        first, second = given([40000, 7777])

        def expected(samples, language):
            text = f"<s>[INST][AUDIO][/INST]{language}[TRANSCRIBE]"
            ids = answered(model, [samples], 10, text)
            new = words.decode(ids[-10:], skip_special_tokens=True)
            return {"text": new}

        wanted = expected(first, "lang:en")
        assert listen(first, language="en", **GREEDY) == wanted
        assert listen(first, language="English", return_timestamps=False, **GREEDY) == wanted
        plain = [expected(one, "") for one in (first, second)]
        assert plain[0] != plain[1]
        assert listen([first, second], **GREEDY) == plain
        asked = {"raw": first, "sampling_rate": 16000, "name": "a"}
        assert listen(asked, **GREEDY) == {**plain[0], "name": "a"}
        long = listen(first, do_sample=False)["text"]
        assert long.startswith(plain[0]["text"])
        assert len(long) > len(plain[0]["text"])
        for options, message in (
            ({"language": "xx"}, "the language 'xx' is unknown"),
            ({"language": 3}, "it is no text"),
            ({"return_timestamps": True}, "no such option"),
        ):
            with pytest.raises(InputError, match=message):
                listen(first, **options)
        with pytest.raises(InputError, match="no samples"):
            listen(np.zeros(0, np.float32))
    package = compile_task(folder_files(model.root)[0], TASK)
    package.save(str(tmp_path / "model.edge"))
    with edgewise.pipeline("asr", tmp_path / "model.edge") as listen:
        assert listen(first, language="en", **GREEDY) == wanted
    with edgewise.pipeline("asr", models["qwen2_audio"].root) as listen:
        with pytest.raises(InputError, match="no prompt for transcripts"):
            listen(first)
